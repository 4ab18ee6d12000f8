"""Trace one stage into its programs, and compile those that nobody has compiled before."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import fx, nn

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import Where
from pp_precompile.contract.program import ROLES, ProgramEntry, ProgramRecord, Role, Value
from pp_precompile.contract.stage import BlockRecord, StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph.roles import role_of
from pp_precompile.stage.boundary import Meshes
from pp_precompile.stage.compile import Make, compile_program, to_bytes
from pp_precompile.stage.counters import counters
from pp_precompile.stage.describe import describe_state
from pp_precompile.stage.hoist import hoist
from pp_precompile.stage.memory import NO_CHECKPOINTING, Checkpointing
from pp_precompile.stage.shared_storage import with_shared_storage
from pp_precompile.stage.split_backward import split_backward
from pp_precompile.stage.structure import canonical_graph, program_key
from pp_precompile.stage.trace import trace
from pp_precompile.stage.trace_loss import trace_loss
from pp_precompile.stage.traced import TracedProgram


@dataclass(frozen=True, kw_only=True)
class StageSource:
    """A stage to trace: its module (on meta is enough) and what it will be called with.

    ``loss`` and ``loss_arguments`` belong to the last stage only. ``backward_kinds`` are the kinds
    of the schedule's backward actions for this stage, of B, I and W. ``gather_once`` asks for
    parameters to be gathered and gradients to be reduced once a step, see :mod:`hoist`.
    ``checkpointing`` says which activations the backward computes again, see :mod:`memory`.
    """

    index: int
    modules: tuple[str, ...]
    module: nn.Module
    arguments: tuple[NamedTensor, ...]
    keywords: tuple[NamedTensor, ...]
    loss: nn.Module | None = None
    loss_arguments: tuple[NamedTensor, ...] = ()
    backward_kinds: frozenset[str] = frozenset("B")
    gather_once: bool = False
    checkpointing: Checkpointing = NO_CHECKPOINTING


@dataclass(frozen=True, kw_only=True)
class KeyedProgram:
    """A canonical graph with its key and its calling convention.

    ``make`` compiles it; None stands for Inductor, and the whole graph.
    """

    key: Digest
    graph: fx.GraphModule
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    make: Make | None = None


@dataclass(frozen=True, kw_only=True)
class TracedStage:
    """A stage before compilation; one that runs by ``blocks`` has no programs of its own.

    A block is described as a stage of one module.
    """

    source: StageSource
    outputs: tuple[TensorSpec, ...]
    parameters: tuple[NamedTensor, ...]
    buffers: tuple[NamedTensor, ...]
    programs: Mapping[Role, KeyedProgram]
    blocks: "tuple[TracedStage, ...] | None" = None

    @property
    def keyed(self) -> list[tuple[str, KeyedProgram]]:
        """The programs by name, in the order of use; one that blocks share is there once.

        A block's program is called ``layers.3 forward``, after the first block that has it.
        """
        own = [(str(role), self.programs[role]) for role in ROLES if role in self.programs]
        of_blocks: dict[Digest, tuple[str, KeyedProgram]] = {}
        for block in self.blocks or ():
            for role, program in block.keyed:
                of_blocks.setdefault(program.key, (f"{block.source.modules[0]} {role}", program))
        return [*own, *of_blocks.values()]

    def record(self, entries: Mapping[Digest, ProgramEntry]) -> StageRecord:
        """Return the manifest's record of this stage, given every program's compiled entry.

        Raises:
            KeyError: if a program of the stage is not among ``entries``.
        """
        return StageRecord(
            index=self.source.index,
            modules=self.source.modules,
            arguments=self.source.arguments,
            keywords=self.source.keywords,
            outputs=self.outputs,
            parameters=self.parameters,
            buffers=self.buffers,
            programs=self._programs(entries),
            blocks=None
            if self.blocks is None
            else tuple(block._block_record(entries) for block in self.blocks),
        )

    def _block_record(self, entries: Mapping[Digest, ProgramEntry]) -> BlockRecord:
        [name] = self.source.modules
        return BlockRecord(
            name=name,
            arguments=self.source.arguments,
            keywords=self.source.keywords,
            outputs=self.outputs,
            parameters=self.parameters,
            buffers=self.buffers,
            programs=self._programs(entries),
        )

    def _programs(self, entries: Mapping[Digest, ProgramEntry]) -> dict[str, ProgramRecord]:
        return {
            role: ProgramRecord(
                key=program.key,
                blob=entries[program.key].blob,
                kernels=entries[program.key].kernels,
                inputs=program.inputs,
                outputs=program.outputs,
            )
            for role, program in self.programs.items()
        }


def trace_stage(
    source: StageSource,
    *,
    device: torch.device,
    meshes: Meshes,
    compiler: Mapping[str, str],
) -> TracedStage:
    """Trace ``source`` into canonical, rank-independent graphs with their keys.

    Args:
        source: the stage.
        device: where the programs will run.
        meshes: one-dimensional meshes with names, over which the stage communicates.
        compiler: the factors that steer the compiler (:func:`compile.compiler_factors` and the
            environment's), which are part of every key.

    Raises:
        CompileError: PPC301 if the stage cannot be traced, PPC304 if it is not portable.
    """
    where = Where(stage=source.index)
    traced = trace(
        source.module,
        source.arguments,
        source.keywords,
        device=device,
        meshes=meshes,
        where=where,
        checkpointing=source.checkpointing,
    )
    programs: dict[Role, TracedProgram] = {"forward": traced.forward}
    if traced.backward is not None:
        programs["backward"] = traced.backward
    if source.loss is not None:
        programs["loss"] = trace_loss(
            source.loss, source.loss_arguments, device=device, meshes=meshes, where=where
        )
    if source.gather_once:
        programs = hoist(programs)
    programs["forward"] = with_shared_storage(programs["forward"])
    programs = _for_schedule(programs, source.backward_kinds)
    parameters, buffers = describe_state(source.module, device=device.type)
    return TracedStage(
        source=source,
        outputs=traced.outputs,
        parameters=parameters,
        buffers=buffers,
        programs={role: _keyed(program, compiler) for role, program in programs.items()},
    )


def _for_schedule(
    programs: Mapping[Role, TracedProgram], kinds: Iterable[str]
) -> dict[Role, TracedProgram]:
    """Return the programs that a schedule with these kinds of backward actions runs."""
    result = dict(programs)
    backward = result.pop("backward", None)
    if backward is None:
        return result
    given = {value.kind for value in backward.outputs}
    of_arguments = "argument_gradient" in given
    of_parameters = not given.isdisjoint({"parameter_gradient", "unsharded_gradient"})
    roles = {role_of(kind, of_arguments, of_parameters) for kind in kinds}
    if "backward" in roles:
        result["backward"] = backward
    if "backward_input" in roles:
        result["backward_input"], result["backward_weight"] = split_backward(backward)
    return result


def _keyed(program: TracedProgram, compiler: Mapping[str, str]) -> KeyedProgram:
    graph = canonical_graph(program.graph)
    return KeyedProgram(
        key=program_key(graph, compiler),
        graph=graph,
        inputs=program.inputs,
        outputs=program.outputs,
    )


class ProgramSink(Protocol):
    """Where compiled programs go: the store, or this process's memory."""

    def find(self, key: Digest) -> ProgramEntry | None:
        """Return the entry of a program that is there and whole, or None."""

    def add(self, key: Digest, data: bytes, kernels: int) -> ProgramEntry:
        """Keep a compiled program's bytes under its key."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One program that is done: where it belongs, how long it took, and what it is.

    ``role`` stands behind a block's name where the stage runs by blocks.
    """

    stage: int
    role: str
    seconds: float
    reused: bool
    entry: ProgramEntry


def compile_stages(
    stages: Iterable[TracedStage],
    sink: ProgramSink,
    *,
    started: Callable[[int, str], None] = lambda stage, role: None,
    done: Callable[[Progress], None] = lambda progress: None,
    mine: Callable[[Digest], bool] = lambda key: True,
) -> dict[Digest, ProgramEntry]:
    """Compile every program of ``stages`` that ``sink`` does not have yet.

    Args:
        stages: traced stages, in order.
        sink: finds and keeps compiled programs.
        started: called before a program is looked up or compiled.
        done: called after each program.
        mine: tells by key which programs this process compiles; others are skipped.

    Returns:
        the entries of all programs that were compiled or found.

    Raises:
        CompileError: PPC302 if a program does not compile.
    """
    entries: dict[Digest, ProgramEntry] = {}
    for stage in stages:
        for role, program in stage.keyed:
            if not mine(program.key):
                continue
            started(stage.source.index, role)
            done(_ensure(stage.source.index, role, program, sink, entries))
    return entries


def _ensure(
    stage: int,
    role: str,
    program: KeyedProgram,
    sink: ProgramSink,
    entries: dict[Digest, ProgramEntry],
) -> Progress:
    start = time.perf_counter()
    entry = entries.get(program.key) or sink.find(program.key)
    reused = entry is not None
    if entry is None:
        where = Where(stage=stage, program=role)
        blob = compile_program(program.graph, where, program.make)
        entry = sink.add(program.key, to_bytes(blob), len(blob.kernels))
    else:
        counters.reused += 1
    entries[program.key] = entry
    seconds = time.perf_counter() - start
    return Progress(stage=stage, role=role, seconds=seconds, reused=reused, entry=entry)
