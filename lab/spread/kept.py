"""Results on disk, by the content that they were made from."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from lab.spread.task import Outcome

__all__ = ["Kept"]

#: Results that nobody has asked for in so long are of code that is gone.
_FORGOTTEN_S = 30.0 * 86_400.0


class Kept:
    """A folder of outcomes, one file each. Several processes may use it at once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._forget()

    def get(self, key: str) -> Outcome | None:
        """Return the outcome that is kept under a key; None: there is none that can be read."""
        path = self._path(key)
        try:
            found = msgspec.msgpack.decode(path.read_bytes(), type=Outcome)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        path.touch()
        return found

    def put(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome. Errors are not kept: what broke is run again."""
        if outcome.error:
            return
        draft = self._folder / f"{key}.{os.getpid()}.draft"
        draft.write_bytes(msgspec.msgpack.encode(outcome))
        draft.replace(self._path(key))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.msgpack"

    def _forget(self) -> None:
        before = time.time() - _FORGOTTEN_S
        for path in self._folder.glob("*"):
            with suppress(FileNotFoundError):
                if path.suffix in (".msgpack", ".draft") and path.stat().st_mtime < before:
                    path.unlink()
