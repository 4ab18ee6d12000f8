"""Read the tables of documentation pages, so that tests can compare them with the code."""

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"

Table = list[tuple[str, ...]]
"""Rows of cells, the head row first."""


def tables(name: str) -> list[tuple[str, Table]]:
    """Return every table of the page ``docs/name`` with the heading that it stands under."""
    found: list[tuple[str, Table]] = []
    heading, inside = "", False
    for line in (DOCS / name).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        row = _row(line)
        if row is None:
            inside = False
        elif not inside:
            found.append((heading, [row]))
            inside = True
        elif any(cell.strip("-:") for cell in row):
            found[-1][1].append(row)
    return found


def table(name: str, *head: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of the page's one table with these column names, by their first cell."""
    [rows] = [rows for _, rows in tables(name) if rows[0] == head]
    result = {row[0]: row[1:] for row in rows[1:]}
    assert len(result) == len(rows) - 1, "a first cell stands twice"
    return result


def quoted(text: str) -> list[str]:
    """Return what stands in backquotes in ``text``."""
    return re.findall(r"`([^`]+)`", text)


def _row(line: str) -> tuple[str, ...] | None:
    if not line.startswith("|"):
        return None
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
