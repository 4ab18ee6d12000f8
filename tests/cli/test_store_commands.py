"""The commands that care for a store, copy builds and sign them: all without torch."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pp_precompile.cli.main import main
from pp_precompile.store.store import open_store
from tests.cli.commands import Result, command, filled


def test_a_store_s_life(tmp_path: Path) -> None:
    """One after the other, as a user would: each command's result is the next one's input."""
    store, one, other = filled(tmp_path / "store")

    def run(name: str, *arguments: object, code: int = 0) -> Result:
        result = command(name, *arguments)
        assert result.code == code, result.out + result.err
        assert result.heavy == ()
        return result

    assert "sound" in run("fsck", store.root).out
    blobs = len({*one.blobs(), *other.blobs()})
    assert run("fsck", store.root, "--json").json["blobs"] == blobs

    copied = run("push", store.root, tmp_path / "away", "--json").json
    assert (copied["schema"], copied["sent"]) == ("pp_precompile.copy/1", blobs)
    assert "sent 0, 0 bytes" in run("push", store.root, tmp_path / "away").out
    chosen = run("pull", tmp_path / "back", tmp_path / "away", "--build", one.build_id[:12])
    assert f"build {one.build_id[:12]} is in {tmp_path / 'back'}" in chosen.out
    assert open_store(tmp_path / "back", create=False).builds.ids() == [one.build_id]

    key = run("keygen", tmp_path / "key", "--json").json["key"]
    public = tmp_path / "key.pub"
    trusted = ("--trusted-keys", public)
    refused = run("verify", store.root, *trusted, code=1)
    assert refused.err.count("PPC209") == 2
    signed = run("sign", store.root, "--key", tmp_path / "key", "--build", one.build_id)
    assert f"signed by key {key[:12]}" in signed.out
    lines = run("verify", store.root, *trusted, "--json", code=1).json["builds"]
    assert {line["build"]: line["key"] for line in lines} == {
        one.build_id: key,
        other.build_id: None,
    }
    assert run("verify", store.root, "--build", one.build_id, *trusted).code == 0
    _only_the_signed_one_is_read(run, store.root, one.build_id, other.build_id, trusted)

    packed = tmp_path / "build.tar"
    run("pack", store.root, packed, "--build", one.build_id)
    unpacked = run("unpack", tmp_path / "unpacked", packed, *trusted, "--json")
    assert unpacked.json["build"] == one.build_id
    assert "PPC209" in run("unpack", tmp_path / "x", _other(tmp_path, packed), *trusted, code=1).err
    run("validate", tmp_path / "unpacked")

    usage = run("du", store.root, "--json").json
    files = sum(path.stat().st_size for path in store.root.rglob("*") if path.is_file())
    assert usage["total_bytes"] == files
    assert "own bytes" in run("du", store.root).out
    run("pin", store.root, one.build_id[:12])
    assert run("pin", store.root, "--json").json["pins"] == [one.build_id]
    planned = run("gc", store.root, "--newest", 0, "--dry-run", "--json").json
    assert planned["builds"] == [other.build_id]
    swept = run("gc", store.root, "--newest", 0, "--grace-hours", 0)
    assert f"deleted build {other.build_id[:12]}" in swept.out
    assert store.builds.ids() == [one.build_id]
    assert run("pin", store.root, one.build_id, "--remove").out == "no build is pinned\n"
    assert "sound" in run("fsck", store.root).out


def _only_the_signed_one_is_read(
    run: Callable[..., Result], store: Path, signed: str, unsigned: str, trusted: tuple[object, ...]
) -> None:
    """Every command that shows a build refuses the one that no trusted key signed."""
    assert run("ls", store, "--json").json["builds"][0]["build"] in (signed, unsigned)
    listed = run("ls", store, *trusted, "--json", code=1)
    assert [line["build"] for line in listed.json["builds"]] == [signed]
    for name in ("show", "validate", "explain"):
        run(name, store, "--build", signed, *trusted)
        refused = run(name, store, "--build", unsigned, *trusted, code=1)
        assert "PPC209" in refused.err + refused.out, name
    run("diff", store, signed, unsigned)
    assert "PPC209" in run("diff", store, signed, unsigned, *trusted, code=1).err


def _other(folder: Path, packed: Path) -> Path:
    """A packed build that nobody signed."""
    command("unpack", folder / "plain", packed)
    for path in (folder / "plain" / "builds").glob("*.sig"):
        path.unlink()
    command("pack", folder / "plain", folder / "unsigned.tar")
    return folder / "unsigned.tar"


def test_fsck_names_what_is_damaged(tmp_path: Path) -> None:
    store, one, _ = filled(tmp_path)
    digest = next(iter(one.blobs()))
    store.blobs.path(digest).write_bytes(b"")
    result = command("fsck", tmp_path)
    assert result.code == 1
    assert "PPC204" in result.err
    assert digest in result.err
    assert "faults" in result.out


def test_push_verifies_what_is_there_when_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PP_PRECOMPILE_CACHE", str(tmp_path / "cache"))
    _, one, _ = filled(tmp_path / "store")
    away = f"local://{tmp_path}/away"
    command("push", tmp_path / "store", away)
    [blob] = (tmp_path / "away").rglob(min(one.blobs()))
    data = blob.read_bytes()
    blob.write_bytes(data[:-1] + b"?")
    assert command("fsck", away).code == 1
    assert "sent 0, 0 bytes" in command("push", tmp_path / "store", away).out
    done = command("push", tmp_path / "store", away, "--verify")
    assert f"sent 1, {len(data):,} bytes" in done.out
    assert blob.read_bytes() == data
    assert command("fsck", away).code == 0


def test_gc_says_what_stays_for_now(tmp_path: Path) -> None:
    filled(tmp_path)
    result = command("gc", tmp_path, "--days", 0)
    assert result.code == 0
    assert "deleted 2 builds, 0 program entries, 0 blobs" in result.out
    assert "stay for their time of grace" in result.out


@pytest.mark.parametrize(
    "words",
    [
        ["gc", "STORE", "--newest", "-1"],
        ["gc", "STORE", "--newest", "1.5"],
        ["gc", "STORE", "--days", "soon"],
        ["gc", "STORE", "--grace-hours", "nan"],
        ["push", "STORE"],
        ["push", "STORE", "TARGET", "--jobs", "0"],
        ["pack", "STORE"],
        ["keygen"],
        ["sign", "STORE"],
        ["verify", "STORE"],
    ],
)
def test_wrong_usage(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    filled(tmp_path / "STORE")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "PPC001" in error
    assert f"pp-precompile {words[0]} --help" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["STORE"]


def test_a_private_key_is_not_taken_for_a_public_one(tmp_path: Path) -> None:
    filled(tmp_path / "store")
    command("keygen", tmp_path / "key")
    result = command("verify", tmp_path / "store", "--trusted-keys", tmp_path / "key")
    assert (result.code, "PPC212" in result.err) == (2, True)
