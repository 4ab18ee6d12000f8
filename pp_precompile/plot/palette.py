"""Colours that people with any colour vision tell apart, and their tints.

They are those of Okabe and Ito (2008) but for a lighter green: theirs is too near their blue for
eyes without the third kind of cone.
"""

from collections.abc import Sequence

INK = "#1a1a1a"
WAITING = "#e9e9e9"
EDGE = "#5f6b76"

OF_KIND = {"F": "#0072B2", "B": "#D55E00", "I": "#E69F00", "W": "#66CC99"}
"""By kind of action."""

OF_ROLE = {
    "unshard": "#CC79A7",
    "forward": "#0072B2",
    "loss": "#F0E442",
    "backward": "#D55E00",
    "backward_input": "#E69F00",
    "backward_weight": "#66CC99",
    "reduce_grad": "#CC79A7",
    "overlap": "#56B4E9",
}
"""By role of a program."""

ACTIVATIONS = "#0072B2"
GATHERED = "#E69F00"

_STRONGEST_TINT = 0.62


def tint(colour: str, amount: float) -> str:
    """Return ``colour`` mixed with white: 0 leaves it, 1 is white."""
    parts = (round(part + (255 - part) * amount) for part in _parts(colour))
    return "#" + "".join(f"{part:02x}" for part in parts)


def shades(colour: str, count: int) -> list[str]:
    """Return ``count`` tints of a colour, from the colour itself to a light one."""
    return [tint(colour, _STRONGEST_TINT * i / max(1, count - 1)) for i in range(count)]


def text_on(colour: str) -> str:
    """Return black or white, whichever is read more easily on ``colour`` (WCAG luminance)."""
    red, green, blue = (_linear(part / 255) for part in _parts(colour))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#ffffff" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000000"


def _parts(colour: str) -> Sequence[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _linear(part: float) -> float:
    return part / 12.92 if part <= 0.04045 else float(((part + 0.055) / 1.055) ** 2.4)
