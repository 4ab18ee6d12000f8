"""Digests: full, lower case, and nothing else."""

import hashlib

import pytest

from pp_precompile.contract.digest import digest_bytes, is_digest


def test_it_is_sha256_in_hexadecimal() -> None:
    assert digest_bytes(b"abc") == hashlib.sha256(b"abc").hexdigest()
    assert is_digest(digest_bytes(b""))


@pytest.mark.parametrize(
    "text",
    ["", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", "../" + "a" * 61, "٣" * 64],
)
def test_other_text_is_no_digest(text: str) -> None:
    assert not is_digest(text)
