"""Xid errors of GPUs, and SXid errors of NVSwitches, as the kernel logs them."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from headroom.agent.devices import Block, Row

__all__ = [
    "KernelLog",
    "LogLine",
    "XidLine",
    "parse_dmesg",
    "parse_kmsg",
    "parse_xid",
    "pci_address",
]

logger = logging.getLogger(__name__)

#: The kernel's longest record, escapes included.
_RECORD_BYTES = 8192
#: The most records that one reading takes: a kernel that floods its log must not stop the agent.
_MOST_RECORDS = 10_000

_KMSG = re.compile(r"(\d+),(\d+),(\d+),[^;]*;([^\n]*)")
_DMESG = re.compile(r"\[(\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})\] (.*)")
_DMESG_TIME = "%a %b %d %H:%M:%S %Y"
_XID = re.compile(
    r"(?:NVRM: Xid|nvidia-nvswitch\d+: (?P<switch>SXid)) "
    r"\((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b"
)


@dataclass(frozen=True)
class LogLine:
    """One line of the kernel log. ``at_s``: since boot (kmsg), or Unix time (dmesg)."""

    at_s: float
    text: str


@dataclass(frozen=True)
class XidLine:
    """The Xid in one line, or an SXid: then ``is_switch``, and no GPU is meant."""

    code: int
    pci: str
    is_switch: bool


def parse_kmsg(record: str) -> LogLine | None:
    """Read one record of ``/dev/kmsg``, which is ``priority,sequence,µs since boot,flags;text``."""
    found = _KMSG.match(record)
    return LogLine(int(found[3]) / 1e6, found[4]) if found else None


def parse_dmesg(line: str) -> LogLine | None:
    """Read one line of ``dmesg --ctime``, whose times are those of this machine's time zone."""
    found = _DMESG.match(line)
    if found is None:
        return None
    at = datetime.strptime(found[1], _DMESG_TIME).astimezone()
    return LogLine(at.timestamp(), found[2])


def parse_xid(text: str) -> XidLine | None:
    """Return the Xid or SXid that ``text`` tells of, or None."""
    found = _XID.search(text)
    if found is None:
        return None
    return XidLine(int(found["code"]), found["pci"], found["switch"] is not None)


def pci_address(text: str) -> tuple[int, int, int] | None:
    """Return domain, bus and device of a PCI bus id: there are many ways to write one."""
    found = re.match(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.|$)", text)
    return (int(found[1] or "0", 16), int(found[2], 16), int(found[3], 16)) if found else None


class KernelLog:
    """The Xids that the kernel logs from now on.

    ``fd`` never blocks. It gives one record with each read, as ``/dev/kmsg`` does, or with
    ``is_text`` lines as ``dmesg --ctime --follow`` writes them. It is closed in the end. ``gpus``
    says which GPU has which PCI address.
    """

    block: Block = "xids"

    def __init__(
        self,
        fd: int,
        gpus: Callable[[], Mapping[tuple[int, int, int], int]],
        *,
        is_text: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.errors = 0
        self.last_error = ""
        self._fd = fd
        self._gpus = gpus
        self._is_text = is_text
        self._clock = clock
        #: The beginning of a line whose end is not there yet.
        self._rest = ""

    @classmethod
    def open(cls, path: Path, gpus: Callable[[], Mapping[tuple[int, int, int], int]]) -> KernelLog:
        """Open the log at its end. A file that is no device is text. Raises ``OSError``."""
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISFIFO(mode):
                os.lseek(fd, 0, os.SEEK_END)
        except OSError:
            os.close(fd)
            raise
        return cls(fd, gpus, is_text=not stat.S_ISCHR(mode))

    def read(self) -> Iterable[Row]:
        """Return a row for each Xid since the last read."""
        lines = list(self._text_lines() if self._is_text else self._kmsg_lines())
        if not lines:
            return []
        # The kernel's clock drifts from ours over weeks. Its newest line is from a moment ago.
        newest, now = lines[-1].at_s, self._clock()
        rows = (self._row(line.text, now - (newest - line.at_s)) for line in lines)
        return [row for row in rows if row is not None]

    def close(self) -> None:
        """Close the log."""
        with contextlib.suppress(OSError):
            os.close(self._fd)

    def _kmsg_lines(self) -> Iterable[LogLine]:
        for record in self._records():
            line = parse_kmsg(record)
            if line is not None:
                yield line

    def _text_lines(self) -> Iterable[LogLine]:
        *whole, rest = (self._rest + "".join(self._records())).split("\n")
        self._rest = rest[-_RECORD_BYTES:]
        for text in whole:
            line = parse_dmesg(text)
            if line is not None:
                yield line

    def _records(self) -> Iterable[str]:
        for _ in range(_MOST_RECORDS):
            try:
                record = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                return
            except OSError as exc:
                if exc.errno == errno.EPIPE:  # some records were overwritten before we came
                    self._fail("records were lost")
                    continue
                self._fail(str(exc))
                return
            if not record:
                return
            yield record.decode(errors="replace")

    def _row(self, text: str, ts: float) -> Row | None:
        xid = parse_xid(text)
        if xid is None:
            return None
        address = None if xid.is_switch else pci_address(xid.pci)
        gpu = None if address is None else self._gpus().get(address)
        logger.warning("Xid", extra={"xid": xid.code, "pci": xid.pci, "gpu": gpu, "text": text})
        return {"ts": ts, "xid": xid.code, "gpu": gpu, "pci": xid.pci, "text": text}

    def _fail(self, cause: str) -> None:
        self.errors += 1
        self.last_error = f"kernel log: {cause}"
