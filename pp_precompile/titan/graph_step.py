"""graph_trainer's step graph from a store, for jobs without a pipeline."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torchtitan.tools import utils
from torchtitan.trainer import Trainer

from pp_precompile.runtime.whole_step import WholeStep
from pp_precompile.titan import private_graph_pp, private_step_graph
from pp_precompile.titan.stages import parallel_stage
from pp_precompile.titan.trainer import PrecompiledStages


class StoredStep(PrecompiledStages):
    """The program of a whole step, between torchtitan making the model and its first step.

    Data loading, accumulation of gradients and all around them are graph_trainer's; what it would
    trace and compile in the first step comes from the store, or was compiled into it.
    """

    runs_steps = True

    def __init__(self, config: Any) -> None:
        """Check the configuration; see the base class."""
        super().__init__(config)
        self._module: nn.Module | None = None

    def trainer_config(self) -> Any:
        """Return the configuration to build torchtitan's trainer from.

        The loss stays eager, for validation: the program has its own.
        """
        config = self._config
        spec = dataclasses.replace(config.model_spec, parallelize_fn=self._parallelize)
        compile_config = dataclasses.replace(
            private_graph_pp.for_device(config.compile, utils.device_type),
            components=[name for name in config.compile.components if name != "loss"],
            precompile_artifact_dir="",
        )
        self._given = dataclasses.replace(config, model_spec=spec, compile=compile_config)
        return self._given

    def _parallelize(self, model: nn.Module, **arguments: Any) -> nn.Module:
        """Stand in for the model's parallelize function."""
        job = self._describe(model, arguments["parallel_dims"], utils.get_local_device())
        self._module = parallel_stage(job, model, 0, arguments)
        self._acquire(job, {0: self._module})
        return self._module

    def attach(self, trainer: Trainer) -> None:
        """Bind the program to the model, which has its weights by now.

        Raises:
            StaleBuildError: PPC103 if it is not the model that the step was compiled for.
        """
        assert self._acquired is not None
        assert self._module is not None
        step = WholeStep(self._acquired.stages[0], self._module)

        def run(
            tokens: torch.Tensor,
            labels: torch.Tensor,
            count: torch.Tensor,
            keywords: Mapping[str, torch.Tensor],
        ) -> torch.Tensor:
            return step((tokens,), keywords, (labels, count))

        private_step_graph.install(trainer, run)
