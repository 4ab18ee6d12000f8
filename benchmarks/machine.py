"""What a measurement was made on: numbers without it mean nothing."""

import os
import platform
from importlib.metadata import version

from benchmarks.hosts import THREADS_PER_RANK
from pp_precompile.contract.environment import cpu_device


def describe() -> dict[str, object]:
    """Return cores, CPU, memory and software of this machine."""
    cpu = cpu_device()
    return {
        "cpu": cpu.name,
        "vector_isa": cpu.capability,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "torchtitan": version("torchtitan"),
        "threads_per_rank": THREADS_PER_RANK,
    }


def one_line(machine: dict[str, object]) -> str:
    """Return the description as a sentence."""
    return (
        f"{machine['cpu']}, {machine['cores']} cores ({machine['vector_isa']}), "
        f"{machine['memory_gib']} GiB, {machine['system']}; Python {machine['python']}, "
        f"torch {machine['torch']}, torchtitan {machine['torchtitan']}; "
        f"{machine['threads_per_rank']} thread a rank"
    )
