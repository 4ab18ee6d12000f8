"""Which folder is the store."""

import os
import tempfile
from pathlib import Path

import pytest

from pp_precompile.contract.errors import UsageError
from pp_precompile.store.location import cache_folder, is_url, store_location

ENVIRON = {"PP_PRECOMPILE_DIR": "/from/environment"}


@pytest.mark.parametrize(
    ("explicit", "dump", "environ", "place"),
    [
        ("/explicit", "/dump", ENVIRON, "/explicit"),
        (None, "/dump", ENVIRON, "/from/environment"),
        ("", "/dump", ENVIRON, "/from/environment"),
        (None, "/dump", {}, "/dump/precompile"),
        (None, "/dump", {"PP_PRECOMPILE_DIR": ""}, "/dump/precompile"),
        ("/explicit", None, {}, "/explicit"),
    ],
)
def test_the_first_that_is_set_counts(
    explicit: str | None, dump: str | None, environ: dict[str, str], place: str
) -> None:
    assert store_location(explicit, dump_folder=dump, environ=environ) == place


def test_relative_and_home_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of/someone")
    assert store_location("a/b", environ={}) == str(tmp_path / "a" / "b")
    default = str(tmp_path / "out" / "precompile")
    assert store_location(None, dump_folder="out", environ={}) == default
    assert store_location("~/store", environ={}) == "/home/of/someone/store"


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PP_PRECOMPILE_DIR", "/set/now")
    assert store_location(None) == "/set/now"


@pytest.mark.parametrize("dump", [None, ""])
def test_no_place_at_all_says_how_to_name_one(dump: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        store_location(None, dump_folder=dump, environ={})
    assert (caught.value.code, caught.value.exit_code) == ("PPC001", 2)
    assert "next:     add --compile.precompile_artifact_dir DIR" in str(caught.value)


def test_urls_stay_as_they_are_and_files_become_folders() -> None:
    assert store_location("s3://bucket/store", environ={}) == "s3://bucket/store"
    assert store_location(None, environ={"PP_PRECOMPILE_DIR": "gs://b/s"}) == "gs://b/s"
    assert store_location("file:///a/store", environ={}) == "/a/store"
    assert is_url("s3://bucket/store")
    assert not is_url("/a/b")
    assert not is_url(Path("/a/b"))


def test_each_url_has_a_cache_of_its_own_on_this_host(tmp_path: Path) -> None:
    environ = {"HOME": "/home/of/someone"}
    one, other = (cache_folder(f"s3://bucket/{name}", environ) for name in ("a/store", "b/store"))
    assert one != other
    assert one.parent == Path("/home/of/someone/.cache/pp_precompile")
    assert "s3-bucket-a-store" in one.name
    assert cache_folder("s3://bucket/a/store/", environ) == one
    assert cache_folder("s3://b", {**environ, "XDG_CACHE_HOME": "/x"}).parent.parent == Path("/x")
    named = {**environ, "PP_PRECOMPILE_CACHE": str(tmp_path)}
    assert cache_folder("s3://b", named).parent == tmp_path
    without_home = cache_folder("s3://b", {})
    assert without_home.parent == Path(tempfile.gettempdir())
    assert without_home.name.startswith(f"pp_precompile-{os.geteuid()}-s3-b-")
