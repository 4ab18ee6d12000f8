"""From a stage's record to callable programs."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pp_precompile.contract import encoding
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import LoadError, PrecompileError, Where
from pp_precompile.contract.program import BlobRef, ProgramBlob, ProgramRecord
from pp_precompile.contract.stage import StageRecord
from pp_precompile.stage import kernels, private_torch
from pp_precompile.stage.counters import counters
from pp_precompile.stage.private_torch import BoxedCallable

ReadBlob = Callable[[BlobRef], bytes]
"""Returns the bytes of a blob after checking their size and digest."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedStage:
    """A stage's record with its programs made callable, by role."""

    record: StageRecord
    programs: Mapping[str, BoxedCallable]


def load_stages(records: Iterable[StageRecord], read: ReadBlob) -> dict[int, LoadedStage]:
    """Load every program of some stages; returns the stages by index.

    A program that several of them share is loaded once: it holds no state of a stage.

    Args:
        records: the stages in the manifest.
        read: returns a blob's bytes, already verified: they hold a pickle and machine code. It is
            called once for each distinct blob.

    Raises:
        StoreError: if a blob is missing or damaged.
        LoadError: PPC303 or PPC305 if verified bytes cannot be made callable.
    """
    loaded: dict[Digest, BoxedCallable] = {}

    def program(record: ProgramRecord, where: Where) -> BoxedCallable:
        digest = record.blob.digest
        if digest not in loaded:
            loaded[digest] = load_program(record, read, where)
        return loaded[digest]

    return {
        stage.index: LoadedStage(
            record=stage,
            programs={
                role: program(record, Where(stage=stage.index, program=role))
                for role, record in stage.programs.items()
            },
        )
        for stage in records
    }


def load_stage(record: StageRecord, read: ReadBlob) -> LoadedStage:
    """Load every program of one stage; see :func:`load_stages`."""
    return load_stages([record], read)[record.index]


def load_program(record: ProgramRecord, read: ReadBlob, where: Where) -> BoxedCallable:
    """Load one program; see :func:`load_stages`."""
    data = read(record.blob)
    blob = encoding.decode(data, ProgramBlob, what=f"blob {record.blob.digest}", code="PPC204")
    try:
        with kernels.serve(blob.kernels):
            program = private_torch.load_artifact(blob.code)
    except PrecompileError:
        raise
    except Exception as error:
        raise LoadError(
            "PPC305",
            f"the stored program could not be loaded: {type(error).__name__}: {error}",
            where=where,
            expected="a program that this torch can load",
            hint="run 'pp-precompile validate' on the store; if it fits, report this",
        ) from error
    counters.loaded += 1
    counters.bytes_loaded += len(data)
    return program
