"""torchtitan's trainer with precompiled stages; without the flag it is graph_trainer's trainer."""

import dataclasses
import itertools
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torchtitan.distributed.pipeline_parallel import pipeline_llm
from torchtitan.experiments.graph_trainer.trainer import GraphTrainer
from torchtitan.observability import structured_logger as sl
from torchtitan.tools import utils
from torchtitan.trainer import Trainer

from pp_precompile.runtime.acquire import Acquired, acquire
from pp_precompile.runtime.agreement import Agreement
from pp_precompile.runtime.loader import LoadedStage
from pp_precompile.runtime.stage_forward import StageForward, install
from pp_precompile.runtime.stored_loss import StoredLoss
from pp_precompile.stage import private_torch
from pp_precompile.stage.boundary import Meshes, distributed
from pp_precompile.stage.counters import counters
from pp_precompile.store.location import store_location
from pp_precompile.titan import private_titan
from pp_precompile.titan.config import PrecompileCompileConfig
from pp_precompile.titan.front_end import describe
from pp_precompile.titan.job import Job
from pp_precompile.titan.phases import Phases
from pp_precompile.titan.schedule import check_microbatches
from pp_precompile.titan.stages import parallel_stage, pipeline_schedule, pipeline_stage
from pp_precompile.titan.start_metrics import start_metrics
from pp_precompile.titan.supported import check_supported

logger = logging.getLogger(__name__)

_trainers = itertools.count()
"""Numbers the trainers of this process, the same on every rank."""


class StoredPrograms:
    """What a trainer of torchtitan's does differently with programs from a store.

    Comes before torchtitan's class among the bases.
    """

    def _stored(self, config: Any) -> "PrecompiledStages":
        """Return what acquires the programs, and puts them in place."""
        return PrecompiledStages(config)

    def _plain(self, config: Any) -> Any:
        """Return the configuration of a run without precompiled programs."""
        return config

    def __init__(self, config: Any) -> None:
        """Build torchtitan's trainer, with the stages' programs acquired on the way."""
        self._stages: PrecompiledStages | None = None
        self.phases = Phases()
        constructed = time.time()
        self.phases.imports = constructed - self.phases.started
        if config.compile.precompile and not config.checkpoint.create_seed_checkpoint:
            self._stages = self._stored(config)
            config = self._stages.trainer_config()
        else:
            config = self._plain(config)
        super().__init__(config)  # type: ignore[call-arg]
        if self._stages is not None:
            self._stages.attach(self)
            self._stages.report(self.phases)
        self.phases.init = time.time() - constructed - self.phases.stages

    def train_step(self, data_iterator: Any) -> None:
        """Run one step and note how long it took."""
        start = time.perf_counter()
        super().train_step(data_iterator)  # type: ignore[misc]
        self.phases.step_done(time.perf_counter() - start)
        if self._stages is not None and len(self.phases.steps) == 1:
            # torchtitan's own call for this step is over; TensorBoard and W&B merge the two.
            logged: Any = self
            logged.metrics_processor.logger.log(start_metrics(self.phases), logged.step)

    def close(self) -> None:
        """Close torchtitan's trainer, and say where the time went."""
        super().close()  # type: ignore[misc]
        if self.phases.steps:
            logger.info("phases: %s", self.phases)
            self.phases.write(torch.distributed.get_rank())


class PrecompileTrainer(StoredPrograms, GraphTrainer):
    """Trains with stage programs from a store; see :class:`PrecompileCompileConfig`."""

    @dataclass(kw_only=True, slots=True)
    class Config(GraphTrainer.Config):
        """graph_trainer's configuration with the flags of this package."""

        compile: PrecompileCompileConfig = field(default_factory=PrecompileCompileConfig)

        def __post_init__(self) -> None:
            """Check what can be checked before any process group exists.

            Raises:
                UsageError: PPC003 for a batch that cannot be cut into microbatches.
                ValueError: for what torchtitan itself refuses.
            """
            parallelism = self.parallelism
            if self.compile.precompile and parallelism.pipeline_parallel_degree > 1:
                size = parallelism.pipeline_parallel_microbatch_size
                check_microbatches(
                    self.training.local_batch_size, size, parallelism.pipeline_parallel_degree
                )
            # slots=True makes a new class, which super() without arguments does not know.
            GraphTrainer.Config.__post_init__(self)

    def _stored(self, config: Any) -> "PrecompiledStages":
        """Return what acquires the programs of the engine that the flags name."""
        return _engine(config)

    def _plain(self, config: Any) -> Any:
        """Return the configuration of a run without precompiled programs."""
        return _with_eager_pipeline(config)

    def forward_backward_step(self, **inputs: Any) -> torch.Tensor:
        """Run one step: the core trainer's own loop calls the stored programs.

        Where a program is the whole step, graph_trainer's calls it.
        """
        if self._stages is None or self._stages.runs_steps:
            return super().forward_backward_step(**inputs)
        return Trainer.forward_backward_step(self, **inputs)


