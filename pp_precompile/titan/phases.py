"""Where the time of a start goes: process start, imports, trainer, stages, steps.

The clock starts with the process, not with the first line that could be timed, so that work moved
before a timer still counts.
"""

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "PP_PRECOMPILE_PHASES"
"""Names a folder; each rank then writes its phases there, as ``rank_N.json``."""


def process_start() -> float:
    """Return when this process started, in seconds since the epoch (Linux; else now)."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
    except OSError:
        return time.time()
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Phases:
    """Seconds spent in each phase of one rank.

    ``imports`` lasts from process start to the trainer's constructor, ``init`` is the constructor
    without ``stages`` (agree, build or load), ``steps`` the duration of every training step.
    """

    started: float = field(default_factory=process_start)
    imports: float = 0.0
    init: float = 0.0
    agree: float = 0.0
    build: float = 0.0
    load: float = 0.0
    first_step_done: float = 0.0
    steps: list[float] = field(default_factory=list)

    @property
    def stages(self) -> float:
        """Seconds until this rank's stage programs could be called."""
        return self.agree + self.build + self.load

    def step_done(self, seconds: float) -> None:
        """Add a training step."""
        if not self.steps:
            self.first_step_done = time.time() - self.started
        self.steps.append(seconds)

    def as_dict(self) -> dict[str, object]:
        """Return all phases in seconds; ``first_step_done`` counts from process start."""
        values: dict[str, object] = {
            name: getattr(self, name)
            for name in ("imports", "init", "agree", "build", "load", "stages", "first_step_done")
        }
        return values | {"steps": self.steps}

    def __str__(self) -> str:
        first = self.steps[0] if self.steps else 0.0
        later = self.steps[1:]
        steady = sum(later) / len(later) if later else 0.0
        return (
            f"imports {self.imports:.2f} s, trainer {self.init:.2f} s, stages {self.stages:.2f} s "
            f"(agree {self.agree:.2f}, build {self.build:.2f}, load {self.load:.2f}), step 1 "
            f"{first:.2f} s, process start to end of step 1 {self.first_step_done:.2f} s, later "
            f"steps {steady:.3f} s"
        )

    def write(self, rank: int) -> None:
        """Write the phases to the folder that ``$PP_PRECOMPILE_PHASES`` names, if it is set."""
        folder = os.environ.get(VARIABLE)
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"rank_{rank}.json").write_text(json.dumps(self.as_dict()))
