"""The one place that imports matplotlib: empty figures, and files that are equal if drawn alike."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pp_precompile.contract.errors import UsageError

SUFFIXES = ("svg", "png", "pdf")

Figure = Any
"""A matplotlib figure."""

Draw = Callable[[Figure], None]
"""Draws on an empty figure, and sets its size."""

_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#5f6b76",
    "svg.hashsalt": "pp_precompile",
    "pdf.fonttype": 42,
    "path.simplify": False,
    # A schedule's name may come from anywhere, and is no formula.
    "text.parse_math": False,
}

_UNDATED: dict[str, dict[str, None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {},
}

_DOTS_PER_INCH = 150


def save(draw: Draw, path: Path) -> None:
    """Draw a picture and write it to ``path``, whose suffix says which kind of file it becomes.

    Raises:
        UsageError: PPC008 if matplotlib is not installed, or the file cannot be written.
    """
    kind = path.suffix.removeprefix(".")
    matplotlib, figures = _matplotlib()
    try:
        with matplotlib.rc_context(_SETTINGS):
            figure = figures.Figure()
            draw(figure)
            figure.savefig(path, format=kind, dpi=_DOTS_PER_INCH, metadata=_UNDATED[kind])
    except OSError as error:
        raise unwritable(path, error) from error


def unwritable(path: Path, error: OSError) -> UsageError:
    """Return the error for a file that could not be written."""
    return UsageError(
        "PPC008",
        f"the picture cannot be written to {path}",
        expected="a folder that is there and can be written",
        found=error.strerror or error,
        hint="choose another --out",
    )


def _matplotlib() -> tuple[Any, Any]:
    try:
        import matplotlib
        from matplotlib import figure
    except ImportError as error:
        raise UsageError(
            "PPC008",
            "matplotlib is needed to draw, and is not installed",
            expected="the extra 'plot' of this package",
            found=error,
            hint="pip install 'pp-precompile[plot]'; traces (.json) need nothing",
        ) from error
    return matplotlib, figure
