"""Read one of the hostile manifests under limits: ``python -m tests.fuzz.bounded 'many ranks'``.

Made before the limits begin, so that they are those of the reading alone.
"""

import resource
import sys

from tests.fuzz.hostile import CASES
from tests.fuzz.reading import limit, read

MEMORY, SECONDS = 1 << 30, 15
"""Most bytes of address space, and most seconds of processor time."""


def main() -> None:
    """Print what becomes of the manifest that is named on the command line."""
    make, _ = CASES[sys.argv[1]]
    data = make()
    usage = resource.getrusage(resource.RUSAGE_SELF)
    limit(memory=MEMORY, seconds=int(usage.ru_utime + usage.ru_stime) + SECONDS)
    print(read(data))


if __name__ == "__main__":
    main()
