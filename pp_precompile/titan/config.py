"""The flags that turn precompiled stages on, as additions to torchtitan's own configuration."""

from dataclasses import dataclass
from typing import Literal

from torchtitan.config import CompileConfig
from torchtitan.experiments.graph_trainer.configs import GraphTrainerCompileConfig

from pp_precompile.titan.flags import PrecompileFlags, with_flags

Engine = Literal["stage", "graph_pp"]
"""Whose programs run the stages."""


@dataclass(kw_only=True, slots=True)
class PrecompileCompileConfig(PrecompileFlags, GraphTrainerCompileConfig):
    """graph_trainer's compile section with precompiled pipeline stages."""

    precompile_engine: Engine = "stage"
    """
    Whose programs run the stages:
        stage: those of this package, under any schedule and parallelism that it supports.
        graph_pp: torchtitan's GraphPP, and without a pipeline its step graph, with its own passes,
            where torchtitan can run it.
    """


@dataclass(kw_only=True, slots=True)
class CoreCompileConfig(PrecompileFlags, CompileConfig):
    """The core trainer's compile section with precompiled transformer blocks."""


def with_precompile(compile_config: GraphTrainerCompileConfig) -> PrecompileCompileConfig:
    """Return ``compile_config`` with the flags of this package at their defaults."""
    return with_flags(PrecompileCompileConfig, compile_config)
