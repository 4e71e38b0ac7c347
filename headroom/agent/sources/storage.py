"""How long the storage behind a mount takes for a small write, until it is on disk, and a read."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headroom.agent.devices import Block, Row

__all__ = ["Mount", "StorageSource"]

logger = logging.getLogger(__name__)

#: What is written and read back. Direct reads want a multiple of the largest block of any disk.
_PROBE_BYTES = 4096
_FIELDS = ("fsync_s", "read_s")


@dataclass(frozen=True)
class Mount:
    """A mount to probe: a folder on it that the agent may write to, and its name."""

    path: Path
    name: str
    #: Refuse to probe the root's file system: what is there when the mount is not.
    is_mounted: bool = True


class StorageSource:
    """Probes each mount once in ``interval_s``, in a thread of its own.

    A probe that has not come back after ``deadline_s`` is reported with the time that it takes so
    far, again in each interval while it hangs, and no other is begun.
    """

    block: Block = "storage"

    def __init__(
        self,
        mounts: Sequence[Mount],
        *,
        interval_s: float,
        deadline_s: float,
        probe: Callable[[Mount, Callable[[str], None]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._probes = [
            _Probe(mount, interval_s, deadline_s, probe or probe_mount, clock) for mount in mounts
        ]

    @property
    def errors(self) -> int:
        """How many probes failed or hung."""
        return sum(probe.errors for probe in self._probes)

    @property
    def last_error(self) -> str:
        """The message of the last failure of a probe, or ""."""
        return next((probe.last_error for probe in self._probes if probe.last_error), "")

    def read(self) -> Iterable[Row]:
        """Return the probes' measurements since the last read."""
        return [row for probe in self._probes for row in probe.read()]

    def settle(self, timeout_s: float) -> None:
        """Wait until each mount was probed once."""
        deadline = time.monotonic() + timeout_s
        for probe in self._probes:
            probe.first.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """End the threads. One that hangs ends with the process."""
        for probe in self._probes:
            probe.stop.set()


def probe_mount(mount: Mount, begin: Callable[[str], None]) -> None:
    """Write a small file until it is on the disk, read it past the page cache, and remove it.

    ``begin`` is told what comes now: a field of the contract, or something that is not measured.
    Raises ``OSError``.
    """
    if mount.is_mounted and os.stat(mount.path).st_dev == os.stat("/").st_dev:  # noqa: PTH116
        raise OSError(f"{mount.path} is on the root's file system: it is not mounted")
    # One name for each machine, so that those that share the mount do not meet.
    path = mount.path / f".headroom-probe-{socket.gethostname()}"
    path.unlink(missing_ok=True)  # what a killed agent left
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    try:
        with mmap.mmap(-1, _PROBE_BYTES) as page:  # aligned, as direct reads want it
            page.write(os.urandom(_PROBE_BYTES))
            begin("fsync_s")
            os.pwritev(fd, [page], 0)
            os.fsync(fd)
            begin("leave the page cache")
            _leave_page_cache(fd)
            begin("read_s")
            os.preadv(fd, [page], 0)
            begin("remove")
    finally:
        os.close(fd)
        with contextlib.suppress(OSError):
            path.unlink()


def _leave_page_cache(fd: int) -> None:
    """See to it that the next read asks the storage, as far as the file system lets us."""
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    with contextlib.suppress(OSError):  # not every file system reads directly
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)


class _Probe:
    """One mount, and the thread that may hang in it."""

    def __init__(
        self,
        mount: Mount,
        interval_s: float,
        deadline_s: float,
        probe: Callable[[Mount, Callable[[str], None]], None],
        clock: Callable[[], float],
    ) -> None:
        self.errors = 0
        self.last_error = ""
        self.stop = threading.Event()
        #: Set once the first probe is over.
        self.first = threading.Event()
        self._mount = mount
        self._interval_s = interval_s
        self._deadline_s = deadline_s
        self._probe = probe
        self._clock = clock
        self._rows: deque[Row] = deque(maxlen=1000)
        self._measured: dict[str, float] = {}
        self._lock = threading.Lock()
        #: What is being measured, since when, and when that is to be reported as hanging.
        self._now = ""
        self._since = self._report_at = 0.0
        threading.Thread(target=self._run, name=f"storage {mount.name}", daemon=True).start()

    def read(self) -> list[Row]:
        with self._lock:
            self._report_if_hanging()
            return [self._rows.popleft() for _ in range(len(self._rows))]

    def _run(self) -> None:
        while not self.stop.is_set():
            started = time.monotonic()
            self._measure()
            self.first.set()
            self.stop.wait(max(0.0, started + self._interval_s - time.monotonic()))

    def _measure(self) -> None:
        self._measured = {}
        self._begin("open")
        try:
            self._probe(self._mount, self._begin)
        except OSError as exc:
            self._fail(str(exc))
        else:
            self.last_error = ""
        with self._lock:
            self._now = ""
            if self._measured:
                self._rows.append(self._row(self._measured))

    def _begin(self, what: str) -> None:
        now = time.monotonic()
        with self._lock:
            if self._now in _FIELDS:
                self._measured[self._now] = now - self._since
            self._now, self._since, self._report_at = what, now, now + self._deadline_s

    def _report_if_hanging(self) -> None:
        now = time.monotonic()
        if not self._now or now < self._report_at:
            return
        self._report_at = now + self._interval_s
        taken_s = now - self._since
        # A mount that cannot even be opened does not write either.
        field = self._now if self._now in _FIELDS else "fsync_s"
        self._rows.append(self._row({field: taken_s, **self._measured}))
        self._fail(f"{self._now} hangs for {taken_s:.0f} s")

    def _row(self, measured: dict[str, float]) -> Row:
        return {"ts": self._clock(), "mount": self._mount.name, **measured}

    def _fail(self, cause: str) -> None:
        self.errors += 1
        if not self.last_error:
            logger.warning("storage probe", extra={"mount": self._mount.name, "cause": cause})
        self.last_error = f"storage {self._mount.name}: {cause}"
