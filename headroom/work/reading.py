"""Reads and writes files in folders where a job may have replaced them."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

__all__ = ["NotOurs", "open_plain", "read_plain", "write_plain"]

#: Neither a link is followed nor a pipe waited for, nor does a terminal become ours.
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class NotOurs(OSError):
    """It is no regular file, belongs to somebody else, or is larger than it may be."""


def open_plain(path: Path, flags: int = os.O_RDONLY, *, owner: int | None = None) -> int:
    """Open a regular file that belongs to ``owner`` (a uid; None: to anybody); return its fd.

    Neither waits nor follows a link, whatever lies there. Raises OSError.
    """
    # Looked at before it is opened: opening some devices does something already.
    _check(os.lstat(path), path, owner)
    fd = os.open(path, flags | _FLAGS)
    try:
        _check(os.fstat(fd), path, owner)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_plain(path: Path, most_bytes: int, *, owner: int | None = None) -> bytes:
    """Return the contents of a regular file of at most ``most_bytes``. Raises OSError."""
    with os.fdopen(open_plain(path, owner=owner), "rb") as file:
        said = file.read(most_bytes + 1)
    if len(said) > most_bytes:
        raise NotOurs(f"{path} is larger than {most_bytes} bytes")
    return said


def write_plain(path: Path, body: bytes, mode: int) -> None:
    """Put ``body`` at ``path``, whole at once, and follow nothing that lies there."""
    made = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(body)
        made.replace(path)
    except OSError:
        made.unlink(missing_ok=True)
        raise


def _check(found: os.stat_result, path: Path, owner: int | None) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotOurs(f"{path} is no regular file")
    if owner is not None and found.st_uid != owner:
        raise NotOurs(f"{path} belongs to another user")
