"""Train as ``pp_precompile.train`` does, and write down what happened, for tests to compare.

Started by torchrun in place of ``pp_precompile.train``. Each rank writes ``rank_N.json`` into the
folder ``$RECORD``: losses and gradient norms bit for bit, every counter of dynamo, AOTAutograd and
Inductor, our own counters, and the name of every program that was started.
``$RECORD_GRADIENTS`` also saves the first step's gradients and the parameters before it, by name.
``$RECORD_HELD`` also records the most bytes that stages hold in each step (:mod:`tests.e2e.held`)
and the times of their actions (:mod:`benchmarks.action_times`).
``$FAULT`` (``kind:rank``) makes one rank meet a fault; see :mod:`tests.e2e.faults`.
``$RECORD_CASES`` names a JSON file with several jobs by name, each a list of arguments: they run
one after the other in the same processes, which saves the time to start them, and each records
into a folder of its name below ``$RECORD``.
"""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(os.environ["RECORD"])

folder = ROOT
record: dict[str, Any] = {}
meters: dict[str, Any] = {}
"""What measures memory and times, by the name that it records them under."""


def _reset(name: str = "") -> None:
    """Forget what the job before did, and record into the folder ``name`` from now on."""
    global folder
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    record.clear()
    record.update(losses=[], grad_norms=[], commands=[])


_reset()


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in {"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"}:
        record["commands"].append(os.path.basename(str(args[0])))


sys.addaudithook(_audit)


def record_metrics() -> None:
    """Record every step's loss and gradient norm."""
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
            torch.save({"before": before, "gradients": gradients}, folder / f"rank_{rank}.pt")
        return result

    Trainer.forward_backward_step = step


def write(code: int | None) -> None:
    """Write down what this rank did, with its exit code, None while there is none."""
    from torch._dynamo.utils import counters as torch_counters

    from pp_precompile.stage.counters import counters

    record["torch"] = {name: dict(values) for name, values in torch_counters.items() if values}
    record["ours"] = dataclasses.asdict(counters)
    record["code"] = code
    if "held" in meters:
        record["held"], meters["held"].steps = meters["held"].steps, []
        record["times"] = meters["times"].document()
        vars(meters["times"]).update(vars(type(meters["times"])()))
    (folder / f"rank_{os.environ['RANK']}.json").write_text(json.dumps(record))


def share_meshes() -> None:
    """Give jobs of the same shape the same meshes, as if the process were new.

    DTensor remembers results by meshes that compare equal, so a second mesh would be taken for the
    first one, whose groups have other names.
    """
    from torchtitan.distributed import ParallelDims

    original = ParallelDims.build_mesh
    built: dict[tuple[Any, ...], dict[str, Any]] = {}

    def build_mesh(self: Any) -> Any:
        sizes = tuple(getattr(self, field.name) for field in dataclasses.fields(self)[:8])
        if sizes in built:
            vars(self).update(built[sizes])
            return self.world_mesh
        mesh = original(self)
        built[sizes] = dict(vars(self))
        return mesh

    ParallelDims.build_mesh = build_mesh


def start_case(name: str) -> None:
    """Forget what the job before did, as if the process were new, and record under ``name``."""
    from torch._dynamo.utils import counters as torch_counters

    from pp_precompile.stage.counters import Counters, counters
    from pp_precompile.stage.private_torch import forget_meshes
    from pp_precompile.titan.private_titan import forget_wrapped_classes

    _reset(name)
    torch_counters.clear()
    vars(counters).update(vars(Counters()))
    forget_wrapped_classes()
    forget_meshes()


def _train_cases(cases: dict[str, list[str]]) -> int:
    """Train several jobs in one process group, until one of them fails."""
    import torch.distributed as dist

    from pp_precompile.train import main as train

    share_meshes()
    end, dist.destroy_process_group = dist.destroy_process_group, lambda *_: None
    code = 0
    for name, arguments in cases.items():
        start_case(name)
        code = train(["--dump_folder", str(folder / "dump"), *arguments])
        write(code)
        if code:
            break
    end()
    return code


def main() -> int:
    """Train, record, and return the exit code of training."""
    from pp_precompile.titan import cpu_platform

    cpu_platform.enable()
    record_metrics()
    if os.environ.get("RECORD_GRADIENTS"):
        _record_gradients()
    if os.environ.get("RECORD_HELD"):
        from benchmarks.action_times import ActionTimes, record_action_times
        from tests.e2e.held import Meter, record_held

        meters.update(held=Meter(), times=ActionTimes())
        record_held(meters["held"])
        record_action_times(meters["times"])
    if os.environ.get("FAULT"):
        from tests.e2e.faults import inject

        inject(os.environ["FAULT"])
    if os.environ.get("RECORD_CASES"):
        return _train_cases(json.loads(Path(os.environ["RECORD_CASES"]).read_text()))
    from pp_precompile.train import main as train

    code = train()
    write(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
