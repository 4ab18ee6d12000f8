"""``plan``, ``plot`` and ``compare``: without torch, and with a clear message for what is wrong."""

import json
from pathlib import Path

import msgspec
import pytest

from pp_precompile.cli.main import COMMANDS
from pp_precompile.cli.plot import write
from pp_precompile.contract.manifest import Manifest, Variant
from pp_precompile.graph.times import UNIT_TIMES
from pp_precompile.store.store import open_store
from tests.cli.commands import ROOT, command, filled, of_this_host
from tests.graph.builds import PP4, load
from tests.graph.fakes import with_fake_blobs
from tests.manifests import make_schedule, make_sound
from tests.pages import tables

SPLIT = "llama3_pp2_fsdp2_dualpipev"


def store_with(path: Path, manifest: Manifest) -> Path:
    """Return a store at ``path`` that holds a build with the parts of ``manifest``."""
    store = open_store(path, create=True)
    store.builds.publish(with_fake_blobs(manifest, store.blobs.put))
    return path


def test_plan_prints_step_ranks_and_stages(tmp_path: Path) -> None:
    of_this_host(PP4, open_store(tmp_path, create=True))
    result = command("plan", tmp_path)
    assert (result.code, result.err, result.heavy) == (0, "", ())
    peak = f"{3 * PP4.stages[1].saved_bytes:,}"
    for text in ("33 units", "27.3% of the ranks' time", peak, "1F2", "1F1B"):
        assert text in result.out
    assert "≥" not in result.out


def test_plan_with_seconds(tmp_path: Path) -> None:
    of_this_host(PP4, open_store(tmp_path / "store", create=True))
    files = []
    for rank in range(4):
        files.append(tmp_path / f"times_{rank}.json")
        times = {"schema": "pp_precompile.times/1", "stages": {rank: {"F": 0.5, "B": 1}}}
        files[-1].write_text(json.dumps(times))
    result = command("plan", tmp_path / "store", "--json", "--times", *files)
    assert (result.code, result.heavy) == (0, ())
    assert (result.json["step"], result.json["unit"]) == (16.5, "second")
    assert "16.5 s" in command("plan", tmp_path / "store", "--times", *files).out
    lacking = command("plan", tmp_path / "store", "--times", *files[:3])
    assert (lacking.code, lacking.out) == (2, "")
    assert "PPC007: there is no time for F of stage 3" in lacking.err


def test_plan_of_what_is_gathered_and_kept(tmp_path: Path) -> None:
    of_this_host(load(SPLIT), open_store(tmp_path, create=True))
    document = command("plan", tmp_path, "--json").json
    assert document["schema"] == "pp_precompile.step_plan/1"
    assert [rank["gathered_bytes"] for rank in document["ranks"]] == [22_030_336, 27_279_360]
    assert all(stage["kept_bytes"] for stage in document["stages"])


def test_plan_marks_sizes_that_depend_on_data(tmp_path: Path) -> None:
    manifest = make_sound(make_schedule(1, 1, 1))
    [stage] = manifest.stages
    forward = stage.programs["forward"]
    outputs = tuple(
        msgspec.structs.replace(
            value,
            tensor=msgspec.structs.replace(
                value.tensor, shape=(1, 0, 4), stride=(0, 4, 1), dynamic=(1,)
            ),
        )
        if value.kind == "saved" and value.tensor is not None
        else value
        for value in forward.outputs
    )
    programs = {**stage.programs, "forward": msgspec.structs.replace(forward, outputs=outputs)}
    changed = msgspec.structs.replace(stage, programs=programs)
    store = store_with(tmp_path, msgspec.structs.replace(manifest, stages=(changed,)))
    result = command("plan", store)
    assert "≥ 128" in result.out
    assert "≥: sizes that depend on data, and what modules keep that run eagerly" in result.out


def test_plan_of_variants(tmp_path: Path) -> None:
    store = tmp_path
    opened = open_store(store, create=True)
    manifest = make_sound(make_schedule(2, 2, 3), dims={"dp": 2}, put=opened.blobs.put)
    variant = Variant(columns=(1,), stages=manifest.stages)
    opened.builds.publish(msgspec.structs.replace(manifest, variants=(variant,)))
    assert "0, columns 1" in command("plan", store).out
    assert len(command("plan", store, "--json").json["ranks"]) == 4
    assert len(command("plan", store, "--json", "--rank", 3).json["ranks"]) == 2
    refused = command("plan", store, "--rank", 4)
    assert (refused.code, "PPC105" in refused.err) == (1, True)


def test_a_schedule_that_waits_for_itself_ends_with_its_ring(tmp_path: Path) -> None:
    orders = (("0F0", "0B0", "0F1", "0B1"), ("1F0", "1F1", "1B0", "1B1"))
    ring = msgspec.structs.replace(make_schedule(2, 2, 2), actions=orders)
    store = store_with(tmp_path, make_sound(ring))
    for words in (("plan",), ("plot", "--out", tmp_path / "x.svg"), ("compare", "1f1b.csv")):
        name, *more = words
        result = command(name, store, *more)
        assert result.code != 0
    result = command("plan", store)
    assert (result.code, result.out) == (1, "")
    assert "PPC524" in result.err
    assert "0B0 (rank 0, position 1)" in result.err


