"""Which folder is the store."""

from pathlib import Path

import pytest

from pp_precompile.contract.errors import UsageError
from pp_precompile.store.location import store_location

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
    assert store_location(explicit, dump_folder=dump, environ=environ) == Path(place)


def test_relative_and_home_paths_become_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of/someone")
    assert store_location("a/b", environ={}) == tmp_path / "a" / "b"
    assert store_location(None, dump_folder="out", environ={}) == tmp_path / "out" / "precompile"
    assert store_location("~/store", environ={}) == Path("/home/of/someone/store")


def test_the_real_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PP_PRECOMPILE_DIR", "/set/now")
    assert store_location(None) == Path("/set/now")


@pytest.mark.parametrize("dump", [None, ""])
def test_no_place_at_all_says_how_to_name_one(dump: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        store_location(None, dump_folder=dump, environ={})
    assert (caught.value.code, caught.value.exit_code) == ("PPC001", 2)
    assert "next:     add --compile.precompile_artifact_dir DIR" in str(caught.value)


def test_a_remote_place_is_refused_by_name() -> None:
    with pytest.raises(UsageError) as caught:
        store_location("s3://bucket/store", environ={})
    assert "found:    s3://bucket/store" in str(caught.value)
    assert "the store must be a local folder" in str(caught.value)
