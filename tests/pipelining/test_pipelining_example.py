"""The example runs as its page says, and the page quotes what it does."""

import re
from pathlib import Path

import pytest

from tests.e2e import launch

pytestmark = pytest.mark.torchrun

EXAMPLE = launch.ROOT / "examples" / "pipelining_train.py"


def _run(folder: Path) -> str:
    command = launch.torchrun(str(EXAMPLE), str(folder / "store"), ranks=2)
    result = launch.run(command, launch.environment(folder / "cache"))
    assert result.code == 0, result.output[-6000:]
    return result.output


def _losses(output: str) -> dict[int, str]:
    # The ranks share one output, and a line of one may go on with one of the other.
    return {int(step): loss for step, loss in re.findall(r"step (\d+): loss (\d+\.\d{6})", output)}


def _programs(output: str) -> dict[int, tuple[int, int]]:
    found = re.findall(r"rank (\d): (\d+) programs compiled, (\d+) loaded", output)
    return {int(rank): (int(compiled), int(loaded)) for rank, compiled, loaded in found}


def test_the_second_start_compiles_nothing_and_trains_the_same(tmp_path: Path) -> None:
    first, second = _run(tmp_path), _run(tmp_path)
    losses = _losses(first)
    assert float(losses[20]) < float(losses[1])
    assert _losses(second) == losses
    # Both stages have the same forward, which one rank compiles.
    assert _programs(first) == {0: (2, 2), 1: (1, 2)}
    assert _programs(second) == {0: (0, 2), 1: (0, 2)}


def test_the_page_shows_lines_of_the_example() -> None:
    page = (launch.ROOT / "docs" / "front-ends.md").read_text(encoding="utf-8")
    shown = page.split("The part that is ours:\n\n```python\n")[1].split("```")[0]
    text = EXAMPLE.read_text(encoding="utf-8")
    for line in shown.splitlines():
        assert f"    {line}\n" in text
