"""What gloo needs: groups with one worker thread each, and gradients reduced by plain sums.

**One thread**, because two damage each other's memory.

torch's gloo backend runs collectives on two threads a group, and each of them notes the name of
what it has done in one string that both share, without a lock (``ProcessGroupGloo::runLoop``,
which sets ``pgStatus_->lastCompletedWorkName``). A name of more than 15 characters lies on the
heap: ``ALLGATHER_COALESCED``, which is what gathering a parameter is called. Now and then both
threads free the same bytes, and something else dies of it later.

With one thread a group runs its collectives one after the other; transfers between stages do not
use these threads.

**Plain sums**, because FSDP2 reduces gradients with a factor in the reduction itself
(``PREMUL_SUM``) where torchtitan sets one, and gloo has no such reduction. Forced to sum, FSDP2
applies the factor, which torchtitan sets to 1, by itself.

Relies on ``Backend.register_backend``, on the constructor of ``ProcessGroupGloo`` that takes
options, on their attributes ``_devices``, ``_threads`` and ``_timeout``, and on torchtitan's
``disable_fsdp_gradient_division``, which its models call after they were sharded. Checked with
torch 2.14.1 and 2.15.0.
"""

import os
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import Backend, ProcessGroup, ProcessGroupGloo

INTERFACES = "GLOO_SOCKET_IFNAME"
"""Names network interfaces, separated by commas; torch reads it, so this does."""


def use_one_thread() -> None:
    """Make every gloo group that is created from now on with one thread (idempotent)."""
    if not dist.is_gloo_available():
        return
    Backend.register_backend(
        Backend.GLOO,
        _create,
        extended_api=True,
        devices=Backend.backend_capability[Backend.GLOO],
        _backend_type=ProcessGroup.BackendType.GLOO,
    )


def reduce_by_sums() -> None:
    """Let FSDP2 reduce the gradients of all torchtitan's models by sums, from now on.

    Must run before torchtitan's models are imported: some copy the function that is replaced.
    """
    from torch.distributed.fsdp import FSDPModule
    from torchtitan.distributed import fsdp

    set_factor = fsdp.disable_fsdp_gradient_division

    def disable_fsdp_gradient_division(model: nn.Module) -> None:
        set_factor(model)
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)

    fsdp.disable_fsdp_gradient_division = disable_fsdp_gradient_division


def _create(group: Any, backend_options: Any) -> ProcessGroupGloo:
    """Return what torch itself would for ``group`` (its ``_DistributedBackendOptions``)."""
    options = ProcessGroupGloo._Options()
    options._devices = _devices()
    options._threads = 1
    options._timeout = group.timeout
    options.enable_reconfigure = group.enable_reconfigure
    options.global_ranks_in_group = group.global_ranks_in_group
    options.group_name = group.group_id
    return ProcessGroupGloo(group.store, group.group_rank, group.group_size, options)


def _devices() -> list[Any]:
    names = [name for name in os.environ.get(INTERFACES, "").split(",") if name]
    if names:
        return [ProcessGroupGloo.create_device(interface=name) for name in names]
    return [ProcessGroupGloo.create_default_device()]
