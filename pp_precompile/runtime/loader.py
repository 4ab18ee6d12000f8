"""From a stage's record to callable programs."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from pp_precompile.contract import encoding
from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import LoadError, PrecompileError, Where
from pp_precompile.contract.program import BlobRef, ProgramBlob, ProgramRecord
from pp_precompile.contract.stage import BlockRecord, StageRecord
from pp_precompile.graph.parts import Part
from pp_precompile.stage import kernels, private_torch
from pp_precompile.stage.counters import counters
from pp_precompile.stage.private_torch import BoxedCallable

Unpack = Callable[[bytes], BoxedCallable]
"""Makes a program callable from verified bytes: from the code in its blob."""

ReadBlob = Callable[[BlobRef], bytes]
"""Returns the bytes of a blob after checking their size and digest."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LoadedBlock:
    """A block's record with its programs made callable, by role; ``stage`` is its stage."""

    stage: int
    record: BlockRecord
    programs: Mapping[str, BoxedCallable]


@dataclass(frozen=True, kw_only=True)
class LoadedStage:
    """A stage's record with its programs made callable, by role, or those of its blocks."""

    record: StageRecord
    programs: Mapping[str, BoxedCallable]
    blocks: tuple[LoadedBlock, ...] = ()


def load_stages(
    records: Iterable[StageRecord],
    read: ReadBlob,
    unpack: Unpack = private_torch.load_artifact,
) -> dict[int, LoadedStage]:
    """Load every program of some stages; returns the stages by index.

    A program that several of them, or of their blocks, share is loaded once: it holds no state.

    Args:
        records: the stages in the manifest.
        read: returns a blob's bytes, already verified: they hold a pickle and machine code. It is
            called once for each distinct blob.
        unpack: makes the code of a blob callable, with its kernels at hand.

    Raises:
        StoreError: if a blob is missing or damaged.
        LoadError: PPC303 or PPC305 if verified bytes cannot be made callable.
    """
    loaded: dict[Digest, BoxedCallable] = {}

    def program(record: ProgramRecord, where: Where) -> BoxedCallable:
        digest = record.blob.digest
        if digest not in loaded:
            loaded[digest] = load_program(record, read, where, unpack)
        return loaded[digest]

    def programs(part: Part) -> dict[str, BoxedCallable]:
        return {role: program(p, part.at(role)) for role, p in part.record.programs.items()}

    def blocks(stage: StageRecord) -> Iterator[LoadedBlock]:
        for block in stage.blocks or ():
            of_block = programs(Part(stage.index, block))
            yield LoadedBlock(stage=stage.index, record=block, programs=of_block)

    return {
        stage.index: LoadedStage(
            record=stage,
            programs=programs(Part(stage.index, stage)),
            blocks=tuple(blocks(stage)),
        )
        for stage in records
    }


def load_stage(record: StageRecord, read: ReadBlob) -> LoadedStage:
    """Load every program of one stage; see :func:`load_stages`."""
    return load_stages([record], read)[record.index]


def load_program(
    record: ProgramRecord,
    read: ReadBlob,
    where: Where,
    unpack: Unpack = private_torch.load_artifact,
) -> BoxedCallable:
    """Load one program; see :func:`load_stages`."""
    data = read(record.blob)
    blob = encoding.decode(data, ProgramBlob, what=f"blob {record.blob.digest}", code="PPC204")
    try:
        with kernels.serve(blob.kernels):
            program = unpack(blob.code)
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
