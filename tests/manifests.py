"""Valid manifests for tests: a pipeline of equal stages whose parts fit each other.

``make_manifest`` makes one; change it with ``msgspec.structs.replace`` to make it wrong.
"""

from collections.abc import Callable, Mapping

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.environment import Device, Environment
from pp_precompile.contract.key import build_id
from pp_precompile.contract.manifest import FORMAT, Manifest
from pp_precompile.contract.mesh import MeshSpec
from pp_precompile.contract.program import BlobRef, ProgramBlob, ProgramRecord, Role, Value
from pp_precompile.contract.schedule import ScheduleTable
from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import NamedTensor, TensorSpec

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


def make_program(stage: int, role: Role, put: Put = refer) -> ProgramRecord:
    """Return a program whose inputs and outputs are those of a linear layer."""
    weight = Value(kind="parameter", name=_weight(stage), tensor=WEIGHT)
    saved = Value(kind="saved", name="0", tensor=ACTIVATION)
    argument = Value(kind="argument", name="0", tensor=_argument(stage))
    gradient = Value(kind="parameter_gradient", name=_weight(stage), tensor=WEIGHT)
    if role == "forward":
        inputs = [weight, argument]
        outputs = [Value(kind="output", name="0", tensor=ACTIVATION), saved]
    else:
        inputs = [saved, Value(kind="tangent", name="0", tensor=ACTIVATION)]
        outputs = [gradient]
        if stage > 0:
            outputs.append(Value(kind="argument_gradient", name="0", tensor=ACTIVATION))
    return ProgramRecord(
        key=digest_bytes(f"key of {role}, stage {stage}".encode()),
        blob=put(make_blob(stage, role)),
        kernels=0,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
    )


def make_stage(index: int, put: Put = refer) -> StageRecord:
    """Return stage ``index``: one linear layer; stage 0 takes tokens."""
    return StageRecord(
        index=index,
        modules=(f"layers.{index}",),
        arguments=(NamedTensor(name="0", tensor=_argument(index)),),
        keywords=(),
        outputs=(ACTIVATION,),
        parameters=(NamedTensor(name=_weight(index), tensor=WEIGHT),),
        buffers=(),
        programs={
            "forward": make_program(index, "forward", put),
            "backward": make_program(index, "backward", put),
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
    """
    ranks = ranks or stages
    mesh = {"pp": ranks, **(dims or {})}
    known = {"stages": str(stages), "microbatches": str(microbatches), **(factors or {})}
    return Manifest(
        format=FORMAT,
        build_id=build_id(known),
        factors=known,
        environment=environment or make_environment(),
        mesh=MeshSpec(dims=tuple(mesh), sizes=tuple(mesh.values())),
        schedule=make_schedule(stages, ranks, microbatches),
        stages=tuple(make_stage(index, put) for index in range(stages)),
    )


def some_digest(text: str) -> Digest:
    """Return a digest to name something by in a test."""
    return digest_bytes(text.encode())


def _argument(stage: int) -> TensorSpec:
    return TOKENS if stage == 0 else ACTIVATION


def _weight(stage: int) -> str:
    return f"layers.{stage}.weight"
