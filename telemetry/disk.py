"""The free space of Headroom's disks, and the end of intake before there is none.

Postgres that finds its disk full stops, and with it everything else. So readings are refused
first, while there is a reserve: their agents keep them on disks of their own.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

__all__ = ["Folder", "folders", "is_full"]

_MIB = 2**20
#: What is known of the disks serves for this long, s.
_SERVES_S = 2.0


@dataclass(frozen=True)
class Folder:
    """A folder that is written to. ``free_bytes`` is the free space of its file system for us."""

    name: str
    free_bytes: int

    @property
    def is_full(self) -> bool:
        """Whether only the reserve is left, with which readings are refused."""
        return self.free_bytes < settings.DISK_RESERVE_MB * _MIB

    @property
    def is_low(self) -> bool:
        """Whether a person should be warned."""
        return self.free_bytes < settings.DISK_LOW_MB * _MIB


def folders() -> list[Folder]:
    """Return the storage folders that are on this machine, with their free space."""
    found = []
    for name, path in settings.STORAGE_FOLDERS.items():
        free = _free_bytes(path)
        if free is not None:
            found.append(Folder(name, free))
    return found


def _free_bytes(path: Path) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        # Not made yet, or none of ours.
        return None
    return status.f_bavail * status.f_frsize


class _Known:
    """The last look, shared by the threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked_at: float | None = None
        self._full = False

    def is_full(self) -> bool:
        now = time.monotonic()
        if self._looked_at is None or now - self._looked_at > _SERVES_S:
            with self._lock:
                self._full = any(each.is_full for each in folders())
                self._looked_at = now
        return self._full

    def forget(self) -> None:
        """Look again at the next call."""
        self._looked_at = None


_known = _Known()
is_full = _known.is_full
forget = _known.forget
