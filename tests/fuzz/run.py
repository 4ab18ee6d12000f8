"""The long fuzz of the manifest reader: ``python -m tests.fuzz.run --inputs 100000 --seed 0``.

Prints how many inputs ended in which outcome, and the slowest. An input that raises anything but
an error of this package is kept beside the corpus, and the run goes on; it ends with status 1.
"""

import argparse
import collections
import multiprocessing
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.inputs import make
from tests.fuzz.reading import limit, read

MEMORY = 4 << 30
"""Most bytes of address space of a process."""

_CHUNK = 1000


class Result(NamedTuple):
    """Input ``index`` and what became of it; ``kept`` is where a failing one was written."""

    index: int
    kind: str
    outcome: str
    seconds: float
    failure: str = ""


def one(seed: int, index: int, keep: Path) -> Result:
    """Make and read one input; what must not be raised is returned as the result's failure."""
    kind, data = make(seed, index)
    start = time.process_time()
    try:
        outcome = read(data)
    except Exception as error:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{seed}-{index}.bin").write_bytes(data)
        text = f"{seed}-{index}: {traceback.format_exc(limit=-4)}"
        seconds = time.process_time() - start
        return Result(index, kind, f"RAISED {type(error).__name__}", seconds, text)
    return Result(index, kind, str(outcome), outcome.seconds)


def _chunk(arguments: tuple[int, range, Path]) -> list[Result]:
    seed, indices, keep = arguments
    return [one(seed, index, keep) for index in indices]


def main(argv: list[str] | None = None) -> int:
    """Run the inputs and print the counts; returns 1 if any raised what it must not."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many")
    parser.add_argument("--seed", type=int, default=0, help="same seed, same inputs")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--keep", type=Path, default=Path("outputs/fuzz"), help="failing inputs")
    options = parser.parse_args(argv)
    parts = [
        (options.seed, range(first, min(first + _CHUNK, options.inputs)), options.keep)
        for first in range(0, options.inputs, _CHUNK)
    ]
    start = time.monotonic()
    # New processes, so that the limits are theirs alone.
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, _limit) as pool:
        results = [result for part in pool.imap_unordered(_chunk, parts) for result in part]
    _print(results, time.monotonic() - start)
    return 1 if any(result.failure for result in results) else 0


def _limit() -> None:
    limit(memory=MEMORY)


def _print(results: list[Result], seconds: float) -> None:
    counts = collections.Counter((result.kind, result.outcome) for result in results)
    for kind in sorted({kind for kind, _ in counts}):
        of_kind = {outcome: count for (other, outcome), count in counts.items() if other == kind}
        print(f"{kind}: {sum(of_kind.values())}")
        for outcome, count in sorted(of_kind.items(), key=lambda item: -item[1]):
            print(f"  {count:7} {outcome}")
    slowest = max(results, key=lambda result: result.seconds)
    print(f"{len(results)} inputs in {seconds:.0f} s; the slowest took {slowest.seconds:.2f} s")
    print(f"  it was input {slowest.index}, {slowest.kind}: {slowest.outcome}")
    for result in results:
        if result.failure:
            print(result.failure, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
