"""What a worker process imports before it compiles programs of torchtitan's models.

Importing a model may define operations, or tell the compiler something about them. This module
itself imports nothing of torchtitan: that has to wait for the CPU platform.
"""

import importlib
import inspect
from typing import TYPE_CHECKING

from torch import nn

from pp_precompile.titan import cpu_platform

if TYPE_CHECKING:
    from pp_precompile.titan.job import Job


def imported_by(job: "Job", model: nn.Module) -> tuple[str, ...]:
    """Return the modules that ``model`` and its parallelization come from, sorted."""
    function = inspect.unwrap(job.config.model_spec.parallelize_fn)
    modules = {type(module).__module__ for module in model.modules()} | {function.__module__}
    return tuple(sorted(modules - {"__main__"}))


def prepare(modules: tuple[str, ...]) -> None:
    """Import ``modules``, on this host's device as torchtitan is to see it.

    Raises:
        ImportError: if one is not there.
    """
    if cpu_platform.needed():
        cpu_platform.enable()
    for module in modules:
        importlib.import_module(module)
