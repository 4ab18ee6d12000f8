"""Every private part of autograd that is used, in one place.

Checked with torch 2.14.1 and 2.15.0.
"""

from typing import Any


def let_go_of_saved(ctx: Any) -> None:
    """Drop an autograd function's hold on its saved tensors, while its backward runs.

    Autograd would keep all of them to the end of the backward, the sum of what a program frees
    one after the other. Compiled functions of torch itself do the same; it does nothing where the
    graph is kept for another backward.
    """
    ctx.maybe_clear_saved_tensors()
