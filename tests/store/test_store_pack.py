"""Packed builds: the same bytes for the same build, and nothing believed when unpacking."""

import contextlib
import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import PrecompileError, StoreError, UntrustedError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.contract.signature import Signatures
from pp_precompile.store.fsck import check_store
from pp_precompile.store.keys import generate, read_private, read_public
from pp_precompile.store.pack import pack, unpack
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, refer, some_digest

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def build(store: Store) -> Manifest:
    manifest = make_manifest(3, put=store.blobs.put)
    store.builds.publish(manifest)
    ref = next(iter(manifest.blobs().values()))
    # What the index of a store says is its own affair.
    store.programs.record(ProgramEntry(key=some_digest("k"), blob=ref, kernels=0))
    store.blobs.put(b"of another build")
    return manifest


@pytest.fixture
def packed(store: Store, build: Manifest, tmp_path: Path) -> Path:
    assert pack(store, build.build_id, tmp_path / "build.tar") > 0
    return tmp_path / "build.tar"


def fresh(tmp_path: Path) -> Store:
    return open_store(tmp_path / "fresh", create=True)


def test_a_build_comes_back_whole(packed: Path, build: Manifest, tmp_path: Path) -> None:
    store = fresh(tmp_path)
    assert unpack(packed, store) == build
    assert store.builds.read(build.build_id) == build
    assert set(store.blobs) == set(build.blobs())
    assert {key: store.programs.find(key) for key in store.programs} == build.entries()
    assert check_store(store).sound
    unpack(packed, store)


def test_a_program_that_is_known_is_not_replaced_by_one_from_elsewhere(
    packed: Path, build: Manifest, tmp_path: Path
) -> None:
    store = fresh(tmp_path)
    own, damaged, without, *_ = build.entries()
    kept = ProgramEntry(key=own, blob=store.blobs.put(b"built here"), kernels=7)
    store.programs.record(kept)
    store.programs.record(ProgramEntry(key=without, blob=refer(b"nowhere"), kernels=0))
    path = store.root / "programs" / damaged[:2] / f"{damaged}.msgpack"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x80")
    unpack(packed, store)
    found = {key: store.programs.find(key) for key in store.programs}
    assert found == {**build.entries(), own: kept}


def test_any_tar_reads_a_packed_build(packed: Path, build: Manifest) -> None:
    names = [member.name for member, _ in members(packed)]
    assert names[0] == f"builds/{build.build_id}.msgpack"
    assert names[1:] == [f"blobs/{digest[:2]}/{digest}" for digest in sorted(build.blobs())]
    with tarfile.open(packed) as archive:
        assert all(m.isreg() and (m.mode, m.mtime, m.uid) == (0o644, 0, 0) for m in archive)
    again = packed.with_name("by tarfile")
    write(again, members(packed))
    assert again.read_bytes() == packed.read_bytes()


