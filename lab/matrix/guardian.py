"""Undoes the changes of a run to this machine, once the run is dead or a lease is over.

Each run starts one, in a session of its own, and holds the other end of its standard input: the
kernel closes that however the run ends. ``headroom matrix undo`` does the same by hand.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from lab.matrix.leases import Journal, LeaseError

__all__ = ["Guardian"]

_READY = b"ready\n"
#: The longest time between two looks at the leases, s: new ones are not told.
_LOOK_S = 0.5
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Guardian:
    """The guardian of a run, seen from the run."""

    def __init__(self, journal: Journal) -> None:
        """Start the guardian. It watches when this returns."""
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__, str(journal.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._process.stdout is None or self._process.stdout.readline() != _READY:
            raise LeaseError("the guardian of the leases did not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def dismiss(self) -> None:
        """End the guardian: it first undoes all leases that are left."""
        self._process.communicate()


def watch(journal: Journal) -> None:
    """Undo leases that are over, and all once standard input is closed."""
    while True:
        if select.select([sys.stdin], [], [], _LOOK_S)[0] and not os.read(sys.stdin.fileno(), 1):
            break
        for lease in journal.leases():
            if lease.until <= time.time():
                # It is tried again at the next look.
                with contextlib.suppress(LeaseError):
                    journal.undo(lease)
    # What cannot be undone stays in the journal, for the next run.
    with contextlib.suppress(LeaseError):
        for _ in journal.undo_all():
            pass


def main() -> None:
    """Watch over the journal whose folder is the first argument."""
    for number in _ENDING:
        signal.signal(number, signal.SIG_IGN)
    journal = Journal(Path(sys.argv[1]))
    sys.stdout.buffer.write(_READY)
    sys.stdout.flush()
    watch(journal)
    if not journal.is_owned():
        journal.close()


if __name__ == "__main__":
    main()
