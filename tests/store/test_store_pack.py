"""Packed builds: the same bytes for the same build, and nothing believed when unpacking."""

import io
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from pp_precompile.contract.errors import PrecompileError, StoreError, UntrustedError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store.fsck import check_store
from pp_precompile.store.keys import generate, read_private, read_public
from pp_precompile.store.pack import pack, unpack
from pp_precompile.store.store import Store, open_store
from tests.manifests import make_manifest, some_digest

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture
def build(store: Store) -> Manifest:
    manifest = make_manifest(3, put=store.blobs.put)
    store.builds.publish(manifest)
    ref = next(iter(manifest.blobs().values()))
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
    assert store.programs.find(some_digest("k")) is not None
    assert check_store(store).sound
    unpack(packed, store)


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
    assert trusting.builds.ids() == []
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
    "a flipped bit": lambda items: [(items[0][0], items[0][1][:-1] + b"\0"), *items[1:]],
    "no manifest": lambda items: items[:-1],
    "something after the manifest": lambda items: [*items[1:], items[0]],
    "a manifest of another name": lambda items: [
        *items[:-1],
        renamed(f"builds/{some_digest('x')}.msgpack")([items[-1]])[0],
    ],
    "a blob that is missing": lambda items: items[1:],
    "a damaged manifest": lambda items: [*items[:-1], (items[-1][0], items[-1][1][:-1])],
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


def test_files_that_were_cut_off_or_are_something_else(packed: Path, tmp_path: Path) -> None:
    data = packed.read_bytes()
    store = fresh(tmp_path)
    for content in (b"", b"no archive", data[:700], data[: len(data) // 2]):
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
