"""Things in an object's place, of each kind of object, and names that look like paths."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pp_precompile.contract.digest import Digest
from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.program import ProgramEntry
from pp_precompile.store.store import Store
from tests.manifests import make_manifest

MANIFEST = make_manifest(1)
PROGRAM = MANIFEST.stages[0].programs["forward"]
ENTRY = ProgramEntry(key=PROGRAM.key, blob=PROGRAM.blob, kernels=0)

READERS: dict[str, Callable[[Store], Any]] = {
    "blobs": lambda store: store.blobs.get(PROGRAM.blob),
    "builds": lambda store: store.builds.read(MANIFEST.build_id),
}


@pytest.fixture
def filled(store: Store) -> Store:
    make_manifest(1, put=store.blobs.put)
    store.programs.record(ENTRY)
    store.builds.publish(MANIFEST)
    return store


def path_of(store: Store, kind: str) -> Path:
    if kind == "blobs":
        return store.blobs.path(PROGRAM.blob.digest)
    if kind == "builds":
        return store.builds.path(MANIFEST.build_id)
    return store.root / "programs" / ENTRY.key[:2] / f"{ENTRY.key}.msgpack"


def link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(path.with_name("moved"))


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nowhere")


def link_to_a_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def device(path: Path) -> None:
    path.unlink()
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        pytest.skip("only the superuser makes and opens devices here")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    path.unlink()
    os.mknod(path, stat.S_IFSOCK | 0o600)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def everyone(path: Path) -> None:
    path.chmod(0o666)


THINGS = (link, link_to_nothing, link_to_a_device, device, pipe, unix_socket, folder, everyone)


@pytest.mark.parametrize("make", THINGS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("kind", READERS)
def test_nothing_but_a_safe_file_is_read(
    filled: Store, kind: str, make: Callable[[Path], None]
) -> None:
    READERS[kind](filled)
    make(path_of(filled, kind))
    with pytest.raises(PrecompileError) as caught:
        READERS[kind](filled)
    assert caught.value.code == "PPC208"
    assert str(path_of(filled, kind)) in caught.value.message


@pytest.mark.parametrize("make", THINGS, ids=lambda make: make.__name__)
def test_an_entry_of_another_kind_is_no_entry(filled: Store, make: Callable[[Path], None]) -> None:
    """It costs a compilation; there is a warning, and the next writer replaces it."""
    assert filled.programs.find(ENTRY.key) == ENTRY
    make(path_of(filled, "programs"))
    assert filled.programs.find(ENTRY.key) is None


@pytest.mark.parametrize("kind", ["builds", "blobs", "programs"])
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_a_folder_that_everyone_can_write(filled: Store, kind: str, mode: int) -> None:
    path_of(filled, kind).parent.chmod(mode)
    with pytest.raises(PrecompileError) as caught:
        filled.programs.find(ENTRY.key) if kind == "programs" else READERS[kind](filled)
    assert caught.value.code == "PPC208"


NO_DIGESTS = (
    "../../../etc/passwd",
    "/etc/passwd",
    "..",
    "",
    "a" * 63,
    "a" * 63 + "/",
    "a" * 64 + "\n",
    "a" * 64 + "\0",
    "A" * 64,
    "a" * 63 + "é",
    "\uff11" * 64,
)


@pytest.mark.parametrize("text", NO_DIGESTS)
def test_no_path_is_made_of_what_is_no_digest(store: Store, text: str) -> None:
    for path in (store.blobs.path, store.builds.path):
        with pytest.raises(ValueError, match="is not a digest"):
            path(Digest(text))


@pytest.mark.parametrize("text", [text for text in NO_DIGESTS if text])
def test_a_build_is_found_by_its_digits_only(filled: Store, text: str) -> None:
    with pytest.raises(PrecompileError) as caught:
        filled.builds.resolve(text)
    assert caught.value.code == "PPC207"


def test_names_in_a_manifest_are_never_paths(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file that is opened to load such a build lies where its digest says."""
    [stage] = MANIFEST.stages
    name = "../../../../etc/passwd"
    [parameter] = stage.parameters
    hostile = msgspec.structs.replace(
        MANIFEST,
        stages=(
            msgspec.structs.replace(
                stage,
                modules=(name,),
                parameters=(msgspec.structs.replace(parameter, name=name),),
            ),
        ),
    )
    filled.builds.publish(hostile)
    opened: list[str] = []
    real = os.open

    def recorded(path: Any, *args: Any, **options: Any) -> int:
        opened.append(os.fsdecode(path))
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", recorded)
    for ref in filled.builds.read(MANIFEST.build_id).blobs().values():
        filled.blobs.get(ref)
    digests = [MANIFEST.build_id, *(ref.digest for ref in hostile.blobs().values())]
    allowed = {str(filled.root), "builds", "blobs", f"{MANIFEST.build_id}.msgpack"}
    assert set(opened) <= allowed | {d[:2] for d in digests} | set(digests)
    assert f"{MANIFEST.build_id}.msgpack" in opened
