"""What precompiled stages do not support yet, refused by name before anything starts."""

from collections.abc import Iterator
from typing import Any

import torch
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.models.common.attention import FlexAttention, VarlenAttention

from pp_precompile.contract.errors import UsageError
from pp_precompile.titan import checkpointing, core_supported, graph_pp_supported
from pp_precompile.titan.config import CoreCompileConfig


def check_supported(config: Any) -> None:
    """Refuse a configuration that stage programs cannot serve.

    Raises:
        UsageError: PPC002 naming the first field that cannot be served.
    """
    for field, found, expected in _unsupported(config):
        raise UsageError(
            "PPC002",
            f"precompiled stages do not support {field} = {found}",
            expected=expected,
            found=found,
            hint="change it, or train without --compile.precompile",
        )


def check_device(device: torch.device) -> None:
    """Refuse a device other than the first that this process sees.

    Inductor's generated code names the device by its index, and builds are made on the first one.

    Raises:
        UsageError: PPC002.
    """
    if device.index:
        raise UsageError(
            "PPC002",
            "stage programs run on the first device that a process sees",
            expected="one visible device for each rank",
            found=str(device),
            hint="start torchrun with --virtual-local-rank",
        )


def _unsupported(config: Any) -> Iterator[tuple[str, object, str]]:
    if isinstance(config.compile, CoreCompileConfig):
        yield from core_supported.unsupported(config)
    else:
        yield from _unsupported_by_stages(config)
        yield from _unsupported_loss(config.loss)
    yield from _unsupported_attention(config.model_spec.model)


def _unsupported_by_stages(config: Any) -> Iterator[tuple[str, object, str]]:
    parallelism, compile_config = config.parallelism, config.compile
    if parallelism.context_parallel_degree != 1:
        yield "parallelism.context_parallel_degree", parallelism.context_parallel_degree, "1"
    ranks, vocabulary = parallelism.tensor_parallel_degree, config.model_spec.model.vocab_size
    if vocabulary % ranks:
        expected = f"a divisor of the vocabulary's {vocabulary} entries"
        yield "parallelism.tensor_parallel_degree", ranks, expected
    if parallelism.spmd_backend != "partial_dtensor":
        yield "parallelism.spmd_backend", parallelism.spmd_backend, "partial_dtensor"
    yield from checkpointing.unsupported(config)
    if compile_config.enable_autoparallel:
        yield "compile.enable_autoparallel", True, "False"
    if config.training.enable_cpu_offload:
        yield "training.enable_cpu_offload", True, "False"
    if config.comm.mode != "default":
        yield "comm.mode", config.comm.mode, "default"
    if compile_config.precompile_engine == "graph_pp":
        yield from graph_pp_supported.unsupported(config)


def _unsupported_attention(model: Any) -> Iterator[tuple[str, object, str]]:
    for kind in (FlexAttention.Config, VarlenAttention.Config):
        if any(model.traverse(kind)):
            owner = kind.__qualname__.split(".")[0]
            yield "the model's attention", owner, "scaled dot product attention (*_sdpa configs)"


def _unsupported_loss(loss: Any) -> Iterator[tuple[str, object, str]]:
    inner = loss.loss_fn if isinstance(loss, ChunkedLossWrapper.Config) else loss
    if not isinstance(inner, CrossEntropyLoss.Config):
        yield "loss", type(inner).__qualname__, "cross-entropy, whole or chunked"
