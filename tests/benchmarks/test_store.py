"""The store's benchmark at a tiny size, for real: with git, several processes and both stores."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from benchmarks import store, store_git, store_throughput
from benchmarks.process import ROOT
from benchmarks.store_contention import Crowd, Load, Worker
from benchmarks.store_fill import fill
from benchmarks.store_upkeep import names_only
from pp_precompile.store.fsck import check_store
from pp_precompile.store.store import open_store


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a tiny run that leaves its folder empty."""
    monkeypatch.setattr(store, "end_children_when_ended", lambda: None)
    folder = tmp_path / "measured"
    folder.mkdir()
    return ["--quick", "--folder", str(folder), "--json", str(tmp_path / "found.json")]


def test_a_tiny_run_passes_its_checks_and_leaves_nothing(places: list[str], tmp_path: Path) -> None:
    assert store.main([*places, "--repeat", "2"]) == 0
    report = json.loads((tmp_path / "found.json").read_text())
    assert all(report["checks"].values())
    assert all(len(found["samples"]) == 2 for found in report["ratios"].values())
    assert report["upkeep"]["blobs"] == store.QUICK.upkeep
    assert not list((tmp_path / "measured").iterdir())


def test_wrong_bytes_fail_the_run(
    places: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_throughput.CopyWay, "load", lambda _: [b"other"])
    assert store.main([*places, "--repeat", "1"]) == 1
    report = json.loads((tmp_path / "found.json").read_text())
    (failed,) = [what for what, holds in report["checks"].items() if not holds]
    assert "returned the bytes that were published" in failed


def test_an_error_leaves_nothing(
    places: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.store_upkeep, "measure", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.main(places)
    assert not list((tmp_path / "measured").iterdir())


def test_torch_is_not_imported() -> None:
    code = "import sys, benchmarks.store; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize("name", list(store_throughput.WAYS))
def test_every_way_returns_what_it_was_given(name: str, tmp_path: Path) -> None:
    contents = [b"", b"\n" * 70_000, Random(0).randbytes(2**17)]
    paths = [tmp_path / str(number) for number in range(len(contents))]
    for path, data in zip(paths, contents, strict=True):
        path.write_bytes(data)
    way = store_throughput.WAYS[name](tmp_path / "place")
    way.publish(paths)
    assert way.load() == contents


def test_torn_blobs_and_blobs_of_others_are_noticed(tmp_path: Path) -> None:
    place = open_store(tmp_path / "store", create=True)
    one, other = (Worker(place, index, 2, 3, 100, same=False) for index in (0, 1))
    assert (len(list(one.publish())), one.torn, one.glimpses) == (3, 0, 0)
    damaged = place.blobs.path(sorted(place.blobs)[0])
    damaged.write_bytes(damaged.read_bytes()[:50])
    list(other.publish())
    assert (other.torn, other.glimpses) == (1, 3)
    list(one.read())
    assert one.torn == len(list(one.read())) // 3


def test_a_worker_that_ends_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no store")
    crowd = Crowd(load=Load(1, 10, same=False), processes=2)
    with pytest.raises(RuntimeError, match="ended"):
        store.store_contention.measure(crowd, tmp_path / "file")


@pytest.mark.parametrize("blobs", [40, 17, 18])
def test_a_filled_store_is_sound_and_has_so_many_blobs(blobs: int, tmp_path: Path) -> None:
    filled = fill(tmp_path / "store", blobs=blobs, blob_bytes=50)
    health = check_store(filled.store)
    assert health.sound
    assert (health.blobs, health.builds) == (blobs, len(filled.builds))
    needed = filled.needed_by_newest(len(filled.builds))
    assert set(filled.store.blobs) == needed | filled.spare
    assert not needed & filled.spare
    assert filled.needed_by_newest(0) == frozenset()


def test_only_the_damaged_blob_may_be_named(tmp_path: Path) -> None:
    filled = fill(tmp_path / "store", blobs=20, blob_bytes=50)
    first, second = sorted(filled.store.blobs)[:2]
    assert not names_only(check_store(filled.store), first)
    path = filled.store.blobs.path(first)
    path.write_bytes(bytes(50))
    health = check_store(filled.store)
    assert names_only(health, first)
    assert not names_only(health, second)


def test_git_keeps_what_is_committed_and_is_not_reached_by_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    repository = store_git.Repository(tmp_path / "repository", 0)
    paths = [tmp_path / name for name in ("kept", "dropped")]
    for path in paths:
        path.write_text(path.name)
    names = repository.hash_objects(paths)
    repository.commit(names[:1])
    repository.fsck()
    assert repository.count() == 4
    repository.prune()
    assert repository.count() == 3
    repository.gc()
    assert (repository.count(), repository.read(names[:1])) == (3, [b"kept"])
