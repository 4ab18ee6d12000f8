"""Builds: whole or not there, and never another than their name says."""

from pathlib import Path

import msgspec
import pytest

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.encoding import encode
from pp_precompile.contract.errors import CorruptError, MissingBuildError, StoreError
from pp_precompile.contract.manifest import FORMAT, Manifest
from pp_precompile.contract.program import BlobRef
from pp_precompile.store.store import Store
from tests.manifests import make_manifest, some_digest


def published(store: Store, **factors: str) -> Manifest:
    manifest = make_manifest(2, factors=factors, put=store.blobs.put)
    store.builds.publish(manifest)
    return manifest


def manifest_path(store: Store, build_id: str) -> Path:
    return store.root / "builds" / f"{build_id}.msgpack"


def test_what_is_published_is_read(store: Store) -> None:
    one, other = published(store), published(store, lr="1")
    assert store.builds.read(one.build_id) == one
    assert store.builds.read(other.build_id) == other
    assert store.builds.ids() == sorted([one.build_id, other.build_id])
    assert store.builds.path(one.build_id) == manifest_path(store, one.build_id)


def test_every_blob_of_a_published_build_can_be_read(store: Store) -> None:
    for ref in published(store).blobs().values():
        assert len(store.blobs.get(ref)) == ref.size


def test_publishing_again_replaces(store: Store) -> None:
    first = published(store)
    stage = msgspec.structs.replace(first.stages[0], modules=("renamed",))
    second = msgspec.structs.replace(first, stages=(stage, *first.stages[1:]))
    store.builds.publish(second)
    assert store.builds.read(first.build_id) == second
    assert store.builds.ids() == [first.build_id]


@pytest.mark.parametrize("content", [None, b"", b"truncated"])
def test_an_incomplete_build_is_not_published(store: Store, content: bytes | None) -> None:
    manifest = make_manifest(2, put=store.blobs.put)
    ref = manifest.stages[1].programs["backward"].blob
    path = store.blobs.path(ref.digest)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        store.builds.publish(manifest)
    assert caught.value.code == "PPC203"
    assert f"blob {ref.digest} is missing" in str(caught.value)
    assert f"expected: {ref.size} bytes in {path}" in str(caught.value)
    assert store.builds.ids() == []


def test_a_manifest_that_no_reader_would_take_is_not_published(store: Store) -> None:
    manifest = make_manifest(2, put=store.blobs.put)
    wrong = msgspec.structs.replace(manifest, build_id=some_digest("another"))
    with pytest.raises(CorruptError, match="contradicts itself") as caught:
        store.builds.publish(wrong)
    assert "the manifest to publish" in str(caught.value)
    ref = BlobRef(digest=Digest("../../x"), size=1)
    program = msgspec.structs.replace(manifest.stages[0].programs["forward"], blob=ref)
    stage = msgspec.structs.replace(manifest.stages[0], programs={"forward": program})
    hostile = msgspec.structs.replace(manifest, stages=(stage, manifest.stages[1]))
    with pytest.raises(CorruptError, match="regex"):
        store.builds.publish(hostile)
    assert store.builds.ids() == []


def test_a_missing_build_says_what_to_do(store: Store) -> None:
    published(store)
    missing = some_digest("missing")
    with pytest.raises(MissingBuildError) as caught:
        store.builds.read(missing)
    assert (caught.value.code, caught.value.exit_code) == ("PPC101", 1)
    text = str(caught.value)
    assert text.startswith("PPC101: the store has no build for this job")
    assert f"expected: build {missing}" in text
    assert f"found:    1 other builds in {store.root / 'builds'}" in text
    assert "next:     build it with 'pp-precompile build'" in text


def test_swapped_manifests_are_refused(store: Store) -> None:
    one, other = published(store), published(store, lr="1")
    first, second = manifest_path(store, one.build_id), manifest_path(store, other.build_id)
    first_bytes = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(first_bytes)
    for asked, found in ((one, other), (other, one)):
        with pytest.raises(CorruptError) as caught:
            store.builds.read(asked.build_id)
        assert caught.value.code == "PPC205"
        text = str(caught.value)
        assert f"manifest {asked.build_id} is not what its file name says" in text
        assert f"expected: build {asked.build_id}" in text
        assert f"found:    build {found.build_id} in" in text
        assert "it was renamed or swapped" in text


