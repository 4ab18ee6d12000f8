"""``pp_precompile.train``, and the losses of its steps bit for bit.

torchtitan prints five digits of a loss; a comparison needs all of them. Started by torchrun in
place of ``pp_precompile.train``, with the same arguments. Each rank that knows the loss (those of
the last stage; the others report a negative one) writes ``losses_N.json`` into the folder
``$PP_PRECOMPILE_PHASES``, and every rank what it compiled and loaded (``counts_N.json``).
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.counted import write_counts
from pp_precompile.titan import cpu_platform


def main() -> int:
    """Train, write the losses, and return training's exit code."""
    if cpu_platform.needed():
        cpu_platform.enable()
    steps: list[dict[str, str]] = []
    _listen(steps)
    from pp_precompile.train import main as train

    code = train()
    folder, rank = Path(os.environ["PP_PRECOMPILE_PHASES"]), int(os.environ["RANK"])
    write_counts(folder, rank)
    if steps:
        (folder / f"losses_{rank}.json").write_text(json.dumps(steps))
    return code


def _listen(steps: list[dict[str, str]]) -> None:
    """Append loss and gradient norm of every step, as hexadecimal floats, to ``steps``."""
    from torchtitan.components.metrics import MetricsProcessor

    original = MetricsProcessor.log

    def log(self: Any, step: int, loss: float, max_loss: float, norm: float, **more: Any) -> None:
        if loss >= 0:
            steps.append({"loss": float(loss).hex(), "grad_norm": float(norm).hex()})
        original(self, step, loss, max_loss, norm, **more)

    MetricsProcessor.log = log


if __name__ == "__main__":
    sys.exit(main())
