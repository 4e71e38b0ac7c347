"""Signs of life for whoever supervises this process; without anybody, nothing is done.

Our supervisor names a folder in ``HEADROOM_HEARTBEATS``. Each process touches one file there, which
bears its number, and the supervisor looks whether it has changed since the last look: what the
clock on the wall says does not matter. systemd names a socket in ``NOTIFY_SOCKET``, and ends a unit
with ``WatchdogSec=`` that is not heard of for so long.

:func:`beat` has to be called from the loop that does the work, so that a loop that hangs falls
silent. It may be called from any thread, as often as one likes.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["FOLDER", "NOTIFY", "beat", "keep"]

#: The setting that names the folder.
FOLDER = "HEADROOM_HEARTBEATS"
#: That of systemd, for a socket.
NOTIFY = "NOTIFY_SOCKET"
#: More often than this is of no use, s.
_EVERY_S = 0.5

_last = 0.0


def beat() -> None:
    """Record a sign of life of the calling loop."""
    global _last
    folder, address = os.environ.get(FOLDER), os.environ.get(NOTIFY)
    now = time.monotonic()
    if not (folder or address) or now - _last < _EVERY_S:
        return
    _last = now
    if folder:
        # Its time alone changes: that takes no room, so a full disk ends nobody's life.
        with suppress(OSError):
            Path(folder, str(os.getpid())).touch(mode=0o600)
    if address:
        _tell_systemd(address)


def _tell_systemd(address: str) -> None:
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        # "@" stands for the zero byte of an address that is no file.
        sender.sendto(
            b"WATCHDOG=1", address.replace("@", "\0", 1) if address[0] == "@" else address
        )


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
