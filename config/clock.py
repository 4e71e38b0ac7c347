"""Moments by two clocks, whose distance no step of the wall clock changes.

The clock on the wall is set forth and back, by hand or by NTP. What is scheduled, what is a timeout
and what is an age go by the monotonic clock; the wall clock is for what people read and for
readings. A :class:`Moment` is a moment by both.
"""

from __future__ import annotations

import functools
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["Moment"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@functools.cache
def boot_id() -> str:
    """Return an id that processes with the same monotonic clock share: that of the boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        # Not Linux: then only this process knows what its clock means.
        return secrets.token_hex(8)


@dataclass(frozen=True)
class Moment:
    """A moment by both clocks, s: ``elapsed_s`` of the machine's ``boot``, ``at`` of Unix time."""

    boot: str
    elapsed_s: float
    at: float

    @classmethod
    def now(cls) -> Self:
        """Return this moment."""
        return cls(boot_id(), time.monotonic(), time.time())

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of ``str``. Raises ValueError."""
        boot, elapsed_s, at = text.split()
        return cls(boot, float(elapsed_s), float(at))

    def __str__(self) -> str:
        return f"{self.boot} {self.elapsed_s:.6f} {self.at:.6f}"

    @property
    def offset_s(self) -> float:
        """The wall clock less the monotonic one: changes when the clock is set."""
        return self.at - self.elapsed_s

    def age_s(self, now: Moment) -> float:
        """Return the time passed until ``now``, s.

        By the monotonic clock where both are of one machine. Else by the wall, and then it may be
        negative: the clocks of the two machines differ.
        """
        if self.boot == now.boot:
            return now.elapsed_s - self.elapsed_s
        return now.at - self.at