class PrecompiledStages:
    """The stages of this rank, between torchtitan asking for modules and training with them."""

    runs_steps = False
    """Whether a program is a whole step, forward, loss and backward."""

    def __init__(self, config: Any) -> None:
        """Check the configuration.

        Raises:
            PrecompileError: PPC002 for what is not supported, PPC006 for unknown versions.
        """
        private_torch.check_version()
        private_titan.check_version()
        check_supported(config)
        self._config = config
        self._given: Any = None
        self._forwards: dict[int, tuple[nn.Module, StageForward]] = {}
        self._loss: StoredLoss | None = None
        self._acquired: Acquired | None = None

    def trainer_config(self) -> Any:
        """Return the configuration to build torchtitan's trainer from.

        Its model builds precompiled stages; torchtitan compiles nothing and checkpoints no
        activations of its own.
        """
        config = self._config
        spec = dataclasses.replace(
            config.model_spec, parallelize_fn=self._parallelize, pipelining_fn=self._pipeline
        )
        compile_config = dataclasses.replace(config.compile, enable=False)
        self._given = dataclasses.replace(
            config, model_spec=spec, compile=compile_config, activation_checkpoint=None
        )
        return self._given

    def job_config(self) -> Any:
        """Return the configuration that the model was built from, for the job's key.

        torchtitan applies its overrides to what :meth:`trainer_config` gave it, so that is where
        they are found; the model's own functions and what torchtitan shall not do are put back.
        """
        ours, spec = self._config, self._config.model_spec
        functions = {"parallelize_fn": spec.parallelize_fn, "pipelining_fn": spec.pipelining_fn}
        given = dataclasses.replace(self._given.model_spec, **functions)
        return dataclasses.replace(
            self._given,
            model_spec=given,
            compile=ours.compile,
            activation_checkpoint=ours.activation_checkpoint,
        )

    def _parallelize(self, model: nn.Module, **arguments: Any) -> nn.Module:
        """Stand in for the model's parallelize function: a pipeline of one stage."""
        device = utils.get_local_device()
        job = self._describe(model, arguments["parallel_dims"], device)
        module = parallel_stage(job, model, 0, arguments)
        acquired = self._acquire(job, {0: module})
        loss_fn = job.config.loss.build(compile_config=None)
        self._install({0: module}, acquired, loss_fn, job.meshes())
        return module

    def _pipeline(
        self,
        model: nn.Module,
        *,
        device: torch.device,
        model_config: Any,
        parallelize_fn: Any,
        loss_fn: Any,
        **arguments: Any,
    ) -> tuple[Any, list[nn.Module], bool, bool]:
        """Stand in for torchtitan's pipelining function; the same results."""
        parallel_dims = arguments["parallel_dims"]
        job = self._describe(model, parallel_dims, device)
        indices = job.stages_of(parallel_dims.get_mesh("pp").get_local_rank())
        modules = {i: parallel_stage(job, model, i, arguments) for i in indices}
        acquired = self._acquire(job, modules)
        self._install(modules, acquired, loss_fn, job.meshes())
        stages = [
            pipeline_stage(job, module, self._forwards[i][1], acquired.manifest.stages[i])
            for i, module in modules.items()
        ]
        schedule = pipeline_schedule(job, stages, self._loss or loss_fn)
        is_first, is_last = 0 in modules, len(job.split) - 1 in modules
        return schedule, list(modules.values()), is_first, is_last

    def _describe(self, model: nn.Module, parallel_dims: Any, device: torch.device) -> Job:
        return describe(self.job_config(), model=model, parallel_dims=parallel_dims, device=device)

    def _acquire(self, job: Job, modules: dict[int, nn.Module]) -> Acquired:
        compile_config = self._config.compile
        world = torch.distributed
        acquired = acquire(
            job,
            modules,
            location=store_location(
                compile_config.precompile_artifact_dir, dump_folder=self._config.dump_folder
            ),
            policy=compile_config.precompile_policy,
            trusted=compile_config.precompile_trusted_keys,
            span=sl.log_trace_span,
            agreement=Agreement(
                private_torch.default_store(),
                world.get_rank(),
                world.get_world_size(),
                name=f"trainer{next(_trainers)}",
            ),
        )
        _log(acquired)
        self._acquired = acquired
        return acquired

    def _install(
        self, modules: dict[int, nn.Module], acquired: Acquired, loss_fn: Any, meshes: Meshes
    ) -> None:
        last = len(acquired.manifest.stages) - 1
        for index, module in modules.items():
            stage: LoadedStage = acquired.stages[index]
            forward = install(module, stage)
            self._forwards[index] = module, forward
            if index == last:
                layout = stage.record.outputs[0].layout
                wrap = partial(distributed, layout=layout, meshes=meshes)
                self._loss = StoredLoss(stage, forward, loss_fn, wrap)

    def attach(self, trainer: Trainer) -> None:
        """Bind the programs to the modules, which have their weights by now.

        Raises:
            StaleBuildError: PPC103 if a module is not the one its stage was compiled for.
        """
        assert self._acquired is not None
        microbatches = self._acquired.manifest.schedule.microbatches
        for module, forward in self._forwards.values():
            forward.bind(module, microbatches=microbatches)
        if self._loss is not None:
            self._loss.use_eager(trainer.loss_fn)
            trainer.loss_fn = self._loss
            if self._config.validator.enable:
                trainer.validator.loss_fn = self._loss

    def report(self, phases: Phases) -> None:
        """Note how long it took to acquire the stages."""
        if self._acquired is not None:
            phases.agree = self._acquired.agree_seconds
            phases.build = self._acquired.build_seconds
            phases.load = self._acquired.load_seconds


