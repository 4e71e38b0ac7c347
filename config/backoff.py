"""The wait before a dead process is started again."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Backoff"]


@dataclass
class Backoff:
    """Doubling delay, from `first_s` to `longest_s`, forgotten after `healthy_after_s` alive."""

    first_s: float = 0.2
    longest_s: float = 10.0
    healthy_after_s: float = 30.0
    _next_s: float = field(default=0.0, init=False)

    def delay_s(self, lived_s: float) -> float:
        """Return the wait before the next start of something that lived for `lived_s`."""
        if lived_s >= self.healthy_after_s or not self._next_s:
            self._next_s = self.first_s
        delay = self._next_s
        self._next_s = min(delay * 2, self.longest_s)
        return delay
