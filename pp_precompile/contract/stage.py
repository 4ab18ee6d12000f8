"""One pipeline stage of a build: its modules, its boundary and its programs."""

import msgspec

from pp_precompile.contract.integers import Natural
from pp_precompile.contract.limits import Name
from pp_precompile.contract.program import ProgramRecord
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
    def saved_bytes(self) -> int:
        """Bytes that one microbatch keeps alive between forward and backward."""
        forward = self.programs["forward"]
        return sum(
            value.tensor.nbytes
            for value in forward.outputs
            if value.kind == "saved" and value.tensor is not None and value.alias is None
        )
