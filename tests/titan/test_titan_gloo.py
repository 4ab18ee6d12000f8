"""Gloo groups of the CPU platform have one worker thread each, and FSDP2 sums in them."""

import json
import os
import subprocess
import sys

import pytest
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torchtitan.distributed import fsdp

PROGRAM = """
import json, pathlib, sys, time
from datetime import timedelta

if "ours" in sys.argv:
    from pp_precompile.titan import cpu_platform

    cpu_platform.enable()
import torch
import torch.distributed as dist


def workers():
    names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("pt_gloo_runloop") for name in names)


dist.init_process_group(
    "cpu:gloo", store=dist.HashStore(), rank=0, world_size=1, timeout=timedelta(seconds=77)
)
group = dist.new_group([0])
backend = group._get_backend(torch.device("cpu"))
gathered = torch.empty(3)
dist.all_gather_into_tensor(gathered, torch.arange(3.0), group=group)
# Threads name themselves when they get to run.
end = time.monotonic() + 20
while workers() < int(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.05)
time.sleep(0.5)
print(json.dumps({
    "workers": workers(),
    "type": type(backend).__name__,
    "timeout": dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout.total_seconds(),
    "ranks": list(backend.options.global_ranks_in_group),
    "named": backend.options.group_name == group.group_name,
    "gathered": gathered.tolist(),
}))
"""


def _run(expected: int, *words: str, **environment: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(expected), *words],
        env=dict(os.environ) | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("interface", ["", "lo"])
def test_one_thread_a_group_and_all_else_as_torch_makes_it(interface: str) -> None:
    environment = {"GLOO_SOCKET_IFNAME": interface} if interface else {}
    ours, torchs = _run(2, "ours", **environment), _run(4, **environment)
    # Should torch come down to one thread itself, ours are no longer needed.
    assert (ours.pop("workers"), torchs.pop("workers")) == (2, 4)
    assert ours == torchs
    assert ours["type"] == "ProcessGroupGloo"
    assert (ours["timeout"], ours["gathered"]) == (77.0, [0.0, 1.0, 2.0])


def test_an_interface_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no-such-interface"):
        _run(2, "ours", GLOO_SOCKET_IFNAME="no-such-interface")


class _Sharded(nn.Module, FSDPModule):
    """Takes what FSDP2 is told; made without sharding anything."""

    def __new__(cls) -> "_Sharded":
        return object.__new__(cls)

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, object] = {}

    def set_gradient_divide_factor(self, factor: float) -> None:
        self.told["factor"] = factor

    def set_force_sum_reduction_for_comms(self, enable: bool) -> None:
        self.told["sums"] = enable


def test_fsdp2_is_told_to_reduce_by_sums_wherever_torchtitan_sets_its_factor() -> None:
    """The CPU platform is in place here; ``tests/e2e/test_core_blocks.py`` runs it."""
    model = nn.Sequential(_Sharded(), nn.Linear(2, 2), nn.Sequential(_Sharded()))
    fsdp.disable_fsdp_gradient_division(model)
    told = [module.told for module in model.modules() if isinstance(module, _Sharded)]
    assert told == [{"factor": 1.0, "sums": True}] * 2
