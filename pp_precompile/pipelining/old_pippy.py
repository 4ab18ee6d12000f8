"""The archived package ``torchpippy``, which became ``torch.distributed.pipelining``."""

from typing import Any

from pp_precompile.contract.errors import UsageError


def check_not_pippy(stages: Any) -> None:
    """Refuse a pipe of the old package.

    Its last release imports parts of ``torch.fx`` and of ``torch.distributed`` that the torch
    versions which this package admits no longer have.

    Raises:
        UsageError: PPC002 naming the successor.
    """
    module = type(stages).__module__
    if module.split(".")[0] == "pippy":
        raise UsageError(
            "PPC002",
            "stages of torchpippy are not supported",
            expected="a Pipe of torch.distributed.pipelining, where PiPPy lives now",
            found=f"{module}.{type(stages).__qualname__}",
            hint="pipeline(module, mb_args, mb_kwargs, split_spec=…) of "
            "torch.distributed.pipelining makes it from the same module",
        )
