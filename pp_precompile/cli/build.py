"""``pp-precompile build <torchtitan arguments>``: compile every stage and store it."""

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pp_precompile.cli.dry_run import dry_run
from pp_precompile.contract.errors import UsageError
from pp_precompile.contract.manifest import Manifest
from pp_precompile.graph.parts import grouped_programs
from pp_precompile.store.location import store_location
from pp_precompile.store.store import open_store

_HELP = """usage: pp-precompile build <torchtitan arguments> --compile.precompile
                          [--compile.precompile_artifact_dir STORE] [--jobs N] [--dry-run [--json]]

Traces every pipeline stage from metadata, compiles its programs, and publishes the build. Takes
the arguments of the train command; needs a C++ compiler, but neither ranks nor weights.

  --jobs N   compile in N processes while this one traces (1: all in this one); same result
  --dry-run  trace only, and print what would be compiled; writes nothing, needs no compiler
  --json     with --dry-run: one JSON document on stdout"""

_DRY_RUN, _JSON, _JOBS = "--dry-run", "--json", "--jobs"


def run(argv: Sequence[str]) -> int:
    """Build, or plan to; returns 0, or raises a ``PrecompileError``."""
    if not argv or argv[0] in {"-h", "--help"}:
        print(_HELP)
        return 0
    words, jobs = _take_jobs(argv)
    job = [word for word in words if word not in (_DRY_RUN, _JSON)]
    if _DRY_RUN in argv:
        return dry_run(job, as_json=_JSON in argv)
    if _JSON in argv:
        raise UsageError(
            "PPC001",
            f"{_JSON} is for {_DRY_RUN} only",
            expected=f"{_DRY_RUN} {_JSON}",
            found=f"{_JSON} alone",
            hint="'pp-precompile show STORE --json' describes a build that was made",
        )
    return _build(job, jobs)


def _take_jobs(argv: Sequence[str]) -> tuple[list[str], int]:
    """Return the arguments without ``--jobs N`` (or ``--jobs=N``), and N.

    Raises:
        UsageError: PPC001 if N is no whole number from 1 on.
    """
    words: list[str] = []
    number = "1"
    given = iter(argv)
    for word in given:
        name, equals, value = word.partition("=")
        if name == _JOBS:
            number = value if equals else next(given, "nothing")
        else:
            words.append(word)
    if not number.isdecimal() or int(number) < 1:
        raise UsageError(
            "PPC001",
            f"{_JOBS} takes a number of processes",
            expected="a whole number from 1 on",
            found=number,
            hint="1 compiles in this process, more in as many others",
        )
    return words, int(number)


def _build(argv: Sequence[str], jobs: int) -> int:
    from pp_precompile.titan import cpu_platform

    if cpu_platform.needed():
        cpu_platform.enable()
    from pp_precompile.titan.arguments import parse
    from pp_precompile.titan.offline import build

    config = parse(argv)
    location = store_location(
        config.compile.precompile_artifact_dir, dump_folder=config.dump_folder
    )
    start = time.perf_counter()
    report = _Report()
    with report:
        store = open_store(location, create=True)
        manifest = build(config, store, report.listener(), jobs=jobs)
    console = Console()
    console.print(report.table(manifest))
    seconds = time.perf_counter() - start
    console.print(f"build {manifest.build_id} in {location} ({seconds:.1f} s)", soft_wrap=True)
    return 0


class _Report:
    """Progress while building, and the table afterwards."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._reused: dict[int, int] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task("tracing", total=0)

    def __enter__(self) -> "_Report":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def listener(self) -> Any:
        from pp_precompile.titan.offline import Listener

        return Listener(traced=self._on_traced, started=self._on_started, done=self._on_done)

    def _on_traced(self, stage: int, programs: int) -> None:
        total = (self._progress.tasks[0].total or 0) + programs
        self._progress.update(self._task, total=total, description=f"traced stage {stage}")

    def _on_started(self, stage: int, role: str) -> None:
        self._progress.update(self._task, description=f"stage {stage} {role}")

    def _on_done(self, progress: Any) -> None:
        self._progress.advance(self._task)
        stage, seconds = progress.stage, progress.seconds
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds
        self._reused[stage] = self._reused.get(stage, 0) + progress.reused
        how = "reused" if progress.reused else "compiled"
        self._progress.console.print(
            f"stage {stage} {progress.role}: {how} in {seconds:.1f} s, "
            f"{progress.entry.blob.size / 1024:.0f} KiB"
        )

    def table(self, manifest: Manifest) -> Table:
        table = Table("stage", "modules", "programs", "bytes", "seconds")
        for stage in manifest.stages:
            roles = ", ".join(name for name, _ in grouped_programs(stage))
            reused = self._reused.get(stage.index, 0)
            size = sum(program.blob.size for _, program in grouped_programs(stage))
            table.add_row(
                str(stage.index),
                " ".join(stage.modules),
                roles + (f" ({reused} reused)" if reused else ""),
                f"{size:,}",
                f"{self._seconds.get(stage.index, 0.0):.1f}",
            )
        return table
