"""How commands print: tables for people, one JSON document for programs, findings on stderr."""

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from pp_precompile.contract.printable import printable
from pp_precompile.graph.finding import Finding

_PIPED_WIDTH = 160
"""Columns where the output is no terminal: wide enough for names not to be cut."""

_C1 = re.compile("[\x7f-\x9f]")

SHORT = 12
"""Digits of an id that tables show; commands take any unique number of first digits."""


def print_table(table: Table) -> None:
    """Print a table on stdout, with its texts as they are (brackets are no markup)."""
    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    Console(markup=False, highlight=False, emoji=False, width=width).print(table)


def print_json(document: Any) -> None:
    """Print structs and plain values as one JSON document on stdout."""
    text = json.dumps(msgspec.to_builtins(document), indent=2, ensure_ascii=False)
    # JSON itself escapes what stands before the space, and leaves these to terminals.
    print(_C1.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def print_findings(findings: Iterable[Finding], title: str) -> None:
    """Print findings on stderr, each with what was expected, what was found and what to do."""
    for finding in findings:
        mark = "warning " if finding.severity == "warning" else ""
        print(f"{title}: {mark}{finding}", file=sys.stderr)


@contextlib.contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how far a command is, on stderr and only on a terminal; yields what moves it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


def size(count: int) -> str:
    """Return a number of bytes as text with separators."""
    return f"{count:,}"


class _Cells(Table):
    """A table of texts, some of which may come from a hostile file."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row, without control characters."""
        plain = (printable(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*plain, **options)


def table(*columns: str, title: str | None = None) -> Table:
    """Return a table whose cells fold instead of being cut."""
    result = _Cells(title=title, title_justify="left")
    for column in columns:
        result.add_column(column, overflow="fold")
    return result
