"""What each stage is called with, from the configuration alone.

Nothing is run to find out: every stage is traced from metadata on its own, in any order or in
parallel. That the previous stage really returns what is assumed here is checked when all stages
were traced.
"""

from typing import Any

import msgspec
from torchtitan.components.loss import ChunkedLossWrapper

from pp_precompile.contract.tensor import Layout, NamedTensor, TensorSpec
from pp_precompile.titan.split import Split

_LAST_NORM = "norm"
"""torchtitan's name of the norm before the head."""


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
    them: its text dataloaders always give positions. With tensor parallelism hidden states and
    predictions are distributed tensors; they are described as each rank has them, with the layout.
    """

    def __init__(self, config: Any, microbatch_size: int, device: str, *, split: Split) -> None:
        """Read sizes from torchtitan's ``config``; ``microbatch_size`` counts sequences."""
        self._tokens = (microbatch_size, config.training.seq_len)
        self._dim = config.model_spec.model.dim
        self._vocabulary = config.model_spec.model.vocab_size
        self._dtype = config.training.mixed_precision_param
        self._device = device
        self._split = split
        self._chunked = isinstance(config.loss, ChunkedLossWrapper.Config)
        self._tensor_parallel = config.parallelism.tensor_parallel_degree
        self._sequence_parallel = config.parallelism.enable_sequence_parallel

    def arguments(self, stage: int) -> tuple[NamedTensor, ...]:
        """Return the positional inputs of ``stage``."""
        if stage == 0:
            spec = contiguous(self._tokens, "int64", self._device)
        else:
            spec = self._hidden(after=self._split[stage - 1][-1])
        return (NamedTensor(name="0", tensor=spec),)

    def block_arguments(self) -> tuple[NamedTensor, ...]:
        """Return the positional inputs of a layer: hidden states."""
        return (NamedTensor(name="0", tensor=self._hidden(after="layers")),)

    def outputs(self, stage: int) -> tuple[TensorSpec, ...]:
        """Return what ``stage`` returns: hidden states, or predictions."""
        last = self._split[stage][-1]
        if stage == len(self._split) - 1:
            return (self.loss_arguments()[0].tensor,)
        return (self._hidden(after=last),)

    def keywords(self) -> tuple[NamedTensor, ...]:
        """Return the keyword inputs, the same for every stage."""
        spec = contiguous(self._tokens, "int64", self._device)
        return (NamedTensor(name="positions", tensor=spec),)

    def loss_arguments(self) -> tuple[NamedTensor, ...]:
        """Return the inputs of the loss: prediction, labels, number of tokens that count.

        The chunked loss takes hidden states and applies the head itself.
        """
        prediction = self._hidden(after=_LAST_NORM)
        if not self._chunked:
            prediction = self._activation((*self._tokens, self._vocabulary), sharded=2)
        labels = contiguous(self._tokens, "int64", self._device)
        count = contiguous((), "int64", self._device)
        specs = (prediction, labels, count)
        return tuple(NamedTensor(name=str(i), tensor=spec) for i, spec in enumerate(specs))

    def _hidden(self, *, after: str) -> TensorSpec:
        """Return the hidden states that a module returns.

        With sequence parallelism the last norm gathers them, and everything before it has shards.
        """
        is_sharded = self._sequence_parallel and after != _LAST_NORM
        return self._activation((*self._tokens, self._dim), sharded=1 if is_sharded else None)

    def _activation(self, shape: tuple[int, ...], *, sharded: int | None) -> TensorSpec:
        """Describe an activation; with tensor parallelism it may be sharded along a dimension."""
        ranks = self._tensor_parallel
        layout = None
        local = shape
        if ranks > 1:
            placement = "replicate" if sharded is None else f"shard({sharded})"
            layout = Layout(mesh=("tp",), placements=(placement,), shape=shape)
            local = tuple(n // ranks if dim == sharded else n for dim, n in enumerate(shape))
        spec = contiguous(local, self._dtype, self._device, requires_grad=True)
        return msgspec.structs.replace(spec, layout=layout)
