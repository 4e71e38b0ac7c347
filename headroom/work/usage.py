"""The disk use of a job's folders, measured little by little. Standard library alone."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["Usage"]

#: Of ``st_blocks``, whatever the block size of the file system.
_BLOCK_BYTES = 512


class Usage:
    """The contents of ``folders``, held against ``bytes`` and ``files``.

    What was removed and is still open is not seen here: the limit of a single file holds for that.
    """

    def __init__(self, terms: Mapping[str, Any]) -> None:
        self._folders: list[str] = list(terms["folders"])
        self._most_bytes = int(terms["bytes"])
        self._most_files = int(terms["files"])
        self._walk = self._steps()
        #: whether the last look came to the end of the folders
        self.is_done = False

    def look(self, for_s: float) -> str:
        """Go on measuring for that long; return why it is too much, or ""."""
        end = time.monotonic() + for_s
        self.is_done = False
        for too_much in self._walk:
            if too_much or time.monotonic() >= end:
                return too_much
        self._walk, self.is_done = self._steps(), True
        return ""

    def _steps(self) -> Iterator[str]:
        size = files = 0
        left = list(self._folders)
        while left:
            try:
                with os.scandir(left.pop()) as entries:
                    for entry in entries:
                        size += _bytes_of(entry)
                        files += 1
                        if entry.is_dir(follow_symlinks=False):
                            left.append(entry.path)
                        yield self._judge(size, files)
            except OSError as exc:
                if exc.errno == errno.ENAMETOOLONG:
                    yield "its folders are nested too deep to be measured"

    def _judge(self, size: int, files: int) -> str:
        if size > self._most_bytes:
            return f"its folder has grown over {self._most_bytes / 1e9:.3g} GB"
        if files > self._most_files:
            return f"its folder has more than {self._most_files} files"
        return ""


def _bytes_of(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
    except OSError:
        return 0
