"""What a bridge has told the server: reports hold what has changed since the last that was heard.

Bridges keep nothing on disk. A life of a bridge is a session, which begins with all there is.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from headroom.schedulers.contract import (
    JobState,
    SchedulerJob,
    SchedulerKind,
    SchedulerNode,
    SchedulerReport,
    WhenAway,
)

__all__ = ["Telling"]

#: All there is goes to the server this often, s, for what a report may have missed.
_ALL_EVERY_S = 300.0


class Telling:
    """The reports of one life of a bridge. What is sent counts as told once it was answered."""

    def __init__(self, kind: SchedulerKind, clock: Callable[[], float]) -> None:
        self._kind, self._clock = kind, clock
        self._session = secrets.token_hex(8)
        self._told: dict[str, SchedulerJob] = {}
        self._told_nodes: Sequence[SchedulerNode] | None = None
        self._all_at = -float("inf")
        self._commented: list[str] = []
        self._heard_at = clock()

    @property
    def silent_s(self) -> float:
        """How long the server was not heard, s."""
        return self._clock() - self._heard_at

    def commented(self, refs: Sequence[str]) -> None:
        """Have the next report say that the last comments of these jobs were written."""
        self._commented += refs

    def report(
        self,
        jobs: Mapping[str, SchedulerJob],
        nodes: list[SchedulerNode],
        *,
        version: str,
        when_away: WhenAway,
    ) -> SchedulerReport:
        """Return what has changed, or all there is where it is due."""
        is_all = self._clock() - self._all_at >= _ALL_EVERY_S
        # What has ended before we came is nobody's business.
        alive = {
            ref: job
            for ref, job in jobs.items()
            if job.state is not JobState.ENDED or ref in self._told or is_all
        }
        return SchedulerReport(
            kind=self._kind,
            session=self._session,
            version=version,
            when_away=when_away,
            complete=is_all,
            jobs=[job for ref, job in alive.items() if is_all or self._told.get(ref) != job],
            gone=sorted(self._told.keys() - jobs.keys()),
            commented=self._commented,
            nodes=nodes if is_all or nodes != self._told_nodes else None,
        )

    def heard(self, report: SchedulerReport) -> None:
        """Take a report for told: the server has answered it."""
        self._heard_at = self._clock()
        if report.complete:
            self._all_at = self._clock()
            self._told = {}
        self._told |= {job.ref: job for job in report.jobs}
        for ref in report.gone:
            self._told.pop(ref, None)
        if report.nodes is not None:
            self._told_nodes = report.nodes
        self._commented = []

    def begin_anew(self) -> None:
        """Have the next report hold all there is."""
        self._all_at = -float("inf")
