"""Blobs: what comes out is what went in, or an error that names the fault."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pp_precompile.contract.digest import Digest, digest_bytes
from pp_precompile.contract.encoding import MAX_BYTES
from pp_precompile.contract.errors import CorruptError, StoreError
from pp_precompile.contract.program import BlobRef
from pp_precompile.store import blobs as blobs_module
from pp_precompile.store.blobs import Blobs
from pp_precompile.store.store import Store, open_store
from tests.manifests import refer

DATA = b"a stage program"


@pytest.fixture
def blobs(store: Store) -> Blobs:
    return store.blobs


@given(data=st.binary(max_size=2000))
def test_what_is_put_comes_back(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    blobs = open_store(tmp_path_factory.getbasetemp() / "shared", create=True).blobs
    ref = blobs.put(data)
    assert ref == BlobRef(digest=digest_bytes(data), size=len(data))
    assert blobs.get(ref) == data
    assert blobs.has(ref)


def test_files_lie_where_the_format_says(store: Store) -> None:
    ref = store.blobs.put(DATA)
    path = store.root / "blobs" / ref.digest[:2] / ref.digest
    assert path.read_bytes() == DATA
    assert store.blobs.path(ref.digest) == path


def test_iteration_lists_blobs_in_order_and_nothing_else(blobs: Blobs) -> None:
    assert list(blobs) == []
    refs = [blobs.put(bytes([number])) for number in range(5)]
    folder = blobs.path(refs[0].digest).parent
    (folder / f".{refs[0].digest}.1-2.tmp").write_bytes(b"left over")
    (folder / "README").write_bytes(b"")
    # A digest in the folder of other first digits is not where anyone would look for it.
    (folder / digest_bytes(b"misplaced")).write_bytes(b"")
    (folder.parent / "file").write_bytes(b"")
    assert list(blobs) == sorted(ref.digest for ref in refs)


def test_a_whole_blob_is_kept(blobs: Blobs) -> None:
    path = blobs.path(blobs.put(DATA).digest)
    before = path.stat().st_ino
    assert blobs.put(DATA) == refer(DATA)
    assert path.stat().st_ino == before


def test_a_missing_blob_is_named(blobs: Blobs) -> None:
    ref = refer(DATA)
    assert not blobs.has(ref)
    with pytest.raises(StoreError) as caught:
        blobs.get(ref)
    assert caught.value.code == "PPC203"
    text = str(caught.value)
    assert text.startswith(f"PPC203: blob {ref.digest} is missing")
    assert f"expected: {len(DATA)} bytes in {blobs.path(ref.digest)}" in text
    assert "found:    no such file" in text
    assert "next:     copy stores whole, or build again" in text


DAMAGE = {
    "empty": (b"", "0 bytes in "),
    "truncated": (DATA[:-1], f"{len(DATA) - 1} bytes in "),
    "longer": (DATA + b"!!!", f"at least {len(DATA) + 1} bytes in "),
    "flipped": (b"A" + DATA[1:], f"sha256 {digest_bytes(b'A' + DATA[1:])} in "),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_blob_is_named_and_replaced_by_put(blobs: Blobs, name: str) -> None:
    content, found = DAMAGE[name]
    ref = blobs.put(DATA)
    path = blobs.path(ref.digest)
    path.write_bytes(content)
    with pytest.raises(CorruptError) as caught:
        blobs.get(ref)
    assert caught.value.code == "PPC204"
    text = str(caught.value)
    assert text.startswith(f"PPC204: blob {ref.digest} is damaged")
    assert f"expected: {len(DATA)} bytes with that sha256" in text
    assert f"found:    {found}{path}" in text
    assert "next:     delete that file and build again" in text
    assert blobs.has(ref) == (len(content) == len(DATA))
    assert blobs.put(DATA) == ref
    assert blobs.get(ref) == DATA


def link(path: Path) -> None:
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to(other)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def everyone(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("swap", "found"),
    [(link, "a link, socket or device"), (pipe, "prw"), (everyone, "writable for everyone")],
)
def test_what_is_no_proper_file_is_refused_and_replaced_by_put(
    blobs: Blobs, swap: object, found: str
) -> None:
    ref = blobs.put(DATA)
    path = blobs.path(ref.digest)
    assert callable(swap)
    swap(path)
    with pytest.raises(CorruptError) as caught:
        blobs.get(ref)
    assert caught.value.code == "PPC208"
    text = str(caught.value)
    assert text.startswith(f"PPC208: {path} is not safe to load code from")
    assert found in str(caught.value.found)
    assert "next:     find out who put it there; delete it and build again" in text
    blobs.put(DATA)
    assert blobs.get(ref) == DATA
    assert path.is_file()
    assert not path.is_symlink()


@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.mknod(path, 0o140600)])
def test_a_folder_or_socket_in_the_place_of_a_blob(blobs: Blobs, make: object) -> None:
    path = blobs.path(blobs.put(DATA).digest)
    path.unlink()
    assert callable(make)
    make(path)
    assert not blobs.has(refer(DATA))
    with pytest.raises(CorruptError, match=r"PPC208: .* is not safe to load code from"):
        blobs.get(refer(DATA))


def test_no_more_is_read_than_was_promised(blobs: Blobs) -> None:
    ref = blobs.put(DATA)
    os.truncate(blobs.path(ref.digest), 2**40)
    with pytest.raises(CorruptError, match=f"at least {len(DATA) + 1} bytes"):
        blobs.get(ref)


def test_a_huge_declared_size_is_not_allocated(blobs: Blobs) -> None:
    ref = BlobRef(digest=blobs.put(DATA).digest, size=2**50)
    os.truncate(blobs.path(ref.digest), 2**40)
    with pytest.raises(CorruptError, match=f"declared size of {2**50} bytes, over {MAX_BYTES}"):
        blobs.get(ref)


def test_a_blob_larger_than_the_format_allows(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs_module, "MAX_BYTES", 3)
    blobs.put(b"123")
    with pytest.raises(StoreError) as caught:
        blobs.put(b"1234")
    assert caught.value.code == "PPC202"
    assert "expected: at most 3 bytes" in str(caught.value)
    assert "found:    4 bytes" in str(caught.value)
    assert len(list(blobs)) == 1


def test_the_size_of_the_reference_counts(blobs: Blobs) -> None:
    ref = blobs.put(DATA)
    wrong = BlobRef(digest=ref.digest, size=ref.size - 1)
    assert not blobs.has(wrong)
    with pytest.raises(CorruptError, match="PPC204"):
        blobs.get(wrong)


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "a" * 63 + "/", "A" * 64])
def test_only_digests_become_paths(blobs: Blobs, name: str) -> None:
    for use in (blobs.path, blobs.remove, lambda d: blobs.get(BlobRef(digest=d, size=1))):
        with pytest.raises(ValueError, match="is not a digest"):
            use(Digest(name))


def test_a_removed_blob_is_gone(blobs: Blobs) -> None:
    ref = blobs.put(DATA)
    blobs.remove(ref.digest)
    blobs.remove(ref.digest)
    assert list(blobs) == []
    with pytest.raises(StoreError, match="PPC203"):
        blobs.get(ref)


def test_a_blob_that_is_deleted_while_put_looks_at_it(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Blobs, "has", lambda *_: True)
    assert blobs.get(blobs.put(DATA)) == DATA
