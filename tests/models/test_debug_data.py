from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pp_precompile.models import debug_data
from pp_precompile.models.debug_data import make

if TYPE_CHECKING:
    from torchtitan.components.tokenizer import HuggingFaceTokenizer
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

SEQ_LEN = 256
FILES = ("corpus.jsonl", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json")


@pytest.fixture(scope="module")
def texts() -> list[str]:
    lines = debug_data.CORPUS.read_text().splitlines()
    return [json.loads(line)["text"] for line in lines]


@pytest.fixture(scope="module")
def tokenizer() -> HuggingFaceTokenizer:
    from torchtitan.components.tokenizer import HuggingFaceTokenizer

    return HuggingFaceTokenizer(tokenizer_path=str(debug_data.TOKENIZER_DIR))


def batches(
    tokenizer: HuggingFaceTokenizer,
    *,
    dp_rank: int = 0,
    dp_world_size: int = 1,
    infinite: bool = True,
) -> HuggingFaceTextDataLoader:
    from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader

    config = HuggingFaceTextDataLoader.Config(
        dataset=debug_data.register_dataset(), infinite=infinite
    )
    return HuggingFaceTextDataLoader(
        config,
        dp_world_size=dp_world_size,
        dp_rank=dp_rank,
        tokenizer=tokenizer,
        seq_len=SEQ_LEN,
        local_batch_size=4,
    )


def test_making_the_data_again_gives_the_committed_bytes(tmp_path: Path) -> None:
    assert make.main([str(tmp_path)]) == 0
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (debug_data.CORPUS.parent / name).read_bytes()


def test_the_bytes_do_not_depend_on_hash_seed_or_threads(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONHASHSEED": "7", "RAYON_NUM_THREADS": "3"}
    env["TOKENIZERS_PARALLELISM"] = "true"
    module = "pp_precompile.models.debug_data.make"
    subprocess.run([sys.executable, "-m", module, str(tmp_path)], env=env, check=True)
    for name in FILES:
        assert (tmp_path / name).read_bytes() == (debug_data.CORPUS.parent / name).read_bytes()


def test_corpus_size(texts: list[str]) -> None:
    assert len(texts) == 400
    assert len(set(texts)) == 400
    assert all(600 <= len(text) <= 3000 for text in texts)
    assert debug_data.CORPUS.stat().st_size < 700_000


def test_the_sums_in_the_corpus_are_right(texts: list[str]) -> None:
    sums = [m for t in texts for m in re.findall(r"^(\d+) ([+x/-]) (\d+) = (\d+)$", t, re.M)]
    assert len(sums) > 500
    for left, sign, right, result in sums:
        a, b = int(left), int(right)
        assert {"+": a + b, "-": a - b, "x": a * b, "/": a // b}[sign] == int(result)


def test_tokenizer_has_its_special_tokens_and_a_small_vocabulary(
    tokenizer: HuggingFaceTokenizer,
) -> None:
    assert tokenizer.get_vocab_size() == make.VOCABULARY <= 2048
    assert (tokenizer.bos_token, tokenizer.eos_token) == (debug_data.BOS, debug_data.EOS)
    ids = tokenizer.encode("a word", add_bos=True, add_eos=True)
    assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id) == (0, 1)


@pytest.mark.parametrize(
    "text", ["The clock.", " two  spaces\n\ttab", "7 x 8 = 56", "naïve café — 東京 🚂", "\x00\x7f"]
)
def test_text_round_trips(tokenizer: HuggingFaceTokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text, add_bos=False, add_eos=False)) == text


def test_the_corpus_round_trips_and_is_compressed(
    tokenizer: HuggingFaceTokenizer, texts: list[str]
) -> None:
    for text in texts[::40]:
        ids = tokenizer.encode(text, add_bos=False, add_eos=False)
        assert tokenizer.decode(ids) == text
        assert len(ids) < len(text) / 2.5


def test_the_text_dataloader_yields_batches(tokenizer: HuggingFaceTokenizer) -> None:
    for (inputs, labels), _ in zip(batches(tokenizer), range(3), strict=False):
        assert inputs["input"].shape == labels.shape == (4, SEQ_LEN)
        assert 0 <= int(inputs["input"].min()) <= int(inputs["input"].max()) < make.VOCABULARY
        following, wanted = inputs["input"][:, 1:], labels[:, :-1]
        borders = following != wanted
        # A document's last label is its end; the next input is another document's beginning.
        assert set(following[borders].tolist()) <= {tokenizer.bos_id}
        assert set(wanted[borders].tolist()) <= {tokenizer.eos_id}


def test_batches_are_the_same_every_time_and_differ_between_ranks(
    tokenizer: HuggingFaceTokenizer,
) -> None:
    first, again, other = (
        next(iter(batches(tokenizer, dp_rank=rank, dp_world_size=2)))[1].tolist()
        for rank in (0, 0, 1)
    )
    assert first == again
    assert first != other


def test_one_epoch_lasts_for_a_demo(tokenizer: HuggingFaceTokenizer) -> None:
    assert sum(1 for _ in batches(tokenizer, infinite=False)) >= 100


def test_registering_twice_keeps_the_first_and_leaves_the_others() -> None:
    from torchtitan.hf_datasets.text_datasets import DATASETS

    name = debug_data.register_dataset()
    entry, others = DATASETS[name], set(DATASETS)
    assert name == "pp_precompile_debug"
    assert debug_data.register_dataset() == name
    assert DATASETS[name] is entry
    assert set(DATASETS) == others
    assert "c4" in others


def test_reading_leaves_no_files_behind(tmp_path: Path) -> None:
    """The dataset, split over ranks and shuffled for a second epoch, lives in memory alone."""
    from datasets.distributed import split_dataset_by_node

    corpus = tmp_path / "corpus.jsonl"
    corpus.write_bytes(debug_data.CORPUS.read_bytes())
    corpus.chmod(stat.S_IRUSR)
    data = split_dataset_by_node(debug_data.load_corpus(str(corpus)), 1, 2).shuffle(seed=43)
    assert len(data) == 200
    assert data.cache_files == []
    assert os.listdir(tmp_path) == ["corpus.jsonl"]


def test_importing_the_data_imports_no_torch() -> None:
    code = (
        "import sys, pp_precompile.models.debug_data as d; d.TOKENIZER_DIR, d.CORPUS;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'torchtitan', 'datasets')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
