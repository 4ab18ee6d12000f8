"""``ls``, ``show``, ``diff``, ``explain`` and the dispatch to them: without torch."""

from pathlib import Path

import msgspec
import pytest

from pp_precompile.cli.main import COMMANDS, main
from pp_precompile.contract.manifest import Manifest, Variant
from pp_precompile.contract.program import ROLES
from pp_precompile.store.store import open_store
from tests.cli.commands import command, filled
from tests.manifests import make_manifest, make_schedule, make_sound
from tests.schedules import table

READING = ("validate", "ls", "show", "diff", "explain")


def test_ls_lists_every_build(tmp_path: Path) -> None:
    _, one, other = filled(tmp_path)
    result = command("ls", tmp_path)
    assert (result.code, result.err, result.heavy) == (0, "", ())
    [line] = [text for text in result.out.splitlines() if one.build_id[:12] in text]
    for text in ("1F1B, 8 microbatches", "pp=4", "9 (7 distinct)", one.environment.torch):
        assert text in line
    document = command("ls", tmp_path, "--json").json
    assert document["schema"] == "pp_precompile.ls/1"
    by_id = {line["build"]: line for line in document["builds"]}
    assert set(by_id) == {one.build_id, other.build_id}
    assert by_id[one.build_id]["bytes"] == sum(ref.size for ref in one.blobs().values())
    assert (by_id[other.build_id]["ranks"], by_id[other.build_id]["stages"]) == (2, 4)


def test_ls_tells_of_damaged_builds_and_lists_the_others(tmp_path: Path) -> None:
    store, one, other = filled(tmp_path)
    store.builds.path(one.build_id).write_bytes(b"\x80")
    result = command("ls", tmp_path, "--json")
    assert result.code == 1
    assert [line["build"] for line in result.json["builds"]] == [other.build_id]
    [broken] = result.json["damaged"]
    assert (broken["build"], broken["finding"]["code"]) == (one.build_id, "PPC205")
    assert f"build {one.build_id[:12]}: PPC205" in result.err


def test_nothing_in_a_build_steers_the_terminal(tmp_path: Path) -> None:
    hostile = {"model.\x1b[2J": "\x1b]0;title\x07", "b": "\x9b31m"}
    store = open_store(tmp_path, create=True)
    for stages in (2, 4):
        store.builds.publish(make_manifest(stages, factors=hostile, put=store.blobs.put))
    one, other = store.builds.ids()
    for name in READING:
        words = {"diff": (one, other), "validate": (), "ls": ()}.get(name, ("--build", one))
        for form in ((), ("--json",)):
            result = command(name, tmp_path, *words, *form)
            assert not {"\x1b", "\x07", "\x9b"} & {*result.out, *result.err}, (name, form)
    assert "\\x1b]0;title\\x07" in command("explain", tmp_path, "--build", one).out
    document = command("explain", tmp_path, "--build", one, "--json").json
    assert hostile.items() <= document["factors"].items()


def test_show_a_build(tmp_path: Path) -> None:
    _, one, _ = filled(tmp_path)
    result = command("show", tmp_path, "--build", one.build_id[:10])
    assert (result.code, result.heavy) == (0, ())
    for text in (one.build_id, one.manifest_id, "layers.5 norm lm_head", "3F0 3B0 3F1 3B1"):
        assert text in result.out


def test_show_a_stage_with_its_calling_conventions(tmp_path: Path) -> None:
    _, one, _ = filled(tmp_path)
    result = command("show", tmp_path, "--build", one.build_id, "--stage", 3)
    assert (result.code, result.heavy) == (0, ())
    for text in (
        "8 = parameter:lm_head.weight",
        "float32[1, 256, 2048]",
        "[524288, 2048, 1]",
        "parameter_gradient",
        f"{one.stages[3].saved_bytes:,} bytes a microbatch",
    ):
        assert text in result.out
    assert "layers.4" not in result.out