def test_one_build_gives_one_sequence_of_bytes(
    packed: Path, build: Manifest, tmp_path: Path
) -> None:
    store = fresh(tmp_path)
    unpack(packed, store)
    pack(store, build.build_id, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == packed.read_bytes()


def test_signatures_travel_and_are_asked_for(
    store: Store, build: Manifest, packed: Path, tmp_path: Path
) -> None:
    generate(tmp_path / "key")
    keys = read_public([tmp_path / "key.pub"])
    trusting = open_store(tmp_path / "fresh", create=True, trusted=keys)
    with pytest.raises(UntrustedError, match="PPC209"):
        unpack(packed, trusting)
    assert (trusting.builds.ids(), list(trusting.blobs)) == ([], [])
    data = store.builds.raw(build.build_id)
    store.builds.signatures.add(build.build_id, data, read_private(tmp_path / "key"))
    pack(store, build.build_id, packed)
    unpack(packed, trusting)
    assert trusting.builds.read(build.build_id) == build


def members(path: Path) -> list[Member]:
    with tarfile.open(path) as archive:
        return [(m, archive.extractfile(m).read()) for m in archive]  # type: ignore[union-attr]


def write(path: Path, items: Sequence[Member]) -> None:
    with tarfile.open(path, "w") as archive:
        for member, data in items:
            member.size = len(data) if member.isreg() else 0
            archive.addfile(member, io.BytesIO(data))


def renamed(name: str, **fields: object) -> Callable[[list[Member]], list[Member]]:
    def change(items: list[Member]) -> list[Member]:
        member, data = items[0]
        member.name = name
        for field, value in fields.items():
            setattr(member, field, value)
        return [(member, data), *items[1:]]

    return change


CHANGES: dict[str, Callable[[list[Member]], list[Member]]] = {
    "a path out of the store": renamed("../../etc/passwd"),
    "an absolute path": renamed("/etc/passwd"),
    "a path out of the store in a digest's place": renamed("blobs/../../x"),
    "another folder": renamed("blobs/zz/" + some_digest("x")),
    "a link": renamed("blobs/ab/x", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a device": renamed("blobs/ab/x", type=tarfile.CHRTYPE),
    "a folder": renamed("blobs", type=tarfile.DIRTYPE),
    "a flipped bit": lambda items: [*items[:-1], (items[-1][0], items[-1][1][:-1] + b"\0")],
    "no manifest": lambda items: items[1:],
    "something before the manifest": lambda items: [items[1], items[0], *items[2:]],
    "something after the last blob": lambda items: [*items, items[-1]],
    "a manifest of another name": renamed(f"builds/{some_digest('x')}.msgpack"),
    "a blob that is missing": lambda items: items[:-1],
    "another order": lambda items: [items[0], items[2], items[1], *items[3:]],
    "a blob that no manifest names": lambda items: [
        *items,
        (tarfile.TarInfo(f"blobs/ff/{'f' * 64}"), b"x"),
    ],
    "a blob that is larger": lambda items: [*items[:-1], (items[-1][0], items[-1][1] + b"x")],
    "a damaged manifest": lambda items: [(items[0][0], items[0][1][:-1]), *items[1:]],
    "signatures of another build": lambda items: [
        (tarfile.TarInfo(f"builds/{some_digest('x')}.sig"), encode(Signatures(signatures=()))),
        *items,
    ],
    "headers that nobody writes": renamed("blobs/ab/x", pax_headers={"GNU.sparse.size": "abc"}),
    "a map of a sparse file": renamed("blobs/ab/x", pax_headers={"GNU.sparse.map": "x,y"}),
    "a sparse file's version": renamed("blobs/ab/x", pax_headers={"GNU.sparse.major": "1"}),
    "a comment": lambda items: renamed(items[0][0].name, pax_headers={"comment": "x"})(items),
    "a long name": renamed("blobs/" + "x" * 300),
    "a time": lambda items: renamed(items[0][0].name, mtime=1)(items),
    "an owner": lambda items: renamed(items[0][0].name, uname="root")(items),
    "a mode": lambda items: renamed(items[0][0].name, mode=0o4755)(items),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_refused(packed: Path, tmp_path: Path, name: str) -> None:
    write(packed, CHANGES[name](members(packed)))
    store = fresh(tmp_path)
    with pytest.raises(PrecompileError) as caught:
        unpack(packed, store)
    assert caught.value.code in ("PPC213", "PPC203", "PPC205"), name
    assert store.builds.ids() == []
    assert check_store(store).sound
    assert not (tmp_path / "etc").exists()


def test_a_sparse_member_is_refused_before_anything_is_written(
    packed: Path, build: Manifest, tmp_path: Path
) -> None:
    """A few bytes that stand for many: with a map as GNU's tar writes it, and as pax does."""
    digest = min(build.blobs())
    member = tarfile.TarInfo(f"blobs/{digest[:2]}/{digest}")
    member.type = tarfile.GNUTYPE_SPARSE
    old = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    old[386:410] = b"%011o\0%011o\0" % (0, 0)
    old[483:495] = b"%011o\0" % (200 << 20)
    old[148:156] = b"%06o\0 " % (sum(old[:148]) + sum(old[156:]) + 8 * 32)
    head = packed.read_bytes()[: 512 + -(-len(build.to_bytes()) // 512) * 512]
    packed.write_bytes(head + bytes(old) + bytes(1024))
    with tarfile.open(packed) as archive:
        assert [m.size for m in archive][1:] == [200 << 20]
    store = fresh(tmp_path)
    with pytest.raises(PrecompileError, match="PPC213"):
        unpack(packed, store)
    assert (store.builds.ids(), list(store.blobs)) == ([], [])


@given(st.data())
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_raise_anything_else(packed: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(packed.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1) | st.integers(0, 1023))
        content[place] = data.draw(st.integers(0, 255))
    changed = tmp_path / "changed.tar"
    changed.write_bytes(content)
    with contextlib.suppress(PrecompileError):
        unpack(changed, fresh(tmp_path))


def test_files_that_were_cut_off_or_are_something_else(packed: Path, tmp_path: Path) -> None:
    data = packed.read_bytes()
    store = fresh(tmp_path)
    padded = data[:-1] + b"x"
    for content in (b"", b"no archive", data[:700], data[: len(data) // 2], data[:-1], padded):
        packed.write_bytes(content)
        with pytest.raises(PrecompileError) as caught:
            unpack(packed, store)
        assert caught.value.code == "PPC213"
    assert store.builds.ids() == []
    with pytest.raises(StoreError, match="PPC201"):
        unpack(tmp_path / "missing.tar", store)


def test_a_failed_pack_keeps_the_file_that_was_there(
    store: Store, build: Manifest, packed: Path
) -> None:
    before = packed.read_bytes()
    store.blobs.path(max(build.blobs())).unlink()
    with pytest.raises(StoreError, match="PPC203"):
        pack(store, build.build_id, packed)
    assert packed.read_bytes() == before
    assert list(packed.parent.glob(".*.tmp")) == []
    with pytest.raises(StoreError, match="PPC202"):
        pack(store, build.build_id, packed.parent / "missing" / "x.tar")
