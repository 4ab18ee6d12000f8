"""What precompiled blocks of the core trainer do not support yet."""

from collections.abc import Iterator
from typing import Any

from pp_precompile.titan import checkpointing

_BACKENDS = ("spmd_types", "partial_dtensor")


def unsupported(config: Any) -> Iterator[tuple[str, object, str]]:
    """Yield the fields that ask for what cannot be done: name, value, what can be done.

    Blocks compute with whole parameters, which FSDP2 gathers. Parallelism that cuts what a block
    computes puts wrappers and collectives into its modules when it is applied, which blocks, traced
    before that, would leave out.
    """
    parallelism = config.parallelism
    for field in ("tensor_parallel_degree", "expert_parallel_degree", "context_parallel_degree"):
        degree = getattr(parallelism, field)
        if degree != 1:
            yield f"parallelism.{field}", degree, "1"
    if parallelism.spmd_backend not in _BACKENDS:
        yield "parallelism.spmd_backend", parallelism.spmd_backend, " or ".join(_BACKENDS)
    if config.debug.spmd_typechecking:
        yield "debug.spmd_typechecking", True, "False"
    yield from checkpointing.unsupported(config)
    if config.training.enable_cpu_offload:
        yield "training.enable_cpu_offload", True, "False"
    if config.comm.mode != "default":
        yield "comm.mode", config.comm.mode, "default"
