"""torchtitan's GraphPP with graphs from a store: its stages, its schedule and its runtime."""

import dataclasses
from typing import Any

import torch
from torch import nn
from torchtitan.tools import utils
from torchtitan.trainer import Trainer

from pp_precompile.runtime.binding import check_module
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.titan import private_graph_pp
from pp_precompile.titan.stored_graphs import StoredGraphProvider
from pp_precompile.titan.trainer import PrecompiledStages


class StoredGraphs(PrecompiledStages):
    """The graphs of this rank's stages, between torchtitan making stages and its first step.

    torchtitan's own function makes the pipeline; what it would ask to trace and compile graphs in
    the first step is exchanged for what the store holds, or what was compiled into it.
    """

    def __init__(self, config: Any) -> None:
        """Check the configuration; see the base class."""
        super().__init__(config)
        self._modules: dict[int, nn.Module] = {}

    def trainer_config(self) -> Any:
        """Return the configuration to build torchtitan's trainer from.

        The loss stays eager: torchtitan calls it once, to learn shapes, and the graphs hold it.
        """
        config = self._config
        spec = dataclasses.replace(config.model_spec, pipelining_fn=self._pipeline)
        compile_config = dataclasses.replace(
            private_graph_pp.for_device(config.compile, utils.device_type),
            components=[name for name in config.compile.components if name != "loss"],
            precompile_artifact_dir="",
        )
        self._given = dataclasses.replace(config, model_spec=spec, compile=compile_config)
        return self._given

    def _pipeline(
        self, model: nn.Module, *, device: torch.device, **arguments: Any
    ) -> tuple[Any, list[nn.Module], bool, bool]:
        """Stand in for torchtitan's pipelining function; the same results."""
        job = self._describe(model, arguments["parallel_dims"], device)
        runtime, parts, has_first, has_last = private_graph_pp.pipeline(
            model, device=device, **arguments
        )
        self._modules = {s.stage_index: s.submod for s in private_graph_pp.stages_of(runtime)}
        acquired = self._acquire(job, self._modules)
        runtime.graph_provider = StoredGraphProvider(acquired.manifest.schedule, acquired.stages)
        return runtime, parts, has_first, has_last

    def attach(self, trainer: Trainer) -> None:
        """Compare the modules, which have their weights by now, with what was compiled.

        Raises:
            StaleBuildError: PPC103 if a module is not the one its stage was compiled for.
        """
        assert self._acquired is not None
        for index, module in self._modules.items():
            stage: LoadedStage = self._acquired.stages[index]
            check_module(module, stage.record)
