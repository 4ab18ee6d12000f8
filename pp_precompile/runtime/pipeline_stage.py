"""torch's pipeline stage around a module that runs stored programs."""

from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage

from pp_precompile.contract.stage import StageRecord
from pp_precompile.contract.tensor import TensorSpec
from pp_precompile.runtime.stage_forward import StageForward


class PrecompiledStage(PipelineStage):
    """A ``PipelineStage`` that knows its inputs and outputs in advance, and splits its backward.

    Known on every stage, inputs and outputs spare the first step its shape-inference forward and
    the exchange of pickled metadata between ranks. The split goes through torch's ``dw_builder``;
    all that is added is to tell the stage whether a backward is a whole one, since torch runs the
    same autograd graph for both.
    """

    def __init__(
        self,
        module: nn.Module,
        forward: StageForward,
        record: StageRecord,
        *,
        stages: int,
        device: torch.device,
        group: Any,
    ) -> None:
        """Wrap ``module``, in which ``forward`` was installed, as one of ``stages`` stages."""
        super().__init__(
            module,
            record.index,
            stages,
            device,
            input_args=tuple(_meta(item.tensor) for item in record.arguments),
            output_args=tuple(_meta_output(tensor) for tensor in record.outputs),
            group=group,
            dw_builder=forward.take_of_weights,
        )
        self._stored_forward = forward

    def backward_one_chunk(self, *args: Any, full_backward: bool = True, **kwargs: Any) -> Any:
        """Run one microbatch's backward, or its part for the inputs."""
        if full_backward:
            return super().backward_one_chunk(*args, full_backward=True, **kwargs)
        with self._stored_forward.weights_later():
            return super().backward_one_chunk(*args, full_backward=False, **kwargs)

    # Evaluation walks the same schedule without backward. torch (2.14 and 2.15) then skips what is
    # sent between ranks, but not what is handed over between two stages of one rank.

    def get_local_bwd_output(self, mb_index: int) -> Any:
        """Return the gradients for the stage before on this rank; none in evaluation."""
        return super().get_local_bwd_output(mb_index) if self.has_backward else ()

    def set_local_bwd_input(self, next_stage_bwd_outputs: Any, mb_index: int) -> None:
        """Take the gradients of the stage behind on this rank; none in evaluation."""
        if self.has_backward:
            super().set_local_bwd_input(next_stage_bwd_outputs, mb_index)


def _meta(spec: TensorSpec) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    tensor = torch.empty_strided(spec.shape, spec.stride, dtype=dtype, device="meta")
    return tensor.requires_grad_(spec.requires_grad)


def _meta_output(spec: TensorSpec) -> torch.Tensor:
    """Return an output as autograd will see it, which the program's own outputs do not tell."""
    tensor = _meta(spec)
    return tensor.requires_grad_(tensor.is_floating_point())
