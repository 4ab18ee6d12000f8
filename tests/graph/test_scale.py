"""Builds of sizes that nobody builds in a test are checked like small ones."""

import json
from pathlib import Path

import pytest

from benchmarks import validate_scale
from benchmarks.synthetic_build import synthetic_build
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.check import check_build, selected


def test_sixteen_thousand_ranks() -> None:
    manifest = synthetic_build(64, 128, 16_384)
    assert manifest.mesh.world_size == 16_384
    assert check_build(manifest, host=manifest.environment, ranks=[0, 16_383]) == []
    assert selected(manifest, None, [0, 255, 256, 16_383]) == {0, 1, 63}
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


@pytest.mark.parametrize(("stages", "ranks"), [(2, 2), (4, 6)])
def test_sizes_that_make_no_build_are_refused(stages: int, ranks: int) -> None:
    with pytest.raises(ValueError, match="at least 3, and a multiple"):
        synthetic_build(stages, 8, ranks)


def test_the_benchmark_reports_every_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = (validate_scale.Size(3, 3, 3), validate_scale.Size(4, 8, 16))
    monkeypatch.setattr(validate_scale, "SIZES", sizes)
    assert validate_scale.main(["--repeat", "2", "--json", str(tmp_path / "out.json")]) == 0
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [(row["stages"], row["ranks"], row["actions"]) for row in rows] == [
        (3, 3, 21),
        (4, 16, 68),
    ]
    assert rows[0]["growth"] is None
    assert len(rows[1]["growth"]["samples"]) == len(rows[1]["check"]["samples"]) == 2
    assert "68" in capsys.readouterr().out
