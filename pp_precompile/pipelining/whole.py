"""A stage's module is whole: all of it is on its rank, and nothing outside it takes its gradients.

What wraps a module in order to divide it or to average its gradients works through its ``forward``
and through autograd's accumulation. Stored programs replace the one and pass the other by, so that
it would silently do nothing.
"""

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from pp_precompile.contract.errors import UsageError, Where
from pp_precompile.stage.private_hooks import has_gradient_hook

_AFTER_STEP = "average .grad over the replicas after schedule.step(), as docs/front-ends.md shows"


def check_whole(index: int, module: nn.Module) -> None:
    """Refuse the module of stage ``index`` if it is a part, or its gradients are taken elsewhere.

    Raises:
        UsageError: PPC002 for a wrapper of data parallelism, parameters or buffers that are
            DTensors, and hooks on gradients.
    """
    for name, child in module.named_modules():
        if isinstance(child, DistributedDataParallel | FullyShardedDataParallel):
            raise UsageError(
                "PPC002",
                "a stage is wrapped for data parallelism",
                where=Where(stage=index, field=name or None),
                expected="the module itself, whole on this rank",
                found=type(child).__name__,
                hint=_AFTER_STEP,
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(tensor, DTensor):
            raise UsageError(
                "PPC002",
                f"{name} is a DTensor: the stage is divided between ranks",
                where=Where(stage=index, field=name),
                expected="stages that are whole on their rank; replicas of the pipeline are served",
                found=f"{list(tensor.placements)} on {tensor.device_mesh}",
                hint="train tensor-parallel and sharded stages through torchtitan's front end",
            )
        if has_gradient_hook(tensor):
            raise UsageError(
                "PPC002",
                f"{name} has a hook on its gradient, which would not run",
                where=Where(stage=index, field=name),
                expected="parameters without hooks: stored programs add to .grad themselves",
                found="a hook of register_hook() or register_post_accumulate_grad_hook()",
                hint=_AFTER_STEP,
            )
