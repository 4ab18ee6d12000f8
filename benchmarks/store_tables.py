"""A measurement of the store as tables, for a terminal or for Markdown; reads the report's JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.spread import ratio, spread
from benchmarks.step_tables import Grid
from benchmarks.store_contention import PHASES
from benchmarks.store_report import COMPARED, label
from benchmarks.store_throughput import ACTIONS, STORE

Report = Mapping[str, Any]

_UPKEEP = {
    "fsck": "`fsck`",
    "references": "– of this, about: reading builds and entries",
    "sha256sum": "`sha256sum` of the blobs",
    "git_fsck": "`git fsck`",
    "gc": "`gc`",
    "git_gc": "`git gc --prune=now`",
    "git_prune": "`git prune --expire=now`",
}


def grids(report: Report) -> Iterator[Grid]:
    """Yield every table of a report."""
    yield _rates(report)
    yield _ratios(report)
    yield _contention(report)
    yield _upkeep(report)
    rows = [
        (f"{above} / {below}", _text(report["ratios"][f"{above}/{below}"]))
        for above, below in COMPARED
    ]
    yield Grid(head=("time, ratio", "median (min–max)"), rows=rows)


def what(report: Report) -> str:
    """Return what was measured and on what, as sentences."""
    machine, upkeep = report["machine"], report["upkeep"]
    crowd = report["contention"][0]
    repetitions = len(upkeep["seconds"]["fsck"]["samples"])
    return (
        f"Repetitions: {repetitions}. Contention: {crowd['blobs']} blobs of "
        f"{label(crowd['size'])} a process. Upkeep: {upkeep['blobs']:,} blobs of "
        f"{label(upkeep['blob_bytes'])}, an entry for each, {upkeep['builds']} builds with "
        f"{upkeep['manifest_bytes'] / 1e6:.0f} MB of manifests; `gc` keeps {upkeep['kept_builds']} "
        f"of them and deletes {upkeep['deleted_blobs']:,} blobs. Machine: {machine['cpu']}, "
        f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, "
        f"{machine['file_system']} file system; Python {machine['python']}, git {machine['git']}; "
        f"load average before the run: {machine['load_average']:.2f}."
    )


def _rates(report: Report) -> Grid:
    rows = []
    for blobs in report["throughput"]:
        megabytes = blobs["size"] * blobs["count"] / 1e6
        for action, title in ACTIONS.items():
            samples = [way[action]["samples"] for way in blobs["seconds"].values()]
            cells = [spread([megabytes / one for one in seconds]).text() for seconds in samples]
            rows.append((f"{title}: {blobs['count']} × {label(blobs['size'])}", *cells))
    return Grid(head=("MB/s", *report["throughput"][0]["seconds"]), rows=rows)


def _ratios(report: Report) -> Grid:
    others = [way for way in report["throughput"][0]["seconds"] if way != STORE]
    rows = []
    for blobs in report["throughput"]:
        size = label(blobs["size"])
        for action, title in ACTIONS.items():
            names = [f"{way}/{STORE} {action} {size}" for way in others]
            rows.append((f"{title}: {size}", *(_text(report["ratios"][name]) for name in names)))
    return Grid(head=("time, ratio", *(f"{way}/{STORE}" for way in others)), rows=rows)


def _contention(report: Report) -> Grid:
    crowds = report["contention"]
    rows = []
    for phase, title in PHASES.items():
        for alone, together in zip(crowds[::2], crowds[1::2], strict=True):
            rates = [crowd["rates"][phase]["samples"] for crowd in (alone, together)]
            slowest = [crowd["slowest"][phase]["samples"] for crowd in (alone, together)]
            rows.append(
                (
                    f"{title}: {'same' if alone['same'] else 'different'} blobs",
                    *(spread(one).text() for one in rates),
                    ratio(rates[1], rates[0]).text(),
                    *(spread([1e3 * seconds for seconds in one]).text() for one in slowest),
                )
            )
    few, many = crowds[0]["processes"], crowds[1]["processes"]
    head = ("processes", f"{few}: ops/s", f"{many}: ops/s", f"{many}/{few}")
    return Grid(head=(*head, f"{few}: slowest, ms", f"{many}: slowest, ms"), rows=rows)


def _upkeep(report: Report) -> Grid:
    upkeep = report["upkeep"]
    rows = []
    for name, title in _UPKEEP.items():
        seconds = upkeep["seconds"][name]["samples"]
        rate = spread([upkeep["blobs"] / one for one in seconds]).text()
        rows.append((title, _text(upkeep["seconds"][name]), rate))
    return Grid(head=("upkeep", "seconds", "blobs/s"), rows=rows)


def _text(measured: Mapping[str, Any]) -> str:
    return spread(measured["samples"]).text()
