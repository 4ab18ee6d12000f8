"""Valid manifests for tests: a pipeline of equal stages whose parts fit each other.

``make_manifest`` makes one; change it with ``msgspec.structs.replace`` to make it wrong.
"""

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.environment import Device, Environment
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import FORMAT, Manifest
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.program import ROLES, BlobRef, ProgramBlob, ProgramRecord, Role, Value
from pp_precompile.contract.schedule import ScheduleTable, parse_actions
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec
from pp_precompile.graph.identity import content_factors
from pp_precompile.graph.roles import role_of

BATCH, SEQUENCE, WIDTH = 1, 8, 4

TOKENS = TensorSpec(shape=(BATCH, SEQUENCE), stride=(SEQUENCE, 1), dtype="int64", device="cpu")
ACTIVATION = TensorSpec(
    shape=(BATCH, SEQUENCE, WIDTH),
    stride=(SEQUENCE * WIDTH, WIDTH, 1),
    dtype="float32",
    device="cpu",
    requires_grad=True,
)
WEIGHT = TensorSpec(
    shape=(WIDTH, WIDTH), stride=(WIDTH, 1), dtype="float32", device="cpu", requires_grad=True
)

GATHERED = msgspec.structs.replace(WEIGHT, dtype="bfloat16", requires_grad=False)
SCALAR = TensorSpec(shape=(), stride=(), dtype="float32", device="cpu")

Put = Callable[[bytes], BlobRef]


def refer(data: bytes) -> BlobRef:
    """Return the reference to ``data`` without storing it anywhere."""
    return BlobRef(digest=digest_bytes(data), size=len(data))


def make_environment() -> Environment:
    """Return a host that exists nowhere."""
    return Environment(
        python="cpython-3.11",
        platform="linux-x86_64",
        libc="glibc-2.36",
        torch="2.14.1",
        torch_record=digest_bytes(b"torch"),
        torchtitan="0.3.0",
        torchtitan_record=digest_bytes(b"torchtitan"),
        triton="",
        pp_precompile="0.1.0",
        pp_precompile_source=digest_bytes(b"source"),
        device=Device(type="cpu", name="a CPU", capability="avx2", features=("avx2", "fma")),
    )


def make_blob(stage: int, role: Role) -> bytes:
    """Return the bytes of a blob that no other stage or role has."""
    return encode(ProgramBlob(code=f"{role} of stage {stage}".encode(), kernels={}))


def make_program(
    stage: int, role: Role, put: Put = refer, *, gather: bool = False
) -> ProgramRecord:
    """Return a program whose inputs and outputs are those of a linear layer.

    Args:
        stage: index of its stage.
        role: what it does there.
        put: stores its blob.
        gather: its parameter is gathered, and its gradient reduced, once a step.
    """
    inputs, outputs = _signature(stage, role, gather)
    return ProgramRecord(
        key=digest_bytes(f"key of {role}, stage {stage}".encode()),
        blob=put(make_blob(stage, role)),
        kernels=0,
        inputs=inputs,
        outputs=outputs,
    )


def _signature(stage: int, role: Role, gather: bool) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    parameter = Value(kind="parameter", name=_weight(stage), tensor=WEIGHT)
    reduced = Value(kind="parameter_gradient", name=_weight(stage), tensor=WEIGHT)
    gathered = Value(kind="unsharded", name=_weight(stage), tensor=GATHERED)
    unreduced = Value(kind="unsharded_gradient", name=_weight(stage), tensor=GATHERED)
    weight, gradient = (gathered, unreduced) if gather else (parameter, reduced)
    argument = Value(kind="argument", name="0", tensor=_argument(stage))
    output = Value(kind="output", name="0", tensor=ACTIVATION)
    saved = Value(kind="saved", name="0", tensor=ACTIVATION)
    tangent = Value(kind="tangent", name="0", tensor=ACTIVATION)
    deferred = Value(kind="deferred", name="0", tensor=ACTIVATION)
    to_argument = Value(kind="argument_gradient", name="0", tensor=ACTIVATION)
    read = (gathered,) if gather else ()
    signatures: dict[Role, tuple[tuple[Value, ...], tuple[Value, ...]]] = {
        "unshard": ((parameter,), (gathered,)),
        "forward": ((weight, argument), (output, saved)),
        "loss": (
            (
                Value(kind="argument", name="0", tensor=ACTIVATION),
                Value(kind="argument", name="1", tensor=TOKENS),
            ),
            (Value(kind="output", name="0", tensor=SCALAR), to_argument),
        ),
        "backward": (
            (*read, saved, tangent),
            (gradient, *((to_argument,) if stage > 0 else ())),
        ),
        "backward_input": ((*read, tangent), (to_argument, deferred)),
        "backward_weight": ((saved, deferred), (gradient,)),
        "reduce_grad": ((unreduced,), (reduced,)),
    }
    return signatures[role]


