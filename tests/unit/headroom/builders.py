"""Small things that several tests need."""

from __future__ import annotations

from headroom.contracts import HostColumns, NodeReport, TelemetryBatch


def make_batch(mark: float = 1.0, *, agent: str = "a1", seq: int = 1) -> TelemetryBatch:
    """A batch that can be told from others by ``mark``."""
    return TelemetryBatch(
        agent=agent,
        boot_id="b1",
        seq=seq,
        oldest_seq=1,
        sent_at=0.0,
        nodes=[NodeReport(node="n1", host=HostColumns(ts=[mark], cpu_util=[1.0]))],
    )


def mark_of(batch: TelemetryBatch) -> float:
    """What :func:`make_batch` was given."""
    host = batch.nodes[0].host
    assert host is not None
    return host.ts[0]


class Clock:
    """A clock that a test moves."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
