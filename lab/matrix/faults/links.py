"""The links of a command and their present trouble.

``sync`` is what its own processes tell each other, ``storage`` the artifact storage at
``HEADROOM_STORAGE_URL``; others are those that ``--link`` names.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

__all__ = ["STORAGE", "SYNC", "Flow", "Link", "Trouble"]

SYNC = "sync"
STORAGE = "storage"

#: What waits longer than this for a slow link is dropped, as by a switch whose buffer is full, s.
_MOST_QUEUE_S = 0.5
#: In stretches of this length traffic is counted, to tell how fast a link is when it is used, s.
_BIN_S = 0.05


@dataclass(frozen=True)
class Trouble:
    """Trouble on a link: latency, jitter, loss, bandwidth, a cut. The default is none."""

    latency_s: float = 0.0
    jitter_s: float = 0.0
    loss_share: float = 0.0
    bits_per_s: float | None = None
    is_cut: bool = False

    def and_(self, other: Trouble) -> Trouble:
        """Return the trouble of both together."""
        rates = [each for each in (self.bits_per_s, other.bits_per_s) if each is not None]
        return Trouble(
            latency_s=self.latency_s + other.latency_s,
            jitter_s=(self.jitter_s**2 + other.jitter_s**2) ** 0.5,
            loss_share=1 - (1 - self.loss_share) * (1 - other.loss_share),
            bits_per_s=min(rates, default=None),
            is_cut=self.is_cut or other.is_cut,
        )


@dataclass
class Flow:
    """One direction of a link: it carries one packet after the other, in order."""

    free_s: float = 0.0
    last_due_s: float = 0.0


class Link:
    """One link: its present trouble, and the bytes that have passed it."""

    def __init__(self, name: str, *, seed: int = 0) -> None:
        self.name = name
        self.bytes = 0
        self._troubles: dict[int, Trouble] = {}
        self._lock = threading.Lock()
        self._random = random.Random(f"{name} {seed}")  # noqa: S311 - losses, not secrets
        self._bins: deque[tuple[int, int]] = deque()
        self.trouble = Trouble()

    def begin(self, fault: int, trouble: Trouble) -> None:
        """Begin the trouble of a fault, by its number."""
        with self._lock:
            self._troubles[fault] = trouble
            self.trouble = _together(self._troubles.values())

    def end(self, fault: int) -> None:
        """End the trouble of a fault."""
        with self._lock:
            self._troubles.pop(fault, None)
            self.trouble = _together(self._troubles.values())

    def count(self, size: int, now_s: float) -> None:
        """Count the bytes sent."""
        self.bytes += size
        number = int(now_s / _BIN_S)
        if self._bins and self._bins[-1][0] == number:
            self._bins[-1] = (number, self._bins[-1][1] + size)
        else:
            self._bins.append((number, size))

    def busy_bits_per_s(self) -> float | None:
        """Return the link's rate over the times when it was used; None: it never was."""
        if not self._bins:
            return None
        return 8 * sum(size for _, size in self._bins) / (len(self._bins) * _BIN_S)

    def due_s(self, flow: Flow, size: int, now_s: float) -> float | None:
        """Return when a packet sent now arrives; None: it is lost."""
        trouble = self.trouble
        if trouble.is_cut or self._is_lost(trouble.loss_share):
            return None
        sent_s = now_s
        if trouble.bits_per_s is not None:
            sent_s = max(now_s, flow.free_s) + 8 * size / trouble.bits_per_s
            if flow.free_s - now_s > _MOST_QUEUE_S:
                return None
            flow.free_s = sent_s
        return self._arrives(flow, sent_s, trouble)

    def stream_due_s(
        self, flow: Flow, size: int, now_s: float, *, segment: int, timeout_s: float
    ) -> float:
        """Return when a piece of a stream arrives: lost packets are sent again, and later."""
        trouble = self.trouble
        sent_s = now_s
        if trouble.bits_per_s is not None:
            sent_s = max(now_s, flow.free_s) + 8 * size / trouble.bits_per_s
            flow.free_s = sent_s
        whole = (1 - trouble.loss_share) ** max(1, -(-size // segment))
        wait_s = timeout_s
        while trouble.loss_share < 1 and self._is_lost(1 - whole):
            sent_s += wait_s
            wait_s = min(2 * wait_s, 16 * timeout_s)
        return self._arrives(flow, sent_s, trouble)

    def _arrives(self, flow: Flow, sent_s: float, trouble: Trouble) -> float:
        jitter_s = self._random.gauss(0, trouble.jitter_s) if trouble.jitter_s else 0.0
        # Packets do not overtake each other: for TCP that would be loss.
        flow.last_due_s = max(flow.last_due_s, sent_s + max(0.0, trouble.latency_s + jitter_s))
        return flow.last_due_s

    def _is_lost(self, share: float) -> bool:
        return share > 0 and self._random.random() < share


def _together(troubles: Iterable[Trouble]) -> Trouble:
    found = Trouble()
    for each in troubles:
        found = found.and_(each)
    return replace(found)
