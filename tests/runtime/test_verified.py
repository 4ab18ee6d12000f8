import pytest

from pp_precompile.contract.digest import digest_bytes
from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.program import BlobRef
from pp_precompile.runtime.verified import VerifiedBlobs

DATA = {
    ref: text for text in (b"one", b"two") for ref in [BlobRef(digest=digest_bytes(text), size=3)]
}
ONE, TWO = DATA


@pytest.fixture
def reads() -> list[BlobRef]:
    """What was read, in order."""
    return []


@pytest.fixture
def blobs(reads: list[BlobRef]) -> VerifiedBlobs:
    def read(ref: BlobRef) -> bytes:
        reads.append(ref)
        return DATA[ref]

    return VerifiedBlobs(read)


def test_what_was_checked_is_loaded_without_another_look(blobs, reads) -> None:
    assert (blobs.check(ONE), blobs.check(ONE), blobs.take(ONE)) == (b"one",) * 3
    assert reads == [ONE]


def test_bytes_are_kept_no_longer_than_until_they_are_taken(blobs, reads) -> None:
    blobs.check(ONE)
    assert blobs.take(ONE) is blobs.take(ONE)
    assert reads == [ONE, ONE]


def test_what_was_not_checked_is_read(blobs, reads) -> None:
    assert blobs.take(TWO) == b"two"
    assert reads == [TWO]


def test_a_blob_that_cannot_be_read_is_asked_for_again() -> None:
    reads: list[BlobRef] = []

    def read(ref: BlobRef) -> bytes:
        reads.append(ref)
        raise StoreError("PPC204", "damaged")

    blobs = VerifiedBlobs(read)
    for method in (blobs.check, blobs.take):
        with pytest.raises(StoreError):
            method(ONE)
    assert reads == [ONE, ONE]
