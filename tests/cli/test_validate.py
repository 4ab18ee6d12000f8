"""``validate``: exit codes, verdicts and texts, and its JSON against docs/validate.md."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pp_precompile.contract.errors import CODES
from pp_precompile.store.store import open_store
from tests.cli.commands import command, filled
from tests.graph.builds import rekeyed
from tests.pages import quoted, tables


def test_builds_that_fit(tmp_path: Path) -> None:
    _, one, other = filled(tmp_path)
    result = command("validate", tmp_path)
    assert (result.code, result.err, result.heavy) == (0, "", ())
    for build in (one, other):
        assert f"build {build.build_id}: {build.schedule.name}" in result.out
    assert result.out.count(" fits ") == 10
    assert "tok_embeddings layers.0" in result.out


def test_a_damaged_blob_is_named_with_stage_and_program(tmp_path: Path) -> None:
    store, one, _ = filled(tmp_path)
    path = store.blobs.path(one.stages[3].programs["loss"].blob.digest)
    path.write_bytes(path.read_bytes()[:-1])
    result = command("validate", tmp_path, "--build", one.build_id[:8])
    assert (result.code, result.heavy) == (1, ())
    assert "PPC204: blob " in result.err
    assert "(stage 3, program loss)" in result.err
    [verdicts] = [line for line in result.out.splitlines() if "norm lm_head" in line]
    assert "refused PPC204" in verdicts
    assert result.out.count(" fits ") == 3


def test_stage_and_rank_choose_what_is_read(tmp_path: Path) -> None:
    store, one, _ = filled(tmp_path)
    os.unlink(store.blobs.path(one.stages[3].programs["loss"].blob.digest))
    chosen = command("validate", tmp_path, "--build", one.build_id, "--stage", 0, "--rank", 1)
    assert chosen.code == 0
    assert [line for line in chosen.out.splitlines() if "lm_head" in line] == []
    whole = command("validate", tmp_path, "--build", one.build_id, "--rank", 3)
    assert whole.code == 1
    assert "PPC203" in whole.err


@pytest.mark.parametrize(
    ("option", "value", "code"), [("--stage", 4, "PPC105"), ("--rank", 4, "PPC533")]
)
def test_stages_and_ranks_that_are_not_there(
    tmp_path: Path, option: str, value: int, code: str
) -> None:
    _, one, _ = filled(tmp_path)
    result = command("validate", tmp_path, "--build", one.build_id, option, value)
    assert result.code == 1
    assert code in result.err


def test_a_build_for_another_host_names_what_differs(tmp_path: Path) -> None:
    store, one, _ = filled(tmp_path)
    elsewhere = msgspec.structs.replace(one.environment, torch="2.13.0")
    other = rekeyed(msgspec.structs.replace(one, environment=elsewhere))
    store.builds.publish(other)
    result = command("validate", tmp_path, "--build", other.build_id)
    assert result.code == 1
    assert "PPC102: the build was made for another host (field environment.torch)" in result.err
    assert "expected: 2.13.0" in result.err


def test_a_damaged_manifest_does_not_hide_the_other_builds(tmp_path: Path) -> None:
    store, one, other = filled(tmp_path)
    path = store.builds.path(one.build_id)
    path.write_bytes(path.read_bytes()[:-1])
    result = command("validate", tmp_path)
    assert result.code == 1
    assert f"build {one.build_id[:12]}: PPC205" in result.err
    assert f"build {other.build_id}: Interleaved1F1B" in result.out


USAGE = {
    "no store": ((), "PPC001: the following arguments are required: STORE"),
    "unknown option": (("STORE", "--fast"), "PPC001: unrecognized arguments: --fast"),
    "no number": (("STORE", "--stage", "x"), "PPC001: argument --stage: invalid int value: 'x'"),
    "no such store": (("nowhere/store",), "PPC201"),
    "no such build": (("STORE", "--build", "zz"), "PPC207: no build has an id that starts with"),
    "an unknown kind of URL": (
        ("nothing://store",),
        "PPC001: the store's URL cannot be used: nothing",
    ),
}


@pytest.mark.parametrize("name", USAGE)
def test_usage_faults_end_with_2_and_one_message(tmp_path: Path, name: str) -> None:
    filled(tmp_path)
    arguments, text = USAGE[name]
    result = command("validate", *(tmp_path if a == "STORE" else a for a in arguments))
    assert (result.code, result.out, result.heavy) == (2, "", ())
    assert result.err.startswith(text)


def test_an_empty_store_is_a_usage_fault(tmp_path: Path) -> None:
    open_store(tmp_path, create=True)
    result = command("validate", tmp_path)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("PPC207: the store holds no build")


SCHEMA = {heading: {r[0]: r[1] for r in rows[1:]} for heading, rows in tables("validate.md")}

_PLAIN = {"string": str, "integer": int, "boolean": bool}


def conforms(value: Any, kind: str) -> bool:
    """Tell whether a JSON value is of a type that the page describes."""
    if kind.endswith(" or null"):
        return value is None or conforms(value, kind.removesuffix(" or null"))
    if kind.startswith("["):
        return isinstance(value, list) and all(conforms(item, kind[1:-1]) for item in value)
    if kind in _PLAIN:
        return type(value) is _PLAIN[kind]
    fields = SCHEMA[kind]
    return value.keys() == fields.keys() and all(
        conforms(value[name], fields[name]) for name in fields
    )


def test_json_is_one_document_as_the_page_says(tmp_path: Path) -> None:
    store, one, other = filled(tmp_path)
    os.unlink(store.blobs.path(one.stages[3].programs["loss"].blob.digest))
    store.builds.path(other.build_id).write_bytes(b"")
    result = command("validate", tmp_path, "--json")
    assert (result.code, result.heavy) == (1, ())
    document = result.json
    assert conforms(document, "Document")
    assert document["schema"] == "pp_precompile.validate/1"
    assert (document["fits"], document["job"]) == (False, None)
    by_id = {build["build"]: build for build in document["builds"]}
    assert [f["code"] for f in by_id[other.build_id]["findings"]] == ["PPC205"]
    assert by_id[other.build_id]["stages"] == []
    stages = by_id[one.build_id]["stages"]
    assert [s["verdict"] for s in stages] == ["fits", "fits", "fits", "refused"]
    assert stages[3]["codes"] == ["PPC203"]
    assert [s["saved_bytes"] for s in stages] == [s.saved_bytes for s in one.stages]


def test_a_wrong_document_does_not_conform() -> None:
    assert not conforms({}, "Document")
    assert not conforms({"stage": "0", "rank": None, "program": None, "field": None}, "Where")
    assert not conforms([1], "[string]")
    assert not conforms(True, "integer")


def test_the_page_lists_every_code_that_checks_use() -> None:
    [rows] = [rows for heading, rows in tables("validate.md") if heading == "What is checked"]
    listed = [code for row in rows[1:] for code in quoted(row[1])]
    assert len(set(listed)) == len(listed)
    assert {code for code in CODES if code[3] in "56"} <= set(listed) <= set(CODES)