def test_a_renamed_manifest_is_refused(store: Store) -> None:
    manifest = published(store)
    new = some_digest("new name")
    manifest_path(store, manifest.build_id).rename(manifest_path(store, new))
    with pytest.raises(CorruptError, match="PPC205"):
        store.builds.read(new)
    with pytest.raises(MissingBuildError):
        store.builds.read(manifest.build_id)


@pytest.mark.parametrize("size", [0, 1, 100, -1])
def test_a_truncated_manifest_is_damaged(store: Store, size: int) -> None:
    manifest = published(store)
    path = manifest_path(store, manifest.build_id)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptError) as caught:
        store.builds.read(manifest.build_id)
    assert caught.value.code == "PPC205"
    assert f"manifest {manifest.build_id} is not in the stored format" in str(caught.value)
    store.builds.publish(manifest)
    assert store.builds.read(manifest.build_id) == manifest


def test_a_manifest_of_another_format_is_told_from_damage(store: Store) -> None:
    build = some_digest("future")
    manifest_path(store, build).write_bytes(encode({"format": FORMAT + 1}))
    with pytest.raises(CorruptError) as caught:
        store.builds.read(build)
    assert (caught.value.code, caught.value.found) == ("PPC206", f"format {FORMAT + 1}")


def test_a_linked_manifest_is_refused(store: Store, tmp_path: Path) -> None:
    manifest = published(store)
    path = manifest_path(store, manifest.build_id)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorruptError, match="PPC208"):
        store.builds.read(manifest.build_id)


def test_other_files_are_passed_over(store: Store) -> None:
    manifest = published(store)
    folder = store.root / "builds"
    for name in ("README", f".{manifest.build_id}.msgpack.1-2.tmp", str(manifest.build_id)):
        (folder / name).write_bytes(b"")
    assert store.builds.ids() == [manifest.build_id]


def test_a_removed_build_is_gone_and_its_blobs_are_not(store: Store) -> None:
    manifest = published(store)
    store.builds.remove(manifest.build_id)
    store.builds.remove(manifest.build_id)
    assert store.builds.ids() == []
    assert all(store.blobs.has(ref) for ref in manifest.blobs().values())


@pytest.fixture
def three(store: Store) -> tuple[Digest, Digest, Digest]:
    """Three ids, the last two with the same first digit, as file names are enough here."""
    ids = (Digest("1" * 64), Digest("2" * 64), Digest("2" + "3" * 63))
    for build in ids:
        manifest_path(store, build).write_bytes(b"")
    return ids


def test_a_prefix_of_one_build_is_enough(
    store: Store, three: tuple[Digest, Digest, Digest]
) -> None:
    assert store.builds.resolve("1") == three[0]
    assert store.builds.resolve("23") == three[2]
    assert store.builds.resolve(three[1]) == three[1]


def test_a_prefix_of_several_builds_lists_them(
    store: Store, three: tuple[Digest, Digest, Digest]
) -> None:
    with pytest.raises(StoreError) as caught:
        store.builds.resolve("2")
    assert (caught.value.code, caught.value.exit_code) == ("PPC207", 2)
    text = str(caught.value)
    assert "2 builds have an id that starts with '2'" in text
    assert "expected: the first digits of one build's id" in text
    assert three[1] in text
    assert three[2] in text
    assert three[0] not in text
    assert "next:     give more digits" in text


def test_a_prefix_of_no_build_lists_what_there_is(
    store: Store, three: tuple[Digest, Digest, Digest]
) -> None:
    with pytest.raises(StoreError) as caught:
        store.builds.resolve("f")
    text = str(caught.value)
    assert text.startswith("PPC207: no build has an id that starts with 'f'")
    assert all(build in text for build in three)
    assert "'pp-precompile ls STORE' lists the builds" in text


def test_a_long_list_is_cut(store: Store) -> None:
    for number in range(20):
        manifest_path(store, some_digest(str(number))).write_bytes(b"")
    with pytest.raises(StoreError) as caught:
        store.builds.resolve("")
    assert "20 builds in" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 20


def test_an_empty_store_has_no_candidates(store: Store) -> None:
    with pytest.raises(StoreError, match=r"found:    0 builds in \S+builds\n"):
        store.builds.resolve("1")
