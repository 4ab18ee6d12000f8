"""The examples run as their page says, and the page quotes what they do."""

import re
from pathlib import Path

import pytest

from tests.e2e import launch

pytestmark = pytest.mark.torchrun

EXAMPLES = launch.ROOT / "examples"
OF_TORCH = EXAMPLES / "pipelining_train.py"
OF_TRANSFORMERS = EXAMPLES / "transformers_train.py"


def _run(cache: Path, folder: Path, *program: str) -> str:
    command = launch.torchrun(*program, str(folder / "store"), ranks=2)
    result = launch.run(command, launch.environment(cache, HF_HUB_OFFLINE="1"))
    assert result.code == 0, result.output[-6000:]
    return result.output


def _losses(output: str) -> list[tuple[int, str]]:
    # The ranks share one output, and a line of one may go on with one of the other.
    found = re.findall(r"step (\d+): loss (\d+\.\d+)", output)
    return [(int(step), loss) for step, loss in found]


def _programs(output: str) -> dict[int, list[tuple[int, int]]]:
    found = re.findall(r"rank (\d): (\d+) programs compiled, (\d+) loaded", output)
    return {
        rank: [(int(compiled), int(loaded)) for r, compiled, loaded in found if int(r) == rank]
        for rank in range(2)
    }


def test_the_second_start_compiles_nothing_and_trains_the_same(tmp_path: Path, cache: Path) -> None:
    first, second = (_run(cache, tmp_path, str(OF_TORCH)) for _ in range(2))
    losses = _losses(first)
    assert [step for step, _ in losses] == [1, 20]
    assert float(losses[1][1]) < float(losses[0][1])
    assert _losses(second) == losses
    # Both stages have the same forward, which one rank compiles.
    assert _programs(first) == {0: [(2, 2)], 1: [(1, 2)]}
    assert _programs(second) == {0: [(0, 2)], 1: [(0, 2)]}


def test_a_model_of_transformers_trains_the_same_with_loaded_stages(
    tmp_path: Path, cache: Path
) -> None:
    """All 20 losses, printed so that no two float32 look alike; its counts go on."""
    port = str(launch.free_port())
    output = _run(cache, tmp_path, "-m", "tests.pipelining.twice", port, str(OF_TRANSFORMERS))
    losses = _losses(output)
    first, second = losses[:20], losses[20:]
    assert [step for step, _ in first] == list(range(1, 21))
    assert float(first[-1][1]) < 0.5 * float(first[0][1])
    assert second == first
    assert _programs(output) == {0: [(2, 2), (2, 4)], 1: [(2, 2), (2, 4)]}


@pytest.mark.parametrize(
    ("behind", "example"),
    [("The part that is ours:", OF_TORCH), ("### A model of transformers", OF_TRANSFORMERS)],
)
def test_the_page_shows_lines_of_the_examples(behind: str, example: Path) -> None:
    page = (launch.ROOT / "docs" / "front-ends.md").read_text(encoding="utf-8")
    shown = page.split(behind)[1].split("```python\n")[1].split("```")[0]
    text = example.read_text(encoding="utf-8")
    for line in shown.splitlines():
        assert f"    {line}\n" in text
