"""Let torchtitan run on CPUs.

torchtitan takes its device from the first accelerator it finds, falls back to CUDA, and hands the
device's module around by value at import time. So the CPU has to be in place before any other
torchtitan module loads, and needs the few functions that accelerators have and ``torch.cpu`` lacks.
Checked with torchtitan 0.3.0 on torch 2.14.1 and 2.15.0.
"""

import os
import sys
import types
from typing import Any

import torch

from pp_precompile.titan import gloo


class _CpuDevice(types.ModuleType):
    """``torch.cpu`` with what torchtitan expects of a device module; one device per process."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def set_device(self, device: Any) -> None:
        """Accept the only device there is."""

    def device_count(self) -> int:
        """Return 1: every rank has the CPU for itself."""
        return 1

    def current_device(self) -> int:
        """Return the index of the only device."""
        return 0

    def get_device_name(self, device: Any = None) -> str:
        """Return a name that torchtitan knows no peak FLOPS for."""
        return "cpu"

    def get_device_properties(self, device: Any = None) -> types.SimpleNamespace:
        """Return the name and the memory of the host, in bytes."""
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        return types.SimpleNamespace(name="cpu", total_memory=pages * size)

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        """Return no statistics."""
        return {}

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Do nothing: there are no statistics."""

    def empty_cache(self) -> None:
        """Do nothing: the host allocator keeps no cache of its own."""


class _CpuMemoryMonitor:
    """torchtitan's memory monitor, for a device without memory statistics."""

    device_name = "cpu"

    def get_peak_stats(self) -> Any:
        """Return zeros."""
        from torchtitan.components.metrics import DeviceMemStats

        return DeviceMemStats(0, 0, 0, 0, 0, 0)

    def reset_peak_stats(self) -> None:
        """Do nothing."""


def needed() -> bool:
    """Tell whether this host has no accelerator that torch can use."""
    return not torch.accelerator.is_available()


def enable() -> None:
    """Put the CPU in place as torchtitan's device (idempotent).

    Raises:
        RuntimeError: if torchtitan modules that copied the device are already loaded.
    """
    import torchtitan.tools.utils as utils

    if utils.device_type == "cpu":
        return
    if "torchtitan.distributed.utils" in sys.modules:
        raise RuntimeError("the CPU platform must be enabled before torchtitan is imported")
    gloo.use_one_thread()
    utils.device_type = "cpu"
    utils.device_module = _CpuDevice("pp_precompile.titan.cpu_device")

    import torchtitan.components.metrics as metrics

    metrics.build_device_memory_monitor = _CpuMemoryMonitor
    gloo.reduce_by_sums()
