"""From command-line arguments to torchtitan's configuration, as training itself would read them."""

from collections.abc import Sequence
from typing import Any

from pp_precompile.contract.errors import UsageError
from pp_precompile.titan.core_trainer import CoreTrainer
from pp_precompile.titan.trainer import PrecompileTrainer


def parse(argv: Sequence[str]) -> Any:
    """Return the configuration that ``argv`` describes, with precompiled stages turned on.

    Raises:
        UsageError: PPC001 for arguments that torchtitan refuses, or that name a model without
            precompiled stages; PPC003 for a batch that cannot be cut into microbatches.
    """
    from torchtitan.config import ConfigManager

    try:
        config = ConfigManager().parse_args(list(argv))
    except (ValueError, ImportError) as error:
        raise UsageError(
            "PPC001",
            f"torchtitan does not take these arguments: {error}",
            expected="--module pp_precompile.models.… --config … and torchtitan's own flags",
            found=" ".join(argv),
            hint="give the arguments that training is started with",
        ) from error
    if not isinstance(config, PrecompileTrainer.Config | CoreTrainer.Config):
        raise UsageError(
            "PPC001",
            "this module's configurations know no precompiled stages",
            expected="a module of pp_precompile.models, such as pp_precompile.models.llama3",
            found=f"{type(config).__module__}.{type(config).__qualname__}",
            hint="change --module",
        )
    if not config.compile.precompile:
        raise UsageError(
            "PPC001",
            "the arguments do not ask for precompiled stages",
            expected="--compile.precompile",
            found="compile.precompile = False",
            hint="add --compile.precompile, here and to the train command",
        )
    return config
