"""The key factors of a job: everything that can reach its stage programs, by name."""

import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from pp_precompile.contract.factors import flatten
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.sources import source_digests
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.graph.identity import input_factors, plan_factors
from pp_precompile.titan.exclusions import excluded
from pp_precompile.titan.inputs import StageInputs
from pp_precompile.titan.split import Split

_IN_ENVIRONMENT = frozenset({"torch", "torchtitan"})
"""Packages whose files :class:`~pp_precompile.contract.environment.Environment` identifies.

By Python's version it identifies the standard library too.
"""


def job_factors(
    config: Any,
    *,
    model: nn.Module,
    mesh: MeshSpec,
    split: Split,
    schedule: ScheduleTable,
    inputs: StageInputs,
    loss_arguments: Iterable[NamedTensor],
    compiler: Mapping[str, str],
) -> dict[str, str]:
    """Return every factor of the job's key.

    Args:
        config: torchtitan's configuration, after the model was updated from it.
        model: the whole model before it is split and wrapped, on meta.
        mesh: the job's mesh.
        split: the modules of each stage.
        schedule: the unrolled schedule.
        inputs: what stages are called with.
        loss_arguments: what the loss is called with, as far as the build's content says it.
        compiler: the factors that steer compilation, from :mod:`pp_precompile.stage.settings`.

    Raises:
        PrecompileError: PPC005 for a configuration value without a canonical form.
    """
    spec = config.model_spec
    factors = flatten(config, "", excluded=lambda name: excluded(name.removeprefix(".")))
    factors = {name.removeprefix(".") or "config": value for name, value in factors.items()}
    factors |= flatten(spec.model, "model", excluded=excluded)
    factors["model.name"] = spec.name
    factors["model.parallelize_fn"] = (
        f"{spec.parallelize_fn.__module__}:{spec.parallelize_fn.__qualname__}"
    )
    factors |= _source_factors(_classes(model), spec.parallelize_fn)
    factors |= plan_factors(mesh, split, schedule)
    for index in (0, len(split) - 1):
        factors |= input_factors(f"inputs.stage[{index}]", inputs.arguments(index))
    factors |= input_factors("inputs.keyword", inputs.keywords())
    factors |= input_factors("inputs.loss", loss_arguments)
    return factors | dict(compiler)


def _classes(model: nn.Module) -> Iterable[type]:
    return {base for module in model.modules() for base in type(module).__mro__}


def _source_factors(classes: Iterable[type], function: Any) -> dict[str, str]:
    """Return the digests of the sources of ``classes`` and ``function``, and of what they import.

    The environment's factors have torch and torchtitan, installed or as a checkout. Of this package
    they have what makes programs, and here are the files of models.
    """
    files: dict[str, Path] = {}
    for item in (*classes, inspect.unwrap(function)):
        module = item.__module__
        if module.partition(".")[0] in _IN_ENVIRONMENT | sys.stdlib_module_names:
            continue
        file = inspect.getsourcefile(item)
        if file is not None:
            files[module] = Path(file)
    digests = source_digests(files, known=_IN_ENVIRONMENT | {"pp_precompile"})
    return {f"model.source[{name}]": digest for name, digest in digests.items()}
