"""Make the debug corpus and its tokenizer: ``python -m pp_precompile.models.debug_data.make``.

The files are committed, so nobody needs to run this; running it gives the same bytes. They come
from the project's own word lists, so no licence but the project's applies to them.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pp_precompile.models.debug_data import BOS, CORPUS, EOS
from pp_precompile.models.debug_data.grammar import Dice, document

SEED = 2025
DOCUMENTS = 400
SHORTEST = 600
LONGEST = 2100
VOCABULARY = 2000


def make_corpus() -> list[str]:
    """Return the documents; each has a seed of its own, so that adding one changes no other."""
    return [document(Dice(SEED * 10_000 + index), SHORTEST, LONGEST) for index in range(DOCUMENTS)]


def train(texts: Iterable[str]) -> dict[str, Any]:
    """Train a byte-level BPE and return the content of its ``tokenizer.json``.

    Only vocabulary and merges are taken from the library; the rest is written out here, in the form
    that old and new versions of it read, so that the file does not change with the library.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return _tokenizer_json(model["vocab"], model["merges"])


def _tokenizer_json(vocab: dict[str, int], merges: list[Any]) -> dict[str, Any]:
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": vocab[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for token in (BOS, EOS)
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(sorted(vocab.items(), key=lambda item: item[1])),
            "merges": [pair if isinstance(pair, str) else " ".join(pair) for pair in merges],
        },
    }


TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": BOS,
    "eos_token": EOS,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 131072,
}


def write(folder: Path) -> None:
    """Write ``corpus.jsonl`` and ``tokenizer/`` into ``folder``."""
    texts = make_corpus()
    lines = [json.dumps({"text": text}) + "\n" for text in texts]
    _write(folder / CORPUS.name, "".join(lines))
    _write(folder / "tokenizer" / "tokenizer.json", _pretty(train(texts)))
    _write(folder / "tokenizer" / "tokenizer_config.json", _pretty(TOKENIZER_CONFIG))


def _pretty(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=True) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8"))


def main(argv: list[str]) -> int:
    """Write into the folder given, or over the committed files."""
    folder = Path(argv[0]) if argv else CORPUS.parent
    write(folder)
    print(f"wrote {CORPUS.name} and tokenizer/ into {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
