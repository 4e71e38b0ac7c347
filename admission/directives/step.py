"""One step of directing running jobs, done by the cycle of admission over the database.

What its parts are, and in which order, :mod:`admission.core.directives.step` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import structlog

from admission.allocation import open_attempts
from admission.core.directives.step import Manner, Step
from admission.core.holding import Holding
from admission.core.slices import in_parts
from admission.directives import fallback, playbook_requests, store
from admission.directives.delivery import deliver
from admission.directives.following import follow
from admission.directives.models import Directive
from admission.directives.placed import PlacedRows, placed_on
from admission.executors.protocol import WorkStatus
from admission.executors.registry import executor_of
from admission.policy.catalog import policy_in_force
from policies import current
from policies.headroom.columns import Bools
from policies.headroom.evaluate import Headroom
from policies.restrictions import store as restrictions
from policies.restrictions.strictest import InForce

__all__ = ["Stepped", "manner", "step"]

log = structlog.get_logger(__name__)


@dataclass
class Stepped:
    """The results of one step."""

    running: int = 0
    #: directives of which something is still to be done
    unfinished: int = 0
    signals: int = 0
    #: the parts that failed; the log says how, and the next step tries again
    failed: list[str] = field(default_factory=list)


def step(now: float, holding: Holding | None = None) -> Stepped:
    """Do one step at ``now`` (Unix s). The caller must exclude other steps meanwhile.

    ``holding``: what the controller made of this moment; None: it is off, or no agent acts on caps.
    """
    return _Work(now, holding).run()


class _Work(Step):
    """One step over the database."""

    def __init__(self, now: float, holding: Holding | None) -> None:
        at = datetime.fromtimestamp(now, UTC)
        super().__init__(
            at,
            directives=store.book(),
            restrictions=restrictions.book(),
            jobs=fallback.JobRows(at),
            manner=manner(),
        )
        self.now, self._holding = now, holding
        self.stepped = Stepped()

    @cached_property
    def headroom(self) -> Headroom:
        found = current.headroom(self.now)
        return in_parts(found, open_attempts.current(found.fleet).gpus)

    @property
    def kept(self) -> Bools | None:
        holding = self._holding
        if holding is None or holding.headroom.fleet is not self.headroom.fleet:
            return None
        return holding.kept

    @cached_property
    def in_force(self) -> InForce:
        return restrictions.in_force(self.at)

    @cached_property
    def placed(self) -> PlacedRows:
        return placed_on(self.headroom.fleet)

    def run(self) -> Stepped:
        for name, work in self.parts():
            try:
                work()
            except Exception:
                log.exception("directives_part_failed", part=name)
                self.stepped.failed.append(name)
        self.stepped.running = len(self.placed)
        return self.stepped

    def take_up(self) -> None:
        playbook_requests.take_up(self.placed, self.in_force, now=self.at)

    def deliver(self) -> None:
        """Send jobs the changes of their directives, and follow their progress."""
        rows = _unfinished()
        self.stepped.unfinished = len(rows)
        if not rows:
            return
        self.stepped.signals = deliver(rows, _statuses(rows), now=self.at)
        rows = _unfinished()
        follow(rows, _statuses(rows), self.headroom.fleet, now=self.at)

    def report(self) -> None:
        playbook_requests.report(now=self.at)


def manner() -> Manner:
    """Return the settings of a step by the admission policy in force. One query."""
    policy = policy_in_force()
    return Manner(
        response=policy.response, fallback=policy.fallback, shed_after_s=policy.shed_after_s
    )


def _unfinished() -> list[Directive]:
    rows = Directive.objects.unfinished().order_by("id")
    return list(
        rows.select_related("attempt__phase__job", "attempt__control").defer(
            "attempt__phase__job__spec"
        )
    )


def _statuses(rows: Sequence[Directive]) -> dict[str, WorkStatus]:
    """Return the statuses that executors give of the attempts of ``rows``, by key."""
    keys: dict[str, set[str]] = {}
    for row in rows:
        keys.setdefault(row.attempt.executor, set()).add(row.attempt.key)
    return {
        status.key: status
        for name, wanted in keys.items()
        for status in executor_of(name).status(sorted(wanted))
    }