def test_show_a_build_with_a_schedule_file_and_programs_of_every_role(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    schedule = table("dualpipev_2x8.csv")
    built = make_sound(schedule, gather=True, put=store.blobs.put)
    store.builds.publish(built)
    shown = command("show", tmp_path).out
    # The loss is a program here, so that overlaps are none.
    made = [role for role in ROLES if role != "overlap"]
    for text in (f"DualPipeV beside the file {str(schedule.csv)[:12]}", "4.0%", *made):
        assert text in shown
    assert "(3F7;0B5)OVERLAP_F_B" in "".join(shown.split())
    stage = command("show", tmp_path, "--stage", 3).out
    for kind in ("unsharded", "deferred", "unsharded_gradient"):
        assert kind in stage


def test_show_a_schedule_that_no_check_would_let_pass(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    schedule = make_schedule(2, 2, 2)
    orders = (("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1"))
    ring = msgspec.structs.replace(schedule, actions=orders)
    store.builds.publish(make_sound(ring, put=store.blobs.put))
    assert "the schedule waits for itself" in command("show", tmp_path).out


def test_show_as_json_is_the_manifest(tmp_path: Path) -> None:
    _, one, _ = filled(tmp_path)
    document = command("show", tmp_path, "--build", one.build_id, "--json").json
    assert document["manifest_id"] == one.manifest_id
    assert [stage["index"] for stage in document["manifest"]["stages"]] == [0, 1, 2, 3]
    assert document["saved_bytes"]["1"] == one.stages[1].saved_bytes
    alone = command("show", tmp_path, "--build", one.build_id, "--stage", 2, "--json").json
    assert [stage["index"] for stage in alone["manifest"]["stages"]] == [2]


def test_show_what_a_rank_takes(tmp_path: Path) -> None:
    store = open_store(tmp_path, create=True)
    plain = make_sound(make_schedule(2, 2, 2), dims={"dp": 2}, put=store.blobs.put)
    first, second = plain.stages
    other = (first, msgspec.structs.replace(second, modules=("layers.9",)))
    store.builds.publish(
        msgspec.structs.replace(plain, variants=(Variant(columns=(1,), stages=other),))
    )
    assert "ranks that are 1 modulo 2 take other programs" in command("show", tmp_path).out
    assert "layers.9" in command("show", tmp_path, "--rank", 3).out
    assert "layers.9" not in command("show", tmp_path, "--rank", 2).out
    ids = {command("show", tmp_path, *w, "--json").json["manifest_id"] for w in ((), ("--rank", 3))}
    assert len(ids) == 1
    beyond = command("show", tmp_path, "--rank", 4)
    assert (beyond.code, beyond.out) == (1, "")
    assert "PPC105" in beyond.err


def test_show_needs_one_build_and_a_stage_of_it(tmp_path: Path) -> None:
    _, one, _ = filled(tmp_path)
    unclear = command("show", tmp_path)
    assert unclear.code == 2
    assert "PPC207: the store holds 2 builds, and this command is about one" in unclear.err
    assert one.build_id in unclear.err
    beyond = command("show", tmp_path, "--build", one.build_id, "--stage", 4)
    assert (beyond.code, beyond.out) == (1, "")
    assert "PPC105" in beyond.err


def differing(one: Manifest, other: Manifest) -> list[str]:
    names = one.factors.keys() | other.factors.keys()
    return sorted(n for n in names if one.factors.get(n) != other.factors.get(n))


def test_diff_names_every_factor(tmp_path: Path) -> None:
    _, one, other = filled(tmp_path)
    result = command("diff", tmp_path, one.build_id[:9], other.build_id[:9])
    assert (result.code, result.err, result.heavy) == (0, "", ())
    names = differing(one, other)
    assert f"{len(names)} factors differ" in result.out
    assert [name for name in names if name not in result.out] == []
    assert "all programs are the same" in result.out
    document = command("diff", tmp_path, one.build_id, other.build_id, "--json").json
    assert [item["factor"] for item in document["factors"]] == names
    assert {"factor": "schedule.name", "a": "1F1B", "b": "Interleaved1F1B"} in document["factors"]
    assert document["programs"] == []


def test_explain_lists_every_factor_with_its_value(tmp_path: Path) -> None:
    _, one, _ = filled(tmp_path)
    result = command("explain", tmp_path, "--build", one.build_id)
    assert (result.code, result.err, result.heavy) == (0, "", ())
    assert f"{len(one.factors)} key factors of build {one.build_id}" in result.out
    document = command("explain", tmp_path, "--build", one.build_id, "--json").json
    assert document["factors"] == one.factors
    assert (document["build"], document["nearest"]) == (one.build_id, None)


@pytest.mark.parametrize("name", READING)
def test_help_says_how_to_call_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: pp-precompile {name} " in capsys.readouterr().out


def test_all_commands_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert [name for name in READING if f"  {name} " not in out] == []
    assert set(READING) <= set(COMMANDS)


@pytest.mark.parametrize("name", ["ls", "show", "diff"])
def test_a_job_is_refused_where_it_means_nothing(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "store", "--", "--debug.seed", "1"]) == 2
    assert "PPC001: this command takes no torchtitan arguments" in capsys.readouterr().err
