"""One pipeline stage of a build: its modules, its boundary and its programs."""

from typing import Annotated, Protocol

import msgspec

from pp_precompile.contract.integers import Natural
from pp_precompile.contract.limits import AtMostBlocks, Name
from pp_precompile.contract.program import ProgramRecord, Value
from pp_precompile.contract.tensor import NamedTensor, TensorSpec


class Unit(Protocol):
    """What has programs: a stage as a whole, or one of its blocks."""

    @property
    def arguments(self) -> tuple[NamedTensor, ...]:
        """The positional inputs, in order."""

    @property
    def keywords(self) -> tuple[NamedTensor, ...]:
        """The keyword inputs."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs, in order."""

    @property
    def parameters(self) -> tuple[NamedTensor, ...]:
        """All parameters."""

    @property
    def buffers(self) -> tuple[NamedTensor, ...]:
        """All buffers."""

    @property
    def programs(self) -> dict[str, ProgramRecord]:
        """The programs, by role."""


class BlockRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One block of a stage: a module that runs programs of its own.

    ``name`` is its FQN; parameters and buffers are named from there. They are described as the
    programs take them: whole, in the dtype that is computed in, whatever shards them between calls.
    """

    name: Name
    arguments: tuple[NamedTensor, ...]
    keywords: tuple[NamedTensor, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[NamedTensor, ...]
    buffers: tuple[NamedTensor, ...]
    programs: dict[str, ProgramRecord]

    @property
    def saved(self) -> tuple[Value, ...]:
        """The values that take memory between forward and backward.

        An argument that is passed through is one of them: nobody else keeps it.
        """
        return tuple(
            value
            for value in _saved(self)
            if value.alias is None or value.alias.startswith("argument:")
        )


class StageRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a rank needs to run one stage.

    ``arguments`` are the positional inputs in order (the first is the token ids or the previous
    stage's activation); ``keywords`` the keyword inputs that were there when the stage was traced:
    a different set at run time is refused. ``parameters`` and ``buffers`` describe the live module
    completely, also what the programs do not read.

    ``blocks`` is None for a stage that runs as a whole, by ``programs``. Else the stage has no
    programs, and of its modules the blocks run by theirs, the others eagerly; there may be no block
    among them.
    """

    index: Natural
    modules: tuple[Name, ...]
    arguments: tuple[NamedTensor, ...]
    keywords: tuple[NamedTensor, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[NamedTensor, ...]
    buffers: tuple[NamedTensor, ...]
    programs: dict[str, ProgramRecord]
    blocks: Annotated[tuple[BlockRecord, ...], AtMostBlocks] | None = None

    @property
    def units(self) -> "tuple[StageRecord | BlockRecord, ...]":
        """What has programs: the blocks in the order in which they run, or the stage itself."""
        return (self,) if self.blocks is None else self.blocks

    @property
    def all_programs(self) -> tuple[tuple[str, ProgramRecord], ...]:
        """Every program with what it is called: its role, for a block behind the block's name."""
        own = tuple(self.programs.items())
        of_blocks = (
            (f"{block.name} {role}", program)
            for block in self.blocks or ()
            for role, program in block.programs.items()
        )
        return (*own, *of_blocks)

    @property
    def returns_loss(self) -> bool:
        """Whether the forward takes what the loss takes, and returns the loss."""
        forward = self.programs.get("forward")
        return forward is not None and any(v.kind == "loss_argument" for v in forward.inputs)

    @property
    def saved(self) -> tuple[Value, ...]:
        """The values that take memory between the forward and the backward of a microbatch.

        What modules that run eagerly save is not among them.
        """
        if self.blocks is not None:
            return tuple(value for block in self.blocks for value in block.saved)
        return tuple(value for value in _saved(self) if value.alias is None)

    @property
    def returns_gradients(self) -> bool:
        """Whether the forward returns the parameters' gradients too, so that no backward runs."""
        forward = self.programs.get("forward")
        return forward is not None and any(v.kind == "parameter_gradient" for v in forward.outputs)

    @property
    def saved_bytes(self) -> int:
        """Bytes that one microbatch keeps alive between forward and backward."""
        return sum(value.tensor.nbytes for value in self.saved if value.tensor is not None)


def _saved(unit: Unit) -> tuple[Value, ...]:
    return tuple(value for value in unit.programs["forward"].outputs if value.kind == "saved")
