"""One pipeline stage of a build: its modules, its boundary and its programs."""

import msgspec

from pp_precompile.contract.integers import Natural
from pp_precompile.contract.limits import Name
from pp_precompile.contract.program import ProgramRecord, Value
from pp_precompile.contract.tensor import NamedTensor, TensorSpec


class StageRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a rank needs to run one stage.

    ``arguments`` are the positional inputs in order (the first is the token ids or the previous
    stage's activation); ``keywords`` the keyword inputs that were there when the stage was traced:
    a different set at run time is refused. ``parameters`` and ``buffers`` describe the live module
    completely, also what the programs do not read.
    """

    index: Natural
    modules: tuple[Name, ...]
    arguments: tuple[NamedTensor, ...]
    keywords: tuple[NamedTensor, ...]
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[NamedTensor, ...]
    buffers: tuple[NamedTensor, ...]
    programs: dict[str, ProgramRecord]

    @property
    def saved(self) -> tuple[Value, ...]:
        """The values that take memory between the forward and the backward of a microbatch."""
        outputs = self.programs["forward"].outputs
        return tuple(v for v in outputs if v.kind == "saved" and v.alias is None)

    @property
    def saved_bytes(self) -> int:
        """Bytes that one microbatch keeps alive between forward and backward."""
        return sum(value.tensor.nbytes for value in self.saved if value.tensor is not None)
