"""What each stage is called with, from the configuration alone.

Nothing is run to find out: every stage is traced from metadata on its own, in any order or in
parallel. That the previous stage really returns what is assumed here is checked when all stages
were traced.
"""

from typing import Any

from torchtitan.components.loss import ChunkedLossWrapper

from pp_precompile.contract.tensor import NamedTensor, TensorSpec


def contiguous(
    shape: tuple[int, ...], dtype: str, device: str, *, requires_grad: bool = False
) -> TensorSpec:
    """Describe a contiguous tensor."""
    stride: list[int] = []
    step = 1
    for size in reversed(shape):
        stride.insert(0, step)
        step *= size
    return TensorSpec(
        shape=shape, stride=tuple(stride), dtype=dtype, device=device, requires_grad=requires_grad
    )


class StageInputs:
    """Descriptions of the inputs of every stage and of the loss.

    torchtitan's decoders take token ids (int64) in the first stage and hidden states in the
    others, in the dtype that mixed precision computes in, and ``positions`` (int64) in all of
    them: its text dataloaders always give positions.
    """

    def __init__(self, config: Any, microbatch_size: int, device: str) -> None:
        """Read sizes from torchtitan's ``config``; ``microbatch_size`` counts sequences."""
        self._tokens = (microbatch_size, config.training.seq_len)
        self._dim = config.model_spec.model.dim
        self._vocabulary = config.model_spec.model.vocab_size
        self._dtype = config.training.mixed_precision_param
        self._device = device
        self._chunked = isinstance(config.loss, ChunkedLossWrapper.Config)

    def arguments(self, stage: int) -> tuple[NamedTensor, ...]:
        """Return the positional inputs of ``stage``."""
        if stage == 0:
            spec = contiguous(self._tokens, "int64", self._device)
        else:
            spec = self._hidden()
        return (NamedTensor(name="0", tensor=spec),)

    def keywords(self) -> tuple[NamedTensor, ...]:
        """Return the keyword inputs, the same for every stage."""
        spec = contiguous(self._tokens, "int64", self._device)
        return (NamedTensor(name="positions", tensor=spec),)

    def loss_arguments(self) -> tuple[NamedTensor, ...]:
        """Return the inputs of the loss: prediction, labels, number of tokens that count.

        The chunked loss takes hidden states and applies the head itself.
        """
        prediction = self._hidden()
        if not self._chunked:
            shape = (*self._tokens, self._vocabulary)
            prediction = contiguous(shape, self._dtype, self._device, requires_grad=True)
        labels = contiguous(self._tokens, "int64", self._device)
        count = contiguous((), "int64", self._device)
        specs = (prediction, labels, count)
        return tuple(NamedTensor(name=str(i), tensor=spec) for i, spec in enumerate(specs))

    def _hidden(self) -> TensorSpec:
        shape = (*self._tokens, self._dim)
        return contiguous(shape, self._dtype, self._device, requires_grad=True)
