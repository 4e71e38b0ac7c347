"""Xid errors of GPUs, and SXid errors of NVSwitches, as the kernel logs them."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from headroom.agent.devices import Block, Row

__all__ = [
    "KernelLog",
    "LogLine",
    "XidLine",
    "parse_kmsg",
    "parse_line",
    "parse_xid",
    "pci_address",
]

logger = logging.getLogger(__name__)

#: The kernel's longest record, escapes included.
_RECORD_BYTES = 8192
#: The most records that one reading takes: a kernel that floods its log must not stop the agent.
_MOST_RECORDS = 10_000

_KMSG = re.compile(r"(\d+),(\d+),(\d+),[^;]*;([^\n]*)")
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
#: What may stand before a stamp: the priority as ``dmesg -r`` or ``-x`` write it.
_PRIORITY = r"(?:<\d+>|\w+ *: *\w+ *: *)?"
_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_DAY = r"(?P<day>[ \d]\d)"
#: The stamps that dmesg and journald write.
_STAMPS = tuple(
    re.compile(_PRIORITY + stamp)
    for stamp in (
        # dmesg --time-format=iso; journalctl -o short-iso, short-iso-precise, short-full; syslog
        r"(?:\w{3} )?(?P<date>\d{4}-\d\d-\d\d)[T ]" + _CLOCK
        + r" ?(?P<zone>Z|[+-]\d\d:?\d\d|[A-Z]{3,5}\b)?:? ",
        # dmesg --ctime
        rf"\[\w{{3}} {_MONTH} {_DAY} {_CLOCK} (?P<year>\d{{4}})\]:? ?",
        # journalctl -o short, short-precise
        rf"{_MONTH} {_DAY} {_CLOCK}:? ",
        # journalctl -o short-unix
        r"(?P<unix>\d{9,11}\.\d+):? ",
        # dmesg as it is, with --show-delta; journalctl -o short-monotonic
        r"\[ *(?P<boot>\d+\.\d+)(?: +<[^>]*>)?\]:? ?",
        # dmesg --reltime: after the line before, or a minute
        r"\[ *\+(?P<after>\d+\.\d+)\]:? ?",
        rf"\[{_MONTH}{_DAY} (?P<minute>\d\d:\d\d)\]:? ?",
        # dmesg --time-format=delta
        r"[\[<] *[<]? *(?P<delta>\d+\.\d+)>\]? ?",
    )
)  # fmt: skip
#: What journald puts between stamp and text: host and origin; and what syslog keeps of the kernel's
#: own stamp.
_ORIGIN = re.compile(r"(?:\S+ kernel(?:\[\d+\])?: )?(?:\[ *\d+\.\d+\] ?)?")
#: Lines of one stamp are this far apart, so that each is a row of its own, s.
_APART_S = 1e-5
_XID = re.compile(
    r"(?:NVRM: Xid|nvidia-nvswitch\d+: (?P<switch>SXid)) "
    r"\((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d{1,6})\b"
)


@dataclass(frozen=True)
class LogLine:
    """One line of the kernel log. ``at_s``: since boot, or Unix time, as the log has it; or NaN."""

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


def parse_line(line: str, before_s: float = math.nan) -> LogLine:
    """Read one line as dmesg, journald or syslog write it, in whichever of their formats.

    A stamp without a time zone is in that of this machine. ``before_s`` is the time of the line
    before, from which some formats count. ``at_s`` is NaN where there is no stamp that is known.
    """
    for stamp in _STAMPS:
        found = stamp.match(line)
        if found is not None:
            text = line[found.end() :]
            return LogLine(_time_of(found.groupdict(), before_s), text[_origin_end(text) :])
    return LogLine(math.nan, line)


def _origin_end(text: str) -> int:
    found = _ORIGIN.match(text)
    return found.end() if found else 0


def _time_of(stamp: Mapping[str, str | None], before_s: float) -> float:
    """Return the time of a stamp by the parts that it has; NaN where there is no such time."""
    for seconds in (stamp.get("boot"), stamp.get("unix")):
        if seconds:
            return float(seconds)
    passed = stamp.get("after") or stamp.get("delta")
    if passed:
        return before_s + float(passed)
    clock = (stamp.get("clock") or f"{stamp.get('minute')}:00").replace(",", ".")
    try:
        if stamp.get("date"):
            return _iso_time(f"{stamp['date']}T{clock}", stamp.get("zone") or "")
        month, day = _MONTHS.index(stamp["month"] or "") + 1, int(stamp["day"] or "")
        year = int(stamp.get("year") or 0)
        now = datetime.now()  # noqa: DTZ005 - as the stamp: of this machine's time zone
        at = datetime.fromisoformat(f"{year or now.year}-{month:02}-{day:02}T{clock}")
        if not year and at > now + timedelta(days=1):
            at = at.replace(year=at.year - 1)
        return at.astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return math.nan


def _iso_time(text: str, zone: str) -> float:
    is_offset = zone[:1] in ("+", "-")
    if zone in ("Z", "UTC", "GMT"):
        zone, is_offset = "+00:00", True
    at = datetime.fromisoformat(text + zone if is_offset else text)
    return at.astimezone().timestamp() if at.tzinfo is None else at.timestamp()


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


def _apart(rows: list[Row]) -> list[Row]:
    """Return the rows with times that differ: many lines may have one stamp."""
    last_s = -math.inf
    found: list[Row] = []
    for row in rows:
        last_s = max(float(row["ts"] or 0.0), last_s + _APART_S)
        found.append({**row, "ts": last_s})
    return found


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
        #: The time of the last line that has one.
        self._before_s = 0.0

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
        now = self._clock()
        newest = next((line.at_s for line in reversed(lines) if not math.isnan(line.at_s)), 0.0)
        rows: list[Row] = []
        for line in lines:
            lag_s = 0.0 if math.isnan(line.at_s) else max(0.0, newest - line.at_s)
            row = self._row(line.text, now - lag_s)
            if row is not None:
                rows.append(row)
        return _apart(rows)

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
            line = parse_line(text, self._before_s)
            if not math.isnan(line.at_s):
                self._before_s = line.at_s
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
