"""Train: ``torchrun … -m pp_precompile.train <torchtitan arguments>``.

The same as ``-m torchtitan.train``, plus recipe files (``@FILE``), a CPU where there is no
accelerator, and errors as one message instead of a traceback.
"""

import json
import logging
import os
import sys
import time
from pathlib import Path

from pp_precompile.contract.errors import PrecompileError
from pp_precompile.contract.recipe import expand


def main(argv: list[str] | None = None) -> int:
    """Train and return an exit code: 0 done, 1 a refused artifact, 2 wrong usage."""
    try:
        sys.argv[1:] = expand(sys.argv[1:] if argv is None else argv)
        from pp_precompile.titan import cpu_platform

        if cpu_platform.needed():
            cpu_platform.enable()
        from torchtitan.train import main as torchtitan_main

        torchtitan_main()
    except Exception as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        logging.getLogger(__name__).debug("refused", exc_info=True)
        # One write: the ranks of a node share one pipe, and a message must not be torn.
        sys.stderr.write(f"{refusal}\n")
        sys.stderr.flush()
        _tell_launcher(refusal)
        _wait_for_the_others()
        return refusal.exit_code
    return 0


def _tell_launcher(refusal: PrecompileError) -> None:
    """Give torchrun's closing report the message in place of a traceback.

    torchrun reads each rank's failure from a file; torchtitan has written a traceback there.
    """
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not file:
        return
    extra = {"py_callstack": str(refusal), "timestamp": str(int(time.time()))}
    content = {"message": {"message": str(refusal), "extraInfo": extra}}
    try:
        Path(file).write_text(json.dumps(content), encoding="utf-8")
    except OSError:
        logging.getLogger(__name__).debug("cannot write %s", file, exc_info=True)


def _wait_for_the_others() -> None:
    """Let every rank print its reason before the launcher ends them all."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        from pp_precompile.runtime.farewell import leave_together
        from pp_precompile.stage.private_torch import default_store

        leave_together(default_store(), dist.get_world_size())


def _refusal(error: BaseException | None) -> PrecompileError | None:
    """Find our own error in a chain: torch's schedules wrap what a stage raises."""
    while error is not None and not isinstance(error, PrecompileError):
        error = error.__cause__
    return error


if __name__ == "__main__":
    sys.exit(main())
