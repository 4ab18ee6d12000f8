"""Faults that one rank meets while the others do not."""

import dataclasses
import os
import signal
import time
from typing import Any

import msgspec

SLOW_SECONDS = 12.0


def inject(fault: str) -> None:
    """Make this process meet ``kind:rank``'s fault, if it is that rank."""
    kind, _, rank = fault.partition(":")
    if os.environ["RANK"] == rank:
        _KINDS[kind]()


def _other_cpu() -> None:
    """This rank's host has a CPU without the widest vectors."""
    from pp_precompile.runtime import device

    real = device.cpu_device()
    narrow = msgspec.structs.replace(real, capability="sse2", features=("sse2",))
    device.cpu_device = lambda: narrow


def _load_fails() -> None:
    from pp_precompile.stage import private_torch

    def fails(_: Any) -> Any:
        raise OSError("the file system went away")

    private_torch.load_artifact = fails


def _compile_fails() -> None:
    from pp_precompile.stage import private_torch

    def fails(_: Any) -> Any:
        raise OSError("no space for the compiler")

    private_torch.compile_artifact = fails


def _compile_is_slow() -> None:
    from pp_precompile.stage import private_torch

    real = private_torch.compile_artifact

    def slow(graph: Any) -> bytes:
        time.sleep(SLOW_SECONDS)
        return real(graph)

    private_torch.compile_artifact = slow


def _other_arguments() -> None:
    """This rank was started with another sequence length."""
    from pp_precompile.titan import trainer

    real = trainer.PrecompiledStages.job_config

    def job_config(self: Any) -> Any:
        config = real(self)
        training = dataclasses.replace(config.training, seq_len=128)
        return dataclasses.replace(config, training=training)

    trainer.PrecompiledStages.job_config = job_config


def _killed_publishing() -> None:
    """This rank is killed when all programs are stored and the manifest is not."""
    from pp_precompile.store.builds import Builds

    Builds.publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]


def _killed_loading() -> None:
    from pp_precompile.stage import private_torch

    private_torch.load_artifact = lambda _: os.kill(os.getpid(), signal.SIGKILL)


_KINDS = {
    "other_cpu": _other_cpu,
    "load_fails": _load_fails,
    "compile_fails": _compile_fails,
    "compile_is_slow": _compile_is_slow,
    "other_arguments": _other_arguments,
    "killed_publishing": _killed_publishing,
    "killed_loading": _killed_loading,
}
