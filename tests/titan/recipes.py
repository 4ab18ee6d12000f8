"""The recipes of configs/ as torchtitan's configurations."""

from pathlib import Path
from typing import Any

from pp_precompile.contract.recipe import expand
from pp_precompile.titan.arguments import parse
from tests.pages import tables

FOLDER = Path(__file__).parents[2] / "configs"

FILES = sorted(path.name for path in FOLDER.glob("*.args"))

ROWS = {
    row[0].strip("`"): row[1:]
    for _, rows in tables("../configs/README.md")
    if rows[0][0] == "file"
    for row in rows[1:]
}
"""The README's table: the cells behind each file's name."""


def read(name: str) -> Any:
    """Return the configuration that one of the files describes."""
    return parse(expand([f"@{FOLDER / name}"]))


def cut_down(config: Any) -> Any:
    """Leave the first layer and the last ones, as many as there are stages: enough to plan.

    Sizes of tensors stay what they are, so that everything but the number of layers is checked.
    """
    model = config.model_spec.model
    stages = max(config.parallelism.pipeline_parallel_degree, 2)
    model.layers = [*model.layers[:1], *model.layers[len(model.layers) - stages + 1 :]]
    return config