def _engine(config: Any) -> PrecompiledStages:
    if config.compile.precompile_engine == "stage":
        return PrecompiledStages(config)
    from pp_precompile.titan.graph_pp import StoredGraphs
    from pp_precompile.titan.graph_step import StoredStep

    pipeline = config.parallelism.pipeline_parallel_degree > 1
    return StoredGraphs(config) if pipeline else StoredStep(config)


def _with_eager_pipeline(config: Any) -> Any:
    """Run an uncompiled pipeline for ``--compile.mode None``, as graph_trainer does without PP."""
    if config.compile.mode is not None or config.model_spec is None:
        return config
    spec = dataclasses.replace(config.model_spec, pipelining_fn=pipeline_llm)
    return dataclasses.replace(config, model_spec=spec)


def _log(acquired: Acquired) -> None:
    """Say in one line, and in torchtitan's structured log, what was loaded or compiled."""
    sl.log_trace_scalar(
        {
            "precompile_hits": int(not acquired.compiled),
            "precompile_misses": int(acquired.compiled),
            "precompile_programs_loaded": counters.loaded,
            "precompile_programs_compiled": counters.compiled,
            "precompile_bytes_loaded": counters.bytes_loaded,
        }
    )
    how = "compiled and loaded" if acquired.compiled else "loaded"
    logger.info(
        "precompile: %s build %s, stages %s: %d programs, %.2f MiB; agree %.2f s, build %.2f s, "
        "load %.3f s; %d compiled, %d reused",
        how,
        acquired.manifest.build_id[:12],
        sorted(acquired.stages),
        counters.loaded,
        counters.bytes_loaded / 2**20,
        acquired.agree_seconds,
        acquired.build_seconds,
        acquired.load_seconds,
        counters.compiled,
        counters.reused,
    )
