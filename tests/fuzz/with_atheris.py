"""The manifest reader under libFuzzer: ``pip install -e '.[fuzz]'``, then

``python -m tests.fuzz.with_atheris outputs/atheris tests/fuzz/corpus -max_total_time=600``.

Coverage of our own Python steers it: how to get past the form it learns from the corpus. An input
that raises anything but an error of this package, or takes too long, stops it and is kept.
"""

import sys

import atheris

with atheris.instrument_imports(include=["pp_precompile.contract", "pp_precompile.graph"]):
    from tests.fuzz.reading import read


def test_one_input(data: bytes) -> None:
    """Read one input; what it raises is a finding."""
    read(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
