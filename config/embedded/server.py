"""One embedded server: its port and password, its start, its restart, its end."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar

from config.backoff import Backoff
from config.embedded.exceptions import (
    AlreadyRunningError,
    DamagedFileError,
    DataLostError,
    ServerFailedError,
)
from config.embedded.ports import choose_port, port_is_free
from config.embedded.spawn import Account, spawn
from config.embedded.state import trim_log, write_private

__all__ = ["Record", "Server"]

#: Between the choice of a port and the start somebody else may take it: then with another one.
_PORT_TRIES = 3
_PREDECESSOR_TIMEOUT_S = 30.0
_READY_TIMEOUT_S = 300.0
_POLL_S = 0.01


@dataclass(frozen=True)
class Record:
    """Port, password and data folder, as they are at each start; `<state>/<server>.json`, 0600."""

    port: int
    password: str
    data_dir: str
    """Absolute when outside the state directory, so that the latter can be moved."""


class Server(ABC):
    """A server process on loopback, with data that outlives it.

    `start`, `ensure_running` and `stop` are for the main thread (see `spawn`).
    """

    name: ClassVar[str]
    stop_signal: ClassVar[signal.Signals]

    def __init__(self, state_dir: Path, *, durable: bool) -> None:
        self._state_dir = state_dir
        self._durable = durable
        self._record_path = state_dir / f"{self.name}.json"
        self._log_path = state_dir / "logs" / f"{self.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._backoff = Backoff(first_s=0.05)
        self._retry_at: float | None = None
        self._account: Account | None = None
        self._record = Record(port=0, password="", data_dir="")

    @property
    @abstractmethod
    def url(self) -> str:
        """The URL for clients, password included."""

    @property
    def pid(self) -> int | None:
        """The server's process, or None while none runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @abstractmethod
    def _place_data(self) -> Path:
        """Choose where data goes, in or outside the state directory; once per installation."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make data and configuration ready; the caller holds the data."""

    @abstractmethod
    def _argv(self) -> Sequence[str]:
        """The command, without secrets."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Say whether the server accepts clients."""

    def start(self) -> None:
        """Start and return once clients are served.

        The port is that of the last run unless somebody else took it meanwhile.
        """
        self._load_record()
        for _ in range(_PORT_TRIES):
            with self._held_data(_PREDECESSOR_TIMEOUT_S) as lock:
                if not port_is_free(self._record.port):
                    self._keep(replace(self._record, port=choose_port()))
                self._prepare()
                process = self._launch(lock)
            if self._came_up(process):
                return
            if port_is_free(self._record.port):
                break
        raise ServerFailedError(self.name, "did not start", self._last_words())

    def ensure_running(self) -> bool:
        """Start the server again, on the same port, if it died; tell whether it was started.

        Never waits: neither for what is left of the dead server (then the next call tries
        again) nor for recovery.
        """
        if self._process is None or self._process.poll() is None:
            return False
        now = time.monotonic()
        if self._retry_at is None:
            self._retry_at = now + self._backoff.delay_s(now - self._started_at)
        if now < self._retry_at:
            return False
        self._retry_at = now + self._backoff.delay_s(lived_s=0)
        with suppress(AlreadyRunningError), self._held_data(timeout_s=0) as lock:
            self._prepare()
            self._launch(lock)
            return True
        return False

    def stop(self, timeout_s: float = 20.0) -> None:
        """Stop, gently first, and return when the process is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        for signal_ in (self.stop_signal, signal.SIGQUIT, signal.SIGKILL):
            process.send_signal(signal_)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
                return

    def trim_log(self) -> None:
        """Keep the server's log within bounds."""
        trim_log(self._log_path)

    def _load_record(self) -> None:
        try:
            self._record = Record(**json.loads(self._record_path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            place = self._place_data()
            if place.is_relative_to(self._state_dir):
                place = place.relative_to(self._state_dir)
            self._keep(Record(choose_port(), secrets.token_urlsafe(24), str(place)))
            return
        except (ValueError, TypeError):
            raise DamagedFileError(
                self._record_path,
                "it is not what we wrote",
                "Restore it from a back-up, or move it and the data that it is about away to start"
                " empty.",
            ) from None
        if not self._data_dir.parent.is_dir():
            raise DataLostError(self._data_dir, self._record_path)

    def _keep(self, record: Record) -> None:
        write_private(self._record_path, json.dumps(asdict(record), indent=2) + "\n")
        self._record = record

    @property
    def _data_dir(self) -> Path:
        return self._state_dir / self._record.data_dir

    @contextmanager
    def _held_data(self, timeout_s: float) -> Iterator[int]:
        """Hold the data against servers of earlier runs that have not ended yet.

        The server inherits the lock's file descriptor, and so do its own children: the lock is
        free when the last process that could write is gone, however its parents died.
        """
        # Beside the data, not the record, of which there may be copies.
        path = self._data_dir.with_name(f"{self.name}.lock")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        what = f"A {self.name} server of an earlier run"
                        raise AlreadyRunningError(self._state_dir, what, "") from None
                    time.sleep(_POLL_S)
            yield handle
        finally:
            os.close(handle)

    def _launch(self, lock: int) -> subprocess.Popen[bytes]:
        self.trim_log()
        with self._log_path.open("ab") as log:
            self._process = spawn(
                self._argv(),
                death_signal=self.stop_signal,
                account=self._account,
                # Not ours: it may hold secrets, and other processes of the server's user could
                # read it.
                env={"PATH": os.defpath, "LC_ALL": "C"},
                cwd=Path("/"),
                output=log,
                pass_fds=[lock],
            )
        self._started_at = time.monotonic()
        self._retry_at = None
        return self._process

    def _came_up(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for readiness; False when the process ended instead."""
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if process.poll() is not None:
                return False
            if self._is_ready():
                return True
            time.sleep(_POLL_S)
        self.stop()
        raise ServerFailedError(
            self.name, f"was not ready after {_READY_TIMEOUT_S:.0f} s", self._last_words()
        )

    def _last_words(self, lines: int = 8) -> str:
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
            return "\n".join(log.read().decode("utf-8", "replace").splitlines()[-lines:])
