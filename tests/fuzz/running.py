"""Sends the requests of a seed, some at a time, and judges what comes back."""

from __future__ import annotations

import itertools
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.making import Maker
from tests.fuzz.sending import Got, Sender, Sent

#: An answer that takes longer than this is a fault.
MOST_SECONDS = 5.0
#: The web processes may grow by so much between the first third of a run and its end.
MOST_GROWTH_SHARE, MOST_GROWTH_MIB = 0.10, 20.0
#: What our own answers have: the REST API's, a page, a line of text.
_OURS = (b'"code":', b"<h1>", b"the most that it may be")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")


@dataclass
class Report:
    """What came of a run. ``faults`` are what no request may bring about, in words."""

    requests: int = 0
    by_status: Counter[int] = field(default_factory=Counter)
    by_kind: Counter[tuple[str, int]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    slowest: str = ""
    #: what took longer than it may, each with its number and its answer
    slow: list[tuple[int, Sent, Got]] = field(default_factory=list)
    #: MiB of all web processes, after each part of the run
    memory_mib: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def grew_too_much(self) -> bool:
        """Say whether memory grew by more than it may from a third of the run to its end."""
        early, late = self.memory_mib[len(self.memory_mib) // 3], self.memory_mib[-1]
        return late > early * (1 + MOST_GROWTH_SHARE) + MOST_GROWTH_MIB

    def add(self, number: int, sent: Sent, got: Got) -> None:
        with self._lock:
            self.requests += 1
            self.by_status[got.status] += 1
            self.by_kind[sent.kind, got.status] += 1
            if got.seconds > self.slowest_s:
                self.slowest_s, self.slowest = got.seconds, f"#{number} {sent}"
            if got.seconds > MOST_SECONDS:
                self.slow.append((number, sent, got))
            elif fault := _fault(got):
                self.faults.append(f"#{number} {fault}: {sent}")


def _fault(got: Got) -> str:
    if got.status == 0:
        return f"no answer ({got.body.decode('utf-8', 'replace')[:100]})"
    if got.status >= 500 and not _is_deliberate(got):
        return str(got.status)
    return ""


def _is_deliberate(got: Got) -> bool:
    """Say whether a 503 is one of ours, which says what is the matter."""
    return got.status == 503 and any(mark in got.body for mark in _OURS)


def run(
    url: str,
    maker: Maker,
    numbers: range,
    *,
    threads: int = 6,
    report: Report | None = None,
) -> Report:
    """Send the requests of ``numbers``, ``threads`` of them at a time."""
    report = report or Report()
    left: Iterator[int] = iter(numbers)
    lock = threading.Lock()

    def work() -> None:
        sender = Sender(url)
        while True:
            with lock:
                number = next(left, None)
            if number is None:
                break
            sent = maker.make(number)
            report.add(number, sent, sender.send(sent))
        sender.close()

    crew = [threading.Thread(target=work) for _ in range(threads)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    return report


def send_slow_again(url: str, report: Report) -> None:
    """Send what was slow once more, alone: a fault is what is slow by itself.

    Under load, and on a machine that others use, anything may have to wait for its turn.
    """
    sender = Sender(url)
    for number, sent, got in report.slow:
        again = sender.send(sent)
        took = f"{got.seconds:.1f} s and {again.seconds:.1f} s"
        if again.seconds > MOST_SECONDS:
            report.faults.append(f"#{number} {got.status} after {took}: {sent}")
        elif fault := _fault(again) or (_fault(got) if got.status else ""):
            report.faults.append(f"#{number} {fault} after {took}: {sent}")
    sender.close()


class Logs:
    """What processes have written of errors since this was made, or last asked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[int, int] = {}
        self.tracebacks()

    def tracebacks(self) -> list[str]:
        """Return the tracebacks that are new, each with the file that it stands in."""
        found: list[str] = []
        for path in sorted(self._folder.glob("*.log*")):
            key = path.stat().st_ino  # a file that is full gets another name
            with path.open("rb") as file:
                file.seek(self._read.get(key, 0))
                text = file.read().decode("utf-8", "replace")
                self._read[key] = file.tell()
            found += [f"{path.name}: {each}" for each in _blocks(text)]
        return found


def _blocks(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if _TRACEBACK.search(line):
            yield "\n".join(itertools.islice(lines, max(at - 2, 0), at + 60))
