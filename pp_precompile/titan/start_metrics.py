"""What a start cost, as metrics for torchtitan's loggers (TensorBoard, Weights & Biases)."""

from pp_precompile.stage.counters import counters
from pp_precompile.titan.phases import Phases


def start_metrics(phases: Phases) -> dict[str, float]:
    """Return this rank's start by the names that dashboards show; to log once, after step 1.

    Times are seconds of wall time, ``start_to_first_step`` from process start to the end of the
    first step. ``programs_*`` count programs, ``bytes_loaded`` the bytes of their blobs.
    """
    seconds = {
        "imports": phases.imports,
        "trainer": phases.init,
        "agree": phases.agree,
        "build": phases.build,
        "load": phases.load,
        "first_step": phases.steps[0],
        "start_to_first_step": phases.first_step_done,
    }
    counts = {
        "programs_loaded": counters.loaded,
        "programs_compiled": counters.compiled,
        "bytes_loaded": counters.bytes_loaded,
    }
    named = {f"precompile/{name}(s)": value for name, value in seconds.items()}
    return named | {f"precompile/{name}": float(value) for name, value in counts.items()}
