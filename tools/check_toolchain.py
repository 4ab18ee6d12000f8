"""Say, before anything is downloaded, whether this machine can build stages.

Only building needs a C++ compiler; loading a stored build needs none. Runs on the bare python3 of
the machine, so it uses nothing but the standard library and no syntax that
an old one would stumble over before it got as far as the message.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig

MIN_PYTHON = (3, 10)


def find_problems(
    version: tuple[int, ...],
    platform: str,
    compiler: str | None,
    strip: str | None,
    include: str,
) -> list[str]:
    """Return what is missing, in the words a user needs."""
    if version < MIN_PYTHON:
        found, wanted = (".".join(map(str, item[:2])) for item in (version, MIN_PYTHON))
        return [
            "python " + found + " is too old: " + wanted + " or newer is needed"
            " (choose one with `make PYTHON=python3.11 ...`)"
        ]
    problems = []
    # Elsewhere torch has other ways to find a compiler; Linux is what is built on.
    if platform == "linux" and compiler is None:
        problems.append(
            "no C++ compiler found (looked for $CXX, then g++): building stages needs one, loading"
            " does not. Install g++ (Debian, Ubuntu: apt-get install g++)"
        )
    if platform == "linux" and strip is None:
        problems.append(
            "strip not found: building stages needs it, loading does not. Install binutils"
            " (Debian, Ubuntu: apt-get install binutils)"
        )
    if platform == "linux" and not os.path.exists(os.path.join(include, "Python.h")):
        problems.append(
            "Python.h not found in " + include + ": building stages needs it, loading does not."
            " Install python's headers (Debian, Ubuntu: apt-get install python3-dev)"
        )
    return problems


def main() -> int:
    """Print each problem to stderr; 1 if there is any."""
    problems = find_problems(
        tuple(sys.version_info[:3]),
        sys.platform,
        shutil.which(os.environ.get("CXX") or "g++"),
        shutil.which("strip"),
        sysconfig.get_paths()["include"],
    )
    for problem in problems:
        print("pp_precompile: " + problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
