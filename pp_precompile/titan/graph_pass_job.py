"""A job whose programs are graphs that graph_trainer's own passes made and compiled."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import fx, nn

from pp_precompile.contract.environment import Environment
from pp_precompile.contract.program import Role
from pp_precompile.contract.tensor import NamedTensor
from pp_precompile.stage import private_pickler, private_torch
from pp_precompile.stage.describe import describe_state
from pp_precompile.stage.private_torch import BoxedCallable
from pp_precompile.stage.programs import KeyedProgram, StageSource, TracedStage
from pp_precompile.stage.settings import program_factors
from pp_precompile.stage.structure import canonical_graph, program_key
from pp_precompile.stage.traced import TracedProgram
from pp_precompile.titan import private_graph_pp
from pp_precompile.titan.inputs import StageInputs
from pp_precompile.titan.job import Job

_OF_LAST_PASSES = (
    *("enable_passes", "inductor_compilation", "numerics_changing_optim", "disable_passes"),
)
"""Fields of torchtitan's compile section that choose the passes which compile a finished graph; the
others change the graph before, which is in a program's key itself."""


@dataclass(frozen=True, kw_only=True)
class GraphPassJob(Job):
    """A job with the engine ``graph_pp``; its last stage's forward computes the loss."""

    @staticmethod
    def compiler_factors(config: Any, environment: Environment) -> dict[str, str]:
        """Return what steers the compiler, torchtitan's last passes among it."""
        passes = private_graph_pp.for_device(config.compile, environment.device.type)
        with private_graph_pp.settings():
            factors = program_factors(environment)
        return factors | {
            f"graph_pp.{name}": str(getattr(passes, name)) for name in _OF_LAST_PASSES
        }

    @staticmethod
    def loss_arguments(inputs: StageInputs) -> tuple[NamedTensor, ...]:
        """Return labels and count: the last forward makes the prediction itself."""
        return inputs.loss_arguments()[1:]

    def unpack(self, code: bytes) -> BoxedCallable:
        """Make a program callable from the code in its blob, which was verified."""
        return private_pickler.unpack_compiled(code)

    @property
    def _compile_config(self) -> Any:
        return private_graph_pp.for_device(self.config.compile, self.device.type)

    def _stage(
        self, module: nn.Module, index: int, programs: Mapping[Role, TracedProgram]
    ) -> TracedStage:
        parameters, buffers = describe_state(module, device=self.device.type)
        source = StageSource(
            index=index,
            modules=self.split[index],
            module=module,
            arguments=self.inputs.arguments(index),
            keywords=self.inputs.keywords(),
        )
        outputs = [value for value in programs["forward"].outputs if value.kind == "output"]
        return TracedStage(
            source=source,
            outputs=tuple(value.tensor for value in outputs if value.tensor),
            parameters=parameters,
            buffers=buffers,
            programs={role: self._keyed(program) for role, program in programs.items()},
        )

    def _keyed(self, program: TracedProgram) -> KeyedProgram:
        graph = canonical_graph(program.graph)
        graph.meta.clear()
        return KeyedProgram(
            key=program_key(graph, {"engine": "graph_pp", **self.compiler}),
            graph=graph,
            inputs=program.inputs,
            outputs=program.outputs,
            make=partial(_compile, compile_config=self._compile_config),
        )


def _compile(graph: fx.GraphModule, compile_config: Any) -> bytes:
    with private_graph_pp.settings(), private_torch.fresh_graph_ids():
        return private_pickler.pack_compiled(private_graph_pp.compile_graph(graph, compile_config))
