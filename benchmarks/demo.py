"""``make demo``: build the debug model's stages, then train cold and warm, and compare.

Three commands, as a user would start them, each on a host of its own that starts empty: a build
without a cluster; training with four ranks that finds no store and compiles; the same training
from the store of the build, without a compiler. Takes two to three minutes on two cores. Ends with
1 if anything is not as it should be. Everything stays in ``.demo/`` to look at.
"""

import shutil
import sys
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import launch, losses, machine
from benchmarks.hosts import bare_host, building_host
from benchmarks.job import STRICT
from benchmarks.outcome import PHASES, Outcome
from benchmarks.process import ROOT, CommandError

RECIPE = "@configs/llama3_debug_pp4.args"
RANKS = 4
FOLDER = ROOT / ".demo"

_SHOWN = ("imports", "init", "stages", "first_step", "first_step_done", "steady_step")
_COMPARED = ("stages", "first_step_done")
"""Phases that a store changes; in the others both runs do the same work."""

console = Console(width=100)


def main() -> int:
    """Run the demo and return its exit code."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    console.print(f"{machine.one_line(machine.describe())}\n", soft_wrap=True)
    try:
        store, cold, warm = _run()
    except (CommandError, ValueError) as error:
        print(f"{error}\nthe demo failed; all output is in {FOLDER}", file=sys.stderr)
        return 1
    console.print(_table(cold, warm))
    console.print(f"losses cold: {losses.printed(cold)}")
    console.print(f"losses warm: {losses.printed(warm)}")
    problems = _problems(cold, warm, store)
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    if not problems:
        faster = cold.phases["stages"] / warm.phases["stages"]
        console.print(
            f"\nThe losses are equal bit for bit. Getting the stages ready took {faster:.0f} times "
            f"as long cold as warm.\nThe store is in {store.relative_to(ROOT)}, the output of each "
            f"command beside it. To look inside:\n"
            f"    .venv/bin/pp-precompile validate {store.relative_to(ROOT)}",
            soft_wrap=True,
        )
    return 1 if problems else 0


def _run() -> tuple[Path, Outcome, Outcome]:
    """Build, train cold, train warm; returns the built store and both outcomes."""
    store = FOLDER / "store"
    console.print(f"1/3 pp-precompile build {RECIPE}")
    host = building_host(FOLDER / "build" / "host")
    seconds = launch.build([RECIPE], host, FOLDER / "build", store=store)
    console.print(f"    {seconds:.0f} s, {_bytes(store) / 2**20:.1f} MiB stored")

    console.print(f"2/3 torchrun … -m pp_precompile.train {RECIPE}, no store: compiles")
    cold = _train(FOLDER / "cold", building_host(FOLDER / "cold" / "host"), _cold_store())
    console.print("3/3 the same from the store, empty caches, no compiler on PATH")
    warm = _train(FOLDER / "warm", bare_host(FOLDER / "warm" / "host"), store, *STRICT)
    return store, cold, warm


def _train(folder: Path, host: dict[str, str], store: Path, *more: str) -> Outcome:
    words = [RECIPE, "--compile.precompile_artifact_dir", str(store), *more]
    outcome = launch.train(words, host, folder, ranks=RANKS)
    console.print(f"    {outcome.phases['wall']:.0f} s")
    return outcome


def _cold_store() -> Path:
    """Return where the cold run, which starts without a store, puts what it compiled."""
    return FOLDER / "cold" / "store"


def _table(cold: Outcome, warm: Outcome) -> Table:
    table = Table("seconds", "cold", "warm", "cold/warm", box=box.SIMPLE_HEAD)
    for name in _SHOWN:
        before, after = cold.phases[name], warm.phases[name]
        times = f"{before / after:.1f} ×" if name in _COMPARED else ""
        table.add_row(PHASES[name], f"{before:.2f}", f"{after:.2f}", times)
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _problems(cold: Outcome, warm: Outcome, store: Path) -> list[str]:
    """Return what is not as it should be."""
    problems = []
    if not losses.same_bits(cold, warm):
        problems.append("the losses or gradient norms of the cold and the warm run differ")
    if warm.phases["stages"] >= cold.phases["stages"]:
        problems.append("the warm run took as long as the cold one to get its stages ready")
    if _contents(store) != _contents(_cold_store()):
        problems.append("the build and the cold run stored different bytes")
    return problems


def _contents(store: Path) -> dict[str, bytes]:
    files = (path for path in store.rglob("*") if path.is_file())
    return {path.relative_to(store).as_posix(): path.read_bytes() for path in files}


def _bytes(store: Path) -> int:
    return sum(len(data) for data in _contents(store).values())


if __name__ == "__main__":
    sys.exit(main())
