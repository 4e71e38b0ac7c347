"""The free space of Headroom's disks, and the end of intake before there is none.

Postgres that finds its disk full stops, and with it everything else. So readings are refused
first, while there is a reserve: their agents keep them on disks of their own.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from fleet.cache import Cache

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


_full: Cache[bool] = Cache(_SERVES_S)
invalidate = _full.invalidate


def is_full() -> bool:
    """Say whether a folder lacks room, by the last look of this process."""
    return _full.get(lambda: any(each.is_full for each in folders()))
