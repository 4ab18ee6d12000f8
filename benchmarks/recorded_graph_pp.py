"""``benchmarks.recorded_train`` for GraphPP, which makes its graphs in the first step.

Started by torchrun in place of ``pp_precompile.train``, with the same arguments. The time that
GraphPP takes to trace and compile a rank's graphs, or to find them in a cache, counts as the phase
``build`` and not as part of the first step, as it does for our stages.

With ``$PP_PRECOMPILE_BENCHMARK_SAVE`` each rank leaves its cache artifacts in that folder at the
end; with ``$PP_PRECOMPILE_BENCHMARK_LOAD`` it starts by loading them, which is the phase ``load``.
Saving takes a change to torch 2.14: ``standalone_compile``, by which GraphPP calls Inductor, keeps
its artifacts to itself, so that ``save_cache_artifacts`` alone has nothing to save. What is loaded
is found by an unchanged torch.
"""

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.graph_pp import LOAD, SAVE
from pp_precompile.titan import cpu_platform


def main() -> int:
    """Train, and return training's exit code."""
    if cpu_platform.needed():
        cpu_platform.enable()
    _time_graphs()
    if SAVE in os.environ:
        _collect_artifacts()
    from benchmarks.recorded_train import main as train

    code = train()
    if SAVE in os.environ:
        _save(Path(os.environ[SAVE]))
    return code


def _time_graphs() -> None:
    """Time every ``prepare_graphs``, and tell the phases."""
    from torchtitan.experiments.graph_trainer.graph_pp.graph_builder import (
        GraphTrainerStageGraphProvider,
    )

    from pp_precompile.titan.phases import Phases

    original = GraphTrainerStageGraphProvider.prepare_graphs
    as_dict = Phases.as_dict
    spent = {"load": 0.0, "build": 0.0}

    def prepare_graphs(self: Any, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        if LOAD in os.environ:
            _load(Path(os.environ[LOAD]))
        loaded = time.perf_counter()
        result = original(self, *args, **kwargs)
        spent["load"] += loaded - start
        spent["build"] += time.perf_counter() - loaded
        return result

    def with_graphs(self: Phases) -> dict[str, object]:
        stages = spent["load"] + spent["build"]
        first, *later = self.steps
        steps = [first - stages, *later]
        return {**as_dict(self), **spent, "stages": stages, "steps": steps}

    GraphTrainerStageGraphProvider.prepare_graphs = prepare_graphs
    Phases.as_dict = with_graphs  # type: ignore[method-assign]


def _collect_artifacts() -> None:
    """Let what ``standalone_compile`` compiles be recorded like anything else."""
    from torch.compiler._cache import CacheArtifactManager

    CacheArtifactManager.with_fresh_cache = staticmethod(contextlib.nullcontext)


def _artifacts(folder: Path) -> Path:
    return folder / f"rank_{os.environ['RANK']}.artifacts"


def _save(folder: Path) -> None:
    import torch

    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise RuntimeError("torch has no cache artifacts to save: nothing was compiled")
    _artifacts(folder).write_bytes(saved[0])


def _load(folder: Path) -> None:
    import torch

    if torch.compiler.load_cache_artifacts(_artifacts(folder).read_bytes()) is None:
        raise RuntimeError("torch did not load the cache artifacts")


if __name__ == "__main__":
    sys.exit(main())
