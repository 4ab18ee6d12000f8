"""docs/adding-a-model.md: what it shows is what there is, and works."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.models import llama3
from pp_precompile.titan.arguments import parse
from pp_precompile.titan.offline import offline_job
from pp_precompile.titan.plan import plan
from tests.pages import DOCS

ROOT = DOCS.parent
BLOCKS = re.findall(
    r"```python\n(.*?)```", (DOCS / "adding-a-model.md").read_text(encoding="utf-8"), re.S
)


def test_qwen3_is_as_shown() -> None:
    source = (ROOT / "pp_precompile" / "models" / "qwen3.py").read_text(encoding="utf-8")
    docstring, *statements = ast.parse(source).body
    assert isinstance(docstring, ast.Expr)
    shown = ast.parse(BLOCKS[0]).body
    assert [ast.dump(item) for item in shown] == [ast.dump(item) for item in statements]


@pytest.fixture
def own_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The configuration of the page's own model, with fewer layers."""
    (tmp_path / "scaled_llama.py").write_text(BLOCKS[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    words = ("--module", "scaled_llama", "--config", "scaled_llama_debug", "--compile.precompile")
    config = parse([*words, "--parallelism.pipeline_parallel_degree", "2"])
    config.model_spec.model.layers = config.model_spec.model.layers[:2]
    yield config
    del sys.modules["scaled_llama"]  # each test has a file of its own


def test_a_model_of_ones_own_can_be_planned(own_model: Any) -> None:
    planned = plan(own_model)
    assert [stage.modules for stage in planned.stages] == [
        ("tok_embeddings", "layers.0"),
        ("layers.1", "norm", "lm_head"),
    ]
    llama = llama3.llama3_debugmodel_sdpa()
    llama.compile.precompile = True
    llama.model_spec.model.layers = llama.model_spec.model.layers[:2]
    llama.parallelism.pipeline_parallel_degree = 2
    other = plan(llama)
    # Only the first stage scales its embeddings: the second is that of any llama.
    keys = [{item.key for item in stage.programs} for stage in planned.stages]
    assert keys[0].isdisjoint(item.key for item in other.stages[0].programs)
    assert keys[1] == {item.key for item in other.stages[1].programs}


def test_its_fields_and_its_source_are_part_of_the_key(own_model: Any) -> None:
    with offline_job(own_model) as (job, _):
        before = job.factors
    own_model.model_spec.model.scale = 2.0
    with offline_job(own_model) as (job, _):
        changed = {name for name in before if job.factors[name] != before[name]}
    assert changed == {"model.scale"}
    # The class's bases are torchtitan's, which the environment identifies.
    assert _sources(before) == {"scaled_llama"}


def test_a_file_that_the_model_imports_is_part_of_the_key(own_model: Any, tmp_path: Path) -> None:
    """What a forward calls from another file makes programs as its own lines do."""
    helper, source = tmp_path / "scaling.py", tmp_path / "scaled_llama.py"
    helper.write_text("def scaled(h):\n    return 2 * h\n", encoding="utf-8")
    with source.open("a", encoding="utf-8") as file:
        file.write("\n\ndef helped(h):\n    from scaling import scaled\n\n    return scaled(h)\n")
    with offline_job(own_model) as (job, _):
        before = job.factors
    helper.write_text("def scaled(h):\n    return 3 * h\n", encoding="utf-8")
    with offline_job(own_model) as (job, _):
        changed = {name for name in before if job.factors[name] != before[name]}
    assert changed == {"model.source[scaling]"}
    assert _sources(before) == {"scaled_llama", "scaling"}


def _sources(factors: dict[str, str]) -> set[str]:
    names = (re.fullmatch(r"model\.source\[(.*)\]", name) for name in factors)
    return {match[1] for match in names if match}


def test_a_lambda_in_the_models_configuration_is_refused(own_model: Any) -> None:
    own_model.model_spec.model.scale = lambda: 16.0
    with pytest.raises(PrecompileError) as raised, offline_job(own_model):
        pass
    assert raised.value.code == "PPC005"


def test_tied_weights_are_refused_in_a_pipeline(own_model: Any) -> None:
    own_model.model_spec.model.enable_weight_tying = True
    with pytest.raises(NotImplementedError), offline_job(own_model):
        pass
