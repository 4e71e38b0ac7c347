"""What the ranks of a command report of their time, as they do to the agent of a machine."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import msgspec

from headroom.training.reports import MOST_BYTES, SOCKET, RankReport, address_of

__all__ = ["Ear"]


class Ear:
    """The socket at which ranks report, until :meth:`close`. Nobody waits for it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "reports.sock"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        with address_of(self._path) as address:
            self._socket.bind(address)
        self._path.chmod(0o600)

    @property
    def environment(self) -> dict[str, str]:
        """The variable by which a command finds it."""
        return {SOCKET: str(self._path)}

    def take(self) -> list[RankReport]:
        """Return the reports that came since the last call. What is none of a rank is left out."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                said = self._socket.recv(MOST_BYTES)
                with contextlib.suppress(msgspec.MsgspecError):
                    found.append(msgspec.msgpack.decode(said, type=RankReport))
        return found

    def close(self) -> None:
        """Hear nothing any more."""
        self._socket.close()
        self._path.unlink(missing_ok=True)
