"""The llama3 configurations with plain parameters: the fastest eager pipeline there is here.

graph_trainer keeps every parameter as a DTensor and gathers it at each use, also where a single
data-parallel rank has nothing to gather. Compiled programs have that folded away; an eager run
pays for it in Python. A comparison with it alone would flatter whatever is compiled.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from pp_precompile.models import llama3


def _plain(model: nn.Module, **arguments: Any) -> nn.Module:
    """Stand in for the model's parallelize function on one data-parallel rank: nothing to do."""
    return model


def _with_plain_parameters(config_of: Callable[[], Any]) -> Callable[[], Any]:
    def config() -> Any:
        original = config_of()
        spec = dataclasses.replace(original.model_spec, parallelize_fn=_plain)
        return dataclasses.replace(original, model_spec=spec)

    return config


globals().update(
    {
        name: _with_plain_parameters(value)
        for name, value in vars(llama3).items()
        if name.startswith("llama3_")
    }
)