@pytest.mark.parametrize("kind", ["schedule", "graph", "memory"])
def test_plot_draws(kind: str, tmp_path: Path) -> None:
    of_this_host(PP4, open_store(tmp_path / "store", create=True))
    out = tmp_path / "picture.svg"
    result = command("plot", tmp_path / "store", "--kind", kind, "--out", out)
    assert (result.code, result.err, result.heavy) == (0, "", ())
    assert str(out) in result.out
    assert "<!-- 1F1B: 4 " in out.read_text()
    assert "dc:date" not in out.read_text()


@pytest.mark.parametrize("kind", ["schedule", "graph", "memory"])
def test_a_name_is_no_formula_and_fits_the_page(kind: str, tmp_path: Path) -> None:
    name = r"$\frac{$" + "x" * 900
    schedule = msgspec.structs.replace(PP4.schedule, name=name)
    build = msgspec.structs.replace(PP4, schedule=schedule)
    write(build, kind, tmp_path / "x.svg", UNIT_TIMES)
    assert r"$\frac{$" + "x" * 32 + ":" in (tmp_path / "x.svg").read_text()


def test_plot_writes_a_trace_without_matplotlib(tmp_path: Path) -> None:
    store, one, _ = filled(tmp_path / "store")
    out = tmp_path / "trace.json"
    words = ("--build", one.build_id, "--out", out, "--json")
    result = command("plot", store.place, *words)
    assert result.json == {
        "schema": "pp_precompile.plot/1",
        "build": one.build_id,
        "kind": "schedule",
        "file": str(out),
    }
    both = json.loads(out.read_text())["traceEvents"]
    assert {event["ph"] for event in both} == {"M", "X", "C"}
    assert command("plot", store.place, *words, "--kind", "memory").code == 0
    assert {e["ph"] for e in json.loads(out.read_text())["traceEvents"]} == {"M", "C"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--out", "x.gif"), "PPC008: no picture of kind schedule"),
        (("--out", "x"), "found:    no suffix"),
        (("--out", "x.json", "--kind", "graph"), "PPC008: no picture of kind graph"),
        (("--out", "none/x.json"), "PPC008: the picture cannot be written"),
        (("--out", "x.svg", "--kind", "pie"), "PPC001"),
        ((), "PPC001"),
        (("--out", "x.svg", "--times", "none.json"), "PPC007: the file none.json cannot be read"),
    ],
)
def test_plot_refuses(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    of_this_host(PP4, open_store(tmp_path, create=True))
    result = command("plot", tmp_path, *words)
    assert (result.code, text in result.err) == (2, True), result.err


def test_compare_builds_and_files(tmp_path: Path) -> None:
    store, one, other = filled(tmp_path)
    files = ["schedules/1f1b_4x8.csv", "schedules/zb_h1_4x8.csv"]
    names = (one.build_id[:12], other.build_id[:12], *files)
    result = command("compare", store.place, *names)
    assert (result.code, result.err, result.heavy) == (0, "", ())
    for text in ("27.3%", "5.9%", "11.1%", "not known", "stage 1 backward_input"):
        assert text in result.out
    document = command("compare", store.place, *names, "--json").json
    assert document["schema"] == "pp_precompile.compare/1"
    assert [line["name"] for line in document["lines"][2:]] == files
    assert [line["build"] for line in document["lines"]] == [
        one.build_id,
        other.build_id,
        one.build_id,
        one.build_id,
    ]
    base = command("compare", store.place, files[0], "--build", other.build_id, "--json").json
    assert base["lines"][0]["build"] == other.build_id


@pytest.mark.parametrize(
    ("names", "code", "text"),
    [
        (("schedules/1f1b_4x8.csv",), 2, "PPC207: the store holds 2 builds"),
        (("none.csv",), 2, "PPC003: the schedule file none.csv cannot be read"),
        (("ffff",), 2, "PPC207"),
        ((), 2, "PPC001"),
    ],
)
def test_compare_refuses(names: tuple[str, ...], code: int, text: str, tmp_path: Path) -> None:
    store, _, _ = filled(tmp_path)
    result = command("compare", store.place, *names)
    assert (result.code, text in result.err) == (code, True), result.err


def test_the_readme_shows_a_picture_of_each_kind_and_the_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for kind in ("schedule", "memory", "graph"):
        name = f"docs/pictures/{kind}.svg"
        assert f"]({name})" in text
        assert f"pp-precompile plot STORE --kind {kind} --out {name}" in text
    rows = next(r for _, r in tables("../README.md") if r[0] == ("commands", "for"))
    offered = {word.strip("` ") for row in rows[1:] for word in row[0].split(",")}
    assert offered | {"build"} == set(COMMANDS)


@pytest.mark.parametrize("kind", ["schedule", "memory", "graph"])
def test_the_readme_s_pictures_are_what_the_command_draws(kind: str, tmp_path: Path) -> None:
    """Other versions of matplotlib draw other lines; what is written must be the same."""
    write(PP4, kind, tmp_path / "x.svg", UNIT_TIMES)
    texts = [_comments(path) for path in (tmp_path / "x.svg", _picture(kind))]
    assert texts[0] == texts[1]
    assert len(texts[0]) > 10


def _picture(kind: str) -> Path:
    return ROOT / "docs" / "pictures" / f"{kind}.svg"


def _comments(path: Path) -> list[str]:
    return [part.partition(" -->")[0] for part in path.read_text().split("<!-- ")[1:]]
