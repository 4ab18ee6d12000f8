"""The flags that turn precompiled stages on, as additions to torchtitan's own configuration."""

from dataclasses import dataclass, field, fields
from typing import Any

from torchtitan.experiments.graph_trainer.configs import GraphTrainerCompileConfig

from pp_precompile.runtime.job import Policy


@dataclass(kw_only=True, slots=True)
class PrecompileCompileConfig(GraphTrainerCompileConfig):
    """graph_trainer's compile section with precompiled pipeline stages.

    ``precompile_artifact_dir``, which graph_trainer has already, names the store; without it the
    store is ``$PP_PRECOMPILE_DIR``, else ``precompile`` below the dump folder.
    """

    precompile: bool = False
    """Load the compiled programs of every pipeline stage, or compile and store them."""

    precompile_policy: Policy = "auto"
    """
    What to do if no stored build fits this job:
        auto: compile what is missing, store it, and train.
        strict: stop all ranks before anything is compiled.
    """

    precompile_trusted_keys: list[str] = field(default_factory=list)
    """
    Files of public keys (``pp-precompile keygen`` makes them). If there are any, a build that none
    of them signed stops all ranks, and what a job compiles itself is neither stored nor reused.
    """


def with_precompile(compile_config: GraphTrainerCompileConfig) -> PrecompileCompileConfig:
    """Return ``compile_config`` with the flags of this package at their defaults."""
    values: dict[str, Any] = {
        f.name: getattr(compile_config, f.name) for f in fields(compile_config)
    }
    return PrecompileCompileConfig(**values)
