"""Embedded Valkey: append-only file, password, loopback. Runs as the user that starts it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from config.embedded.binaries import find_valkey
from config.embedded.server import Server
from config.embedded.state import write_private

__all__ = ["Valkey"]

_PING_TIMEOUT_S = 1.0


class Valkey(Server):
    """The stream, queue and live-frame server (Redis protocol)."""

    name: ClassVar[str] = "valkey"
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, state_dir: Path, *, durable: bool) -> None:
        super().__init__(state_dir, durable=durable)
        self._program = find_valkey()

    @property
    def url(self) -> str:
        """The URL for clients, password included."""
        return f"redis://:{self._record.password}@127.0.0.1:{self._record.port}/0"

    def _place_data(self) -> Path:
        return self._state_dir / "valkey"

    def _prepare(self) -> None:
        self._data_dir.mkdir(mode=0o700, exist_ok=True)
        settings = {
            "bind": "127.0.0.1",
            "port": str(self._record.port),
            "protected-mode": "yes",
            "requirepass": self._record.password,
            "dir": _quoted(self._data_dir),
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "everysec" if self._durable else "no",
            "save": '""',
            # Refuse writes rather than forget what was accepted.
            "maxmemory-policy": "noeviction",
        }
        lines = [f"{key} {value}\n" for key, value in settings.items()]
        write_private(self._config_path, "# Written at each start.\n" + "".join(lines))

    @property
    def _config_path(self) -> Path:
        return self._data_dir / "valkey.conf"

    def _argv(self) -> Sequence[str]:
        # The password is in the file: arguments can be read by every user.
        return [str(self._program), str(self._config_path)]

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(
                ("127.0.0.1", self._record.port), timeout=_PING_TIMEOUT_S
            ) as client:
                client.sendall(f"AUTH {self._record.password}\r\nPING\r\nQUIT\r\n".encode())
                answer = b"".join(iter(lambda: client.recv(4096), b""))
        except OSError:
            return False
        return b"+PONG" in answer


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
