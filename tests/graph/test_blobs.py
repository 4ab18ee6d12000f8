"""Blobs are read through a function; missing, damaged and made-up ones are found by name."""

from collections import Counter

from pp_precompile.contract.errors import StoreError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.contract.program import BlobRef
from pp_precompile.graph.check import check_build
from tests.graph.builds import PP4, edited
from tests.graph.fakes import with_fake_blobs

DATA: dict[str, bytes] = {}
FAKED = with_fake_blobs(PP4, DATA)


def read(ref: BlobRef) -> bytes:
    return DATA[ref.digest]


def test_whole_blobs_are_no_finding_and_are_read_once() -> None:
    reads: Counter[str] = Counter()

    def counting(ref: BlobRef) -> bytes:
        reads[ref.digest] += 1
        return read(ref)

    assert check_build(FAKED, read_blob=counting) == []
    assert set(reads) == set(FAKED.blobs())
    assert set(reads.values()) == {1}


def test_only_the_blobs_that_are_asked_for_are_read() -> None:
    reads: list[str] = []

    def noting(ref: BlobRef) -> bytes:
        reads.append(ref.digest)
        return read(ref)

    check_build(FAKED, read_blob=noting, ranks=[0], stages=[3])
    wanted = (*FAKED.stages[0].programs.values(), *FAKED.stages[3].programs.values())
    assert sorted(reads) == sorted(program.blob.digest for program in wanted)


def test_the_readers_error_becomes_a_finding_for_every_program_that_needs_the_blob() -> None:
    gone = FAKED.stages[1].programs["forward"].blob.digest

    def without(ref: BlobRef) -> bytes:
        if ref.digest == gone:
            raise StoreError("PPC203", "gone", expected="a file", found="none", hint="copy")
        return read(ref)

    findings = check_build(FAKED, read_blob=without)
    # Stages 1 and 2 are alike and share their programs.
    assert [(f.code, f.where.stage, f.where.program) for f in findings] == [
        ("PPC203", 1, "forward"),
        ("PPC203", 2, "forward"),
    ]
    assert (findings[0].message, findings[0].found, findings[0].hint) == ("gone", "none", "copy")


def change(manifest: Manifest, data: bytes) -> list[str]:
    broken = manifest.stages[0].programs["forward"].blob.digest
    findings = check_build(
        manifest, read_blob=lambda ref: data if ref.digest == broken else read(ref)
    )
    assert {(f.where.stage, f.where.program) for f in findings} == {(0, "forward")}
    return [f.code for f in findings]


def test_damaged_bytes_are_found_even_if_the_reader_does_not_look() -> None:
    whole = read(FAKED.stages[0].programs["forward"].blob)
    assert change(FAKED, whole[:-1]) == ["PPC204"]
    assert change(FAKED, whole[:-1] + bytes([whole[-1] ^ 1])) == ["PPC204"]
    assert change(FAKED, b"") == ["PPC204"]


def test_another_number_of_kernels_is_found() -> None:
    def add(value: dict) -> None:  # type: ignore[type-arg]
        value["stages"][0]["programs"]["forward"]["kernels"] += 1

    [finding] = check_build(edited(add, FAKED), read_blob=read)
    kernels = FAKED.stages[0].programs["forward"].kernels
    assert (finding.code, finding.found) == ("PPC204", str(kernels))


def test_bytes_that_hold_no_program_are_found() -> None:
    text = b"not a program"
    data = dict(DATA)
    faked = with_fake_blobs(PP4, data, code=lambda program: text, raw=True)
    codes = {f.code for f in check_build(faked, read_blob=lambda ref: data[ref.digest])}
    assert codes == {"PPC204"}
