"""Removes files of jobs in the background: however many and deep they are, no round waits."""

from __future__ import annotations

import contextlib
import secrets
import subprocess
from pathlib import Path

__all__ = ["Trash"]

#: As many at a time: a command line has an end.
_AT_ONCE = 100
_STOP_S = 5.0
#: What is put here, by its name. It lies beside what it was, so that to put it here is one rename.
_PREFIX = ".trash-"


class Trash:
    """The trash within ``folder``. Another process empties it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._remover: subprocess.Popen[bytes] | None = None

    def put(self, path: Path) -> None:
        """Take ``path`` out of its place at once. A path that is not there is gone already."""
        try:
            path.rename(self._folder / f"{_PREFIX}{path.name}-{secrets.token_hex(4)}")
        except FileNotFoundError:
            return
        self.empty()

    def empty(self) -> None:
        """Start the removal of all in the trash. Does not wait."""
        if self._remover is not None and self._remover.poll() is None:
            return
        left = sorted(self._folder.glob(f"{_PREFIX}*"))[:_AT_ONCE]
        self._remover = self._started([str(path) for path in left]) if left else None

    def close(self) -> None:
        """Stop removing. The next life goes on with it."""
        if self._remover is not None:
            self._remover.kill()
            # A disk that hangs holds it up, and is not to hold us up.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._remover.wait(_STOP_S)

    def _started(self, paths: list[str]) -> subprocess.Popen[bytes]:
        # It follows no link and needs no stack for folders in folders in folders.
        return subprocess.Popen(  # noqa: S603 - paths that we have made
            ["/bin/rm", "-rf", "--one-file-system", "--", *paths],
            env={},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
