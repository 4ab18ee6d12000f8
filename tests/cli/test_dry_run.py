"""``build --dry-run``: tables and a document about a build that is not made."""

from pathlib import Path

import pytest

from pp_precompile.cli.dry_run import document, print_plan, shortened
from pp_precompile.contract.errors import StoreError
from pp_precompile.graph.plan import plan_of
from pp_precompile.store.store import existing_store, open_store
from tests.cli.commands import command
from tests.graph.builds import PP4

JOB = ("--module", "tests.cli.jobs", "--config", "llama3_one_layer", "--compile.precompile")


def test_a_dry_run_plans_a_build_and_writes_nothing(tmp_path: Path) -> None:
    places = ("--compile.precompile_artifact_dir", tmp_path / "s", "--dump_folder", tmp_path / "d")
    result = command("build", "--dry-run", *JOB, *places, "--json")
    assert result.code == 0, result.err
    assert list(tmp_path.iterdir()) == []
    found = result.json
    assert (found["schema"], found["store"]) == ("pp_precompile.plan/1", None)
    assert (found["programs"], found["compile"], found["stored"]) == (3, 3, 0)
    [stage] = found["plan"]["stages"]
    assert [item["role"] for item in stage["programs"]] == ["forward", "loss", "backward"]
    assert all(len(item["key"]) == 64 for item in stage["programs"])
    assert stage["outputs"][0]["shape"] == [8, 256, 2048]
    assert "stage 0: 3 programs" in result.err


def test_tables_name_every_program_and_where_it_comes_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = plan_of(PP4)
    stored = plan.stages[0].programs[0].key
    print_plan(plan.against(lambda key: key == stored))
    out = capsys.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines()]
    origins = {(row[0], row[1]): (row[2], row[5]) for row in rows if len(row) == 6}
    assert len(origins) == 9
    assert origins["0", "forward"] == (stored[:12], "in the store")
    assert origins["1", "backward"][1] == "compile"
    assert origins["2", "backward"][1] == "as above"
    for text in (plan.build, "8 of 1", "layers.1-layers.2", "positions=int64[1, 256]"):
        assert text in out
    assert "9 programs, 7 distinct: 6 to compile, 1 in the store" in out


def test_the_document_counts_distinct_programs(tmp_path: Path) -> None:
    found = document(plan_of(PP4), tmp_path, published=True)
    assert (found["programs"], found["distinct"], found["compile"]) == (9, 7, 7)
    assert (found["store"], found["published"]) == (str(tmp_path), True)


@pytest.mark.parametrize("words", [("--jobs", "0"), ("--jobs=two",), ("--jobs",)])
def test_jobs_that_are_no_number_are_refused_before_torch_is_imported(
    words: tuple[str, ...],
) -> None:
    result = command("build", *JOB, *words)
    assert (result.code, result.heavy) == (2, ())
    assert "PPC001: --jobs takes a number of processes" in result.err


def test_json_alone_is_refused_before_torch_is_imported() -> None:
    result = command("build", "--json", *JOB)
    assert (result.code, result.heavy) == (2, ())
    assert "PPC001: --json is for --dry-run only" in result.err


def test_help_names_the_dry_run_without_torch() -> None:
    result = command("build", "--help")
    assert (result.code, result.heavy) == (0, ())
    assert "--dry-run" in result.out


def test_a_store_that_is_not_there_yet_is_none(tmp_path: Path) -> None:
    assert existing_store(tmp_path) is None
    assert existing_store(tmp_path / "missing") is None
    open_store(tmp_path, create=True)
    assert existing_store(tmp_path) is not None
    (tmp_path / "builds").chmod(0o777)
    with pytest.raises(StoreError) as raised:
        existing_store(tmp_path)
    assert raised.value.code == "PPC208"


def test_runs_of_layers_are_shortened() -> None:
    names = ["tok_embeddings", *(f"layers.{i}" for i in (0, 1, 2, 5)), "norm"]
    assert shortened(names) == ["tok_embeddings", "layers.0-layers.2", "layers.5", "norm"]
    assert shortened(["layers.9", "layers.8"]) == ["layers.9", "layers.8"]
    assert shortened(["layers.1", "other.2"]) == ["layers.1", "other.2"]