def make_stage(
    index: int, put: Put = refer, *, kinds: Collection[str] = "FB", gather: bool = False
) -> StageRecord:
    """Return stage ``index``: one linear layer; stage 0 takes tokens.

    Args:
        index: of the stage.
        put: stores its programs' blobs.
        kinds: of the actions that it has programs for.
        gather: has programs that gather its parameter and reduce its gradient.
    """
    roles = {role_of(kind, index > 0, True) for kind in kinds} - {"unshard", "reduce_grad"}
    roles |= {"unshard", "reduce_grad"} if gather else set()
    return StageRecord(
        index=index,
        modules=(f"layers.{index}",),
        arguments=(NamedTensor(name="0", tensor=_argument(index)),),
        keywords=(),
        outputs=(ACTIVATION,),
        parameters=(NamedTensor(name=_weight(index), tensor=WEIGHT),),
        buffers=(),
        programs={
            role: make_program(index, role, put, gather=gather) for role in ROLES if role in roles
        },
    )


def make_schedule(stages: int, ranks: int, microbatches: int) -> ScheduleTable:
    """Return a schedule that runs all forwards, then all backwards; stages in loops over ranks."""
    held = tuple(tuple(range(rank, stages, ranks)) for rank in range(ranks))
    actions = tuple(
        tuple(f"{stage}F{mb}" for stage in mine for mb in range(microbatches))
        + tuple(f"{stage}B{mb}" for stage in reversed(mine) for mb in range(microbatches))
        for mine in held
    )
    return ScheduleTable(
        name="GPipe" if stages == ranks else "LoopedBFS",
        csv=None,
        microbatches=microbatches,
        microbatch_size=BATCH,
        stages_of_rank=held,
        actions=actions,
    )


def make_manifest(
    stages: int = 4,
    *,
    ranks: int | None = None,
    microbatches: int = 4,
    dims: Mapping[str, int] | None = None,
    factors: Mapping[str, str] | None = None,
    environment: Environment | None = None,
    put: Put = refer,
    schedule: ScheduleTable | None = None,
    gather: bool = False,
) -> Manifest:
    """Return a valid manifest.

    Args:
        stages: stages of the pipeline; a multiple of ``ranks``.
        ranks: pipeline ranks; as many as stages if None.
        microbatches: microbatches in a step.
        dims: mesh dimensions inside ``pp`` with their sizes.
        factors: key factors beside ``stages`` and ``microbatches``.
        environment: the host it was built on.
        put: stores each blob's bytes, for example ``store.blobs.put``.
        schedule: instead of one with all forwards first; each stage has programs for its actions,
            and ``stages``, ``ranks`` and ``microbatches`` are those of the schedule.
        gather: each stage gathers its parameter and reduces its gradient once a step.
    """
    ranks = ranks or stages
    schedule = schedule or make_schedule(stages, ranks, microbatches)
    stages, ranks = schedule.stages, len(schedule.stages_of_rank)
    microbatches = schedule.microbatches
    mesh = {"pp": ranks, **(dims or {})}
    known = {"stages": str(stages), "microbatches": str(microbatches), **(factors or {})}
    return Manifest(
        format=FORMAT,
        build_id=build_id(known),
        factors=known,
        environment=environment or make_environment(),
        mesh=MeshSpec(dims=tuple(mesh), sizes=tuple(mesh.values())),
        schedule=schedule,
        stages=tuple(
            make_stage(index, put, kinds=kinds, gather=gather)
            for index, kinds in sorted(_kinds(schedule).items())
        ),
    )


def make_sound(schedule: ScheduleTable, *, put: Put = refer, **options: Any) -> Manifest:
    """Return a manifest for ``schedule`` in which no check finds anything.

    The stages are those of :func:`make_manifest`, which takes ``options``; the first and the last
    have the model's ends as well, the last a loss, and the key factors say what the content says.
    """
    manifest = make_manifest(schedule=schedule, put=put, **options)
    *others, last = manifest.stages
    with_loss = {**last.programs, "loss": make_program(last.index, "loss", put)}
    last = msgspec.structs.replace(
        last, modules=(*last.modules, "norm", "lm_head"), programs=with_loss
    )
    first, *rest = (*others, last)
    first = msgspec.structs.replace(first, modules=("tok_embeddings", *first.modules))
    manifest = msgspec.structs.replace(manifest, stages=(first, *rest))
    factors = content_factors(manifest)
    return msgspec.structs.replace(manifest, factors=factors, build_id=build_id(factors))


def _kinds(schedule: ScheduleTable) -> dict[int, set[str]]:
    """Return the kinds of actions of each stage."""
    kinds: dict[int, set[str]] = {stage: set() for stage in range(schedule.stages)}
    for text in itertools.chain(*schedule.actions):
        for action in parse_actions(text):
            kinds[action.stage].add(action.kind)
    return kinds


def some_digest(text: str) -> Digest:
    """Return a digest to name something by in a test."""
    return digest_bytes(text.encode())


def _argument(stage: int) -> TensorSpec:
    return TOKENS if stage == 0 else ACTIVATION


def _weight(stage: int) -> str:
    return f"layers.{stage}.weight"
