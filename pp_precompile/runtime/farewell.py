"""Leave together after a refusal.

The launcher kills the other ranks as soon as one exits. Each has its reason to print first, so a
rank that is about to exit waits a moment for the others.
"""

import contextlib
import time

from pp_precompile.contract.errors import AgreementError
from pp_precompile.runtime.agreement import PREFIX
from pp_precompile.runtime.bounded import BoundedStore, KeyValueStore

_KEY = f"{PREFIX}/leaving"


def leave_together(store: KeyValueStore, world_size: int, *, seconds: float = 10.0) -> bool:
    """Wait until all ranks called this, or until ``seconds`` passed.

    That is longer than a failing rank stays for the others to see why (see ``Agreement``), after
    which it prints its reason, as the last one.

    Returns:
        whether all ranks came. A store that is gone ends the wait: whoever hosted it has left.
    """
    end = time.monotonic() + seconds
    bounded = BoundedStore(store, seconds=seconds)
    with contextlib.suppress(AgreementError):
        arrived = bounded.add(_KEY, 1)
        while arrived < world_size and time.monotonic() < end:
            time.sleep(0.02)
            arrived = bounded.add(_KEY, 0)
        return arrived >= world_size
    return False
