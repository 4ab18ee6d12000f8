"""Random changes of real manifests: refused, or proven harmless; never another exception."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.schedule import Action, ScheduleTable
from pp_precompile.graph.check import check_build
from pp_precompile.graph.finding import errors
from tests.graph.builds import INTERLEAVED, PP4, Plain, edited, plain, rekeyed
from tests.graph.fakes import with_fake_blobs
from tests.strategies import mutations

DATA: dict[str, bytes] = {}
REAL = tuple(with_fake_blobs(manifest, DATA) for manifest in (PP4, INTERLEAVED))
HOST = PP4.environment


def refused(manifest: Manifest) -> bool:
    def read(ref: Any) -> bytes:
        # A made-up digest is that of no blob: the store would say so.
        return DATA.get(ref.digest, b"")

    return bool(errors(check_build(manifest, host=HOST, read_blob=read)))


def relied_on(manifest: Manifest) -> bytes:
    """What loading and running a build rely on, encoded.

    Left out is what is only for people or for builders, and what the live module is compared with
    at the start of every rank.
    """
    value = plain(manifest)
    # Compared with the host: a warning, and a newer C library fits.
    del value["environment"]["device"]["name"], value["environment"]["libc"]
    for stage in value["stages"]:
        # Compared with the live module, layouts included (PPC103).
        for item in (*stage["parameters"], *stage["buffers"]):
            item["tensor"] = None
        for tensor in stage["outputs"]:
            del tensor["requires_grad"]
        for item in stage["keywords"]:
            del item["tensor"]["requires_grad"]
        for program in stage["programs"].values():
            _strip(program)
    return encode(value)


def _strip(program: Plain) -> None:
    # For builders: a build's programs are found by the digests of their blobs.
    del program["key"]
    for value in (*program["inputs"], *program["outputs"]):
        # For people: what a saved value costs.
        del value["alias"]
        if value["tensor"]:
            # Nothing reads them: torch's own tensors bring their own.
            del value["tensor"]["requires_grad"], value["tensor"]["layout"]
        if value["kind"] == "parameter_gradient":
            # Copied where they are not the parameter's.
            del value["tensor"]["stride"]


@settings(max_examples=200)
@given(mutations(st.sampled_from([manifest.to_bytes() for manifest in REAL])))
def test_changed_bytes_are_refused_or_harmless(data: bytes) -> None:
    try:
        manifest = Manifest.from_bytes(data)
    except CorruptError:
        return
    assert refused(manifest) or relied_on(manifest) in map(relied_on, REAL)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list) and item:
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key)


PATHS = [
    path
    for path in leaves(plain(REAL[0]))
    # Factors are covered by the build id: contract tests that. Here it would be all there is.
    if path[0] not in ("factors", "build_id")
]

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 300),
    st.sampled_from(["", "0", "1F0", "1B9", "float32", "bfloat16", "saved", "layers.1", "tp"]),
    st.just(digest_bytes(b"another")),
)


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@settings(max_examples=200)
@given(path=st.sampled_from(PATHS), new=VALUES, rekey=st.booleans())
def test_a_changed_field_is_refused_or_harmless(
    path: tuple[Any, ...], new: Any, rekey: bool
) -> None:
    value = plain(REAL[0])
    at(value, path[:-1])[path[-1]] = new
    try:
        manifest = Manifest.from_bytes(encode(value))
    except CorruptError:
        return
    if rekey and path[0] == "stages":
        # As a builder with a fault would have written it: the key says the same as the content.
        manifest = rekeyed(manifest)
        assert refused(manifest) or _consistent_elsewhere(path, manifest)
        return
    assert refused(manifest) or relied_on(manifest) == relied_on(REAL[0])


def _consistent_elsewhere(path: tuple[Any, ...], manifest: Manifest) -> bool:
    """A rekeyed build may really be another one: labels of another type come from outside."""
    labels = path[2:5] == ("programs", "loss", "inputs") and "tensor" in path
    return labels or relied_on(manifest) == relied_on(REAL[0])


def runs(schedule: ScheduleTable) -> bool:
    """Run a schedule action by action, as ranks would that wait for what they need."""
    done: set[tuple[int, str, int | None]] = set()
    queues = [[Action.parse(text) for text in texts] for texts in schedule.actions]
    last = schedule.stages - 1
    progress = True
    while progress:
        progress = False
        for queue in queues:
            while queue and _ready(queue[0], done, last):
                action = queue.pop(0)
                done.add((action.stage, action.kind, action.microbatch))
                progress = True
    return not any(queues)


def _ready(action: Action, done: set[tuple[int, str, int | None]], last: int) -> bool:
    stage, mb = action.stage, action.microbatch
    if action.kind == "F":
        return stage == 0 or (stage - 1, "F", mb) in done
    if action.kind == "B":
        return (stage, "F", mb) in done and (stage == last or (stage + 1, "B", mb) in done)
    return True


@settings(max_examples=200)
@given(
    manifest=st.sampled_from([PP4, INTERLEAVED]),
    moves=st.lists(st.tuples(*[st.integers(0, 40)] * 3), min_size=1, max_size=4),
)
def test_a_reordered_schedule_is_refused_exactly_if_it_cannot_run(
    manifest: Manifest, moves: list[tuple[int, int, int]]
) -> None:
    def move(value: Plain) -> None:
        for rank, source, target in moves:
            texts = value["schedule"]["actions"][rank % len(value["schedule"]["actions"])]
            kept = [text for text in texts if not text.endswith("REDUCE_GRAD")]
            kept.insert(target % len(kept), kept.pop(source % len(kept)))
            texts[: len(kept)] = kept

    changed = edited(move, manifest)
    assert refused_schedule(changed) is not runs(changed.schedule)


def refused_schedule(manifest: Manifest) -> bool:
    findings = errors(check_build(manifest))
    assert {finding.code for finding in findings} <= {"PPC522", "PPC524"}
    return bool(findings)


def test_the_real_schedules_run() -> None:
    assert runs(PP4.schedule)
    assert runs(INTERLEAVED.schedule)


def test_real_builds_are_not_refused() -> None:
    assert [refused(manifest) for manifest in REAL] == [False, False]
