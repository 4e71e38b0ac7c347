"""Signs of life for whoever supervises this process: a file whose change is looked for.

The supervisor names a folder in ``HEADROOM_HEARTBEATS``; without it nothing is done. Each process
touches one file there, which bears its number. :func:`beat` has to be called from the loop that
does the work, so that a loop that hangs falls silent. It may be called from any thread, as often as
one likes. The supervisor looks whether the file has changed since the last look: what the clock on
the wall says does not matter.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["FOLDER", "beat", "keep"]

#: The setting that names the folder.
FOLDER = "HEADROOM_HEARTBEATS"
#: More often than this is of no use, s.
_EVERY_S = 0.5

_last = 0.0


def beat() -> None:
    """Show that the loop that calls this goes round."""
    global _last
    folder = os.environ.get(FOLDER)
    now = time.monotonic()
    if not folder or now - _last < _EVERY_S:
        return
    _last = now
    # Its time alone changes: that takes no room, so a full disk ends nobody's life.
    with suppress(OSError):
        Path(folder, str(os.getpid())).touch(mode=0o600)


def keep(is_well: Callable[[], bool] = lambda: True, *, every_s: float = 1.0) -> threading.Event:
    """Beat from a thread while ``is_well`` says so, until the event that this returns is set.

    For work that has no loop of its own: threads that serve requests.
    """
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            if is_well():
                beat()

    threading.Thread(target=run, name="heartbeat", daemon=True).start()
    return over
