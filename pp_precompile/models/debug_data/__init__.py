"""A tiny tokenizer and corpus of our own, so that the debug models train without a download.

Importing this imports neither torch nor torchtitan; only ``register_dataset`` does.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset

TOKENIZER_DIR: Path = Path(__file__).parent / "tokenizer"
"""What ``--hf_assets_path`` points to in the debug configurations."""

CORPUS: Path = Path(__file__).parent / "corpus.jsonl"

DATASET = "pp_precompile_debug"
BOS = "<|begin_of_text|>"
EOS = "<|end_of_text|>"


def register_dataset() -> str:
    """Make torchtitan's text dataloaders know the corpus; return the name to ask them for.

    Calling it again changes nothing, so that every debug configuration may call it. It imports
    torchtitan, which fixes the device type: without an accelerator, set the CPU platform first.
    """
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS

    DATASETS.setdefault(
        DATASET,
        DatasetConfig(path=str(CORPUS), loader=load_corpus, sample_processor=text_of),
    )
    return DATASET


def load_corpus(path: str) -> "Dataset":
    """Read a corpus wholly into memory.

    ``datasets.load_dataset`` would write an Arrow cache next to the user's other caches; a
    read-only machine has no place for one, and ranks that start together would race for it.
    """
    from datasets import Dataset

    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return Dataset.from_dict({"text": [json.loads(line)["text"] for line in lines]})


def text_of(sample: dict[str, Any]) -> str:
    """Return the text of one document."""
    text: str = sample["text"]
    return text
