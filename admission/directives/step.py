"""One step of what running jobs are told, done by the cycle of admission.

Each part is a transaction of its own, or several, and looks at what is so *now*: loads,
restrictions, leases, what executors and readings say. What it finds missing it makes good. So a
step may die anywhere, and what fails in one part holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import structlog

from admission.core.response import Responded
from admission.directives import falling_back, outbox, responding, restricting, store
from admission.directives.delivery import deliver
from admission.directives.following import follow
from admission.directives.models import Directive
from admission.directives.placed import Placed, placed_on
from admission.executors.protocol import WorkStatus
from admission.executors.registry import executor_of
from policies import present
from policies.headroom.evaluate import Headroom
from policies.restrictions import store as restrictions
from policies.restrictions.strictest import InForce

__all__ = ["Stepped", "step"]

log = structlog.get_logger(__name__)


@dataclass
class Stepped:
    """What one step has done."""

    running: int = 0
    #: directives of which something is still to be done
    unfinished: int = 0
    signals: int = 0
    #: the parts that failed; the log says how, and the next step tries again
    failed: list[str] = field(default_factory=list)


def step(now: float) -> Stepped:
    """Do one step at ``now`` (Unix s). The caller sees to it that no other does one meanwhile."""
    return _Work(now).run()


class _Work:
    """One step, part by part."""

    def __init__(self, now: float) -> None:
        self.at = datetime.fromtimestamp(now, UTC)
        self.now = now
        self.stepped = Stepped()
        self.responded: Responded | None = None

    @cached_property
    def headroom(self) -> Headroom:
        return present.headroom(self.now)

    @cached_property
    def in_force(self) -> InForce:
        return restrictions.in_force(self.at)

    @cached_property
    def placed(self) -> Placed:
        return placed_on(self.headroom.fleet)

    def run(self) -> Stepped:
        self._part("expire", lambda: store.expire(self.at))
        self._part("outbox", self._take_up)
        self._part("fallback", self._fall_back)
        self._part("restrictions", self._restrict)
        self._part("response", self._respond)
        self._part("shedding", self._shed)
        self._part("delivery", self._deliver)
        self._part("caps", self._hold_caps)
        self._part("reports", lambda: outbox.report(now=self.at))
        self.stepped.running = len(self.placed)
        return self.stepped

    def _part(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception:
            log.exception("directives_part_failed", part=name)
            self.stepped.failed.append(name)

    def _take_up(self) -> None:
        outbox.take_up(self.placed, self.in_force, now=self.at)

    def _fall_back(self) -> None:
        falling_back.fall_back(self.headroom, self.in_force, now=self.at)

    def _restrict(self) -> None:
        restricting.drain(self.placed, self.in_force, now=self.at)
        restricting.shrink(self.placed, self.in_force, now=self.at)

    def _respond(self) -> None:
        self.responded = responding.respond_now(self.placed, self.headroom, now=self.at)

    def _shed(self) -> None:
        responding.shed(self.placed, self.headroom, self.responded, now=self.at)

    def _hold_caps(self) -> None:
        restricting.hold_caps(self.placed, now=self.at)

    def _deliver(self) -> None:
        """Tell jobs what has changed, and follow what they do: first the news, then the answers."""
        rows = _unfinished()
        self.stepped.unfinished = len(rows)
        if not rows:
            return
        self.stepped.signals = deliver(rows, _statuses(rows), now=self.at)
        rows = _unfinished()
        follow(rows, _statuses(rows), self.headroom.fleet, now=self.at)


def _unfinished() -> list[Directive]:
    rows = Directive.objects.unfinished().order_by("id")
    return list(
        rows.select_related("attempt__phase__job", "attempt__control").defer(
            "attempt__phase__job__spec"
        )
    )


def _statuses(rows: Sequence[Directive]) -> dict[str, WorkStatus]:
    """Return what executors say of the attempts of ``rows``, by key."""
    keys: dict[str, set[str]] = {}
    for row in rows:
        keys.setdefault(row.attempt.executor, set()).add(row.attempt.key)
    return {
        status.key: status
        for name, wanted in keys.items()
        for status in executor_of(name).status(sorted(wanted))
    }
