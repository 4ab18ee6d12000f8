"""Train as ``pp_precompile.train`` does, and write down what happened, for tests to compare.

Started by torchrun in place of ``pp_precompile.train``. Each rank writes ``rank_N.json`` into the
folder ``$RECORD``: losses and gradient norms bit for bit, every counter of dynamo, AOTAutograd and
Inductor, our own counters, and the name of every program that was started.
``$RECORD_GRADIENTS`` also saves the first step's gradients and the parameters before it, by name.
``$FAULT`` (``kind:rank``) makes one rank meet a fault; see :mod:`tests.e2e.faults`.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["RECORD"])

record: dict[str, Any] = {"losses": [], "grad_norms": [], "commands": []}


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"}:
        record["commands"].append(os.path.basename(str(args[0])))


sys.addaudithook(_audit)


def _record_metrics() -> None:
    from torchtitan.components import metrics

    original = metrics.MetricsProcessor.log

    def log(
        self: Any, step: int, loss: float, max_loss: float, grad_norm: float, **kw: Any
    ) -> None:
        record["losses"].append(float(loss).hex())
        record["grad_norms"].append(float(grad_norm).hex())
        original(self, step, loss, max_loss, grad_norm, **kw)

    metrics.MetricsProcessor.log = log


def _record_gradients() -> None:
    import torch
    from torch.distributed.tensor import DTensor
    from torchtitan.trainer import Trainer

    original = Trainer.forward_backward_step

    def whole(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()

    def step(self: Any, **inputs: Any) -> Any:
        named = [pair for part in self.model_parts for pair in part.named_parameters()]
        before = {name: whole(parameter) for name, parameter in named}
        result = original(self, **inputs)
        if not record.get("saved"):
            record["saved"] = True
            gradients = {name: whole(parameter.grad) for name, parameter in named}
            rank = torch.distributed.get_rank()
            torch.save({"before": before, "gradients": gradients}, FOLDER / f"rank_{rank}.pt")
        return result

    Trainer.forward_backward_step = step


def _write(code: int) -> None:
    from torch._dynamo.utils import counters as torch_counters

    from pp_precompile.stage.counters import counters

    record["torch"] = {name: dict(values) for name, values in torch_counters.items() if values}
    record["ours"] = dataclasses.asdict(counters)
    record["code"] = code
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"rank_{os.environ['RANK']}.json").write_text(json.dumps(record))


def main() -> int:
    """Train, record, and return the exit code of training."""
    from pp_precompile.titan import cpu_platform

    cpu_platform.enable()
    _record_metrics()
    if os.environ.get("RECORD_GRADIENTS"):
        FOLDER.mkdir(parents=True, exist_ok=True)
        _record_gradients()
    if os.environ.get("FAULT"):
        from tests.e2e.faults import inject

        inject(os.environ["FAULT"])
    from pp_precompile.train import main as train

    code = train()
    _write(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
