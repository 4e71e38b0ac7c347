"""The cycle of admission: read queue and fleet, decide, write down, dispatch, publish.

:func:`cycle_once` is done every other second by whichever worker gets to it; of two at once, one
does nothing. Each of its parts is a transaction of its own, or several, and brings about what is so
*now*: what was admitted and not dispatched is dispatched, reasons are compared with those that are
written, the status of the queue is published anew. So it may die anywhere: the next cycle finds the
same differences and makes them good. And what fails in one part holds up no other.

One that is asked for between two beats, since somebody has submitted or a job has ended, is short:
it reconciles only what executors say has changed, and leaves out cordons, directives, shares and
shadows, which go by the beat.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import structlog
from celery.exceptions import SoftTimeLimitExceeded

from admission.core.cycle.decide import Decisions, Waiting, decide
from admission.core.cycle.never import Hopeless
from admission.core.holding import Holding
from admission.core.request import placement_as_json
from admission.cycle import (
    admit,
    adopting,
    cordoning,
    dispatch,
    explaining,
    holding,
    live,
    metrics,
    reconciliation,
)
from admission.cycle.held_back import status_of
from admission.cycle.live import CycleInput
from admission.cycle.reach import Reach
from admission.directives import actions, step
from admission.executors.schedulers import news, standing
from admission.jobs import elements, unlocking
from admission.learned import shares
from admission.policy import shadowing
from admission.queue import queue_status, reasons, starts
from admission.queue.queue_status import PendingStatus, QueueStatus, ReasonLine, TraceLine
from admission.queue.starts import NOT_MADE, Start, Starts
from fleet.locks import only_one
from policies.caps import metrics as held_metrics
from policies.caps import status as held_status

__all__ = ["Cycle", "cycle_once"]

log = structlog.get_logger(__name__)

_hopeless = Hopeless()
_reach = Reach()

#: Of the advisory lock: there is one cycle for a database.
_LOCK = 0x41444D49
#: So many of the first in the queue have all of their reasons published, and their trace.
_IN_FULL = 2_000


@dataclass
class Cycle:
    """The results of one cycle."""

    number: int = 0
    waiting: int = 0
    running: int = 0
    admitted: int = 0
    #: the parts that failed; the log says how, and the next cycle tries again
    failed: list[str] = field(default_factory=list)
    #: None where it has not come to that, or another process was faster
    decisions: Decisions | None = None


def cycle_once(now: float, *, may_be_short: bool = False) -> Cycle | None:
    """Do one cycle at ``now`` (Unix s). None: another process is at it.

    ``may_be_short``: leave out what goes by the beat, if that was done since the last beat.
    """
    with only_one(_LOCK) as held:
        if not held:
            return None
        news.taken_up()
        return _Work(now, is_whole=not may_be_short or news.is_whole_due()).run()


class _Work:
    """One cycle, part by part."""

    def __init__(self, now: float, *, is_whole: bool) -> None:
        self.now, self.is_whole = now, is_whole
        self.at = datetime.fromtimestamp(now, UTC)
        self.cycle = Cycle()
        self.holding: Holding | None = None
        self.has_run_out = False

    def run(self) -> Cycle:
        started = time.perf_counter()
        self._part("adopt", lambda: adopting.adopt(self.now))
        self._part("reconcile", lambda: reconciliation.reconcile(self.now, is_whole=self.is_whole))
        self._part("adopted", lambda: adopting.follow(self.now))
        if self.is_whole:
            self._part("cordon", lambda: cordoning.cordon(self.now))
        self._part("needs", lambda: unlocking.follow(self.at))
        self._part("elements", lambda: elements.release(self.at))
        self._part("decide", self._decide)
        self._part("schedulers", standing.publish)
        if self.is_whole:
            self._part("directives", lambda: step.step(self.now, self.holding))
        took_s = time.perf_counter() - started
        metrics.CYCLE_SECONDS.observe(took_s)
        if self.has_run_out:
            _reach.ran_out()
        else:
            _reach.done(took_s)
        return self.cycle

    def _part(self, name: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        try:
            work()
        except (admit.Overtaken, live.InventoryChanged) as exc:
            # Somebody else was faster, and the next cycle sees what they did.
            log.warning("admission_cycle_overtaken", part=name, why=str(exc))
            self.cycle.failed.append(name)
        except Exception as exc:
            log.exception("admission_cycle_part_failed", part=name)
            self.cycle.failed.append(name)
            self.has_run_out |= isinstance(exc, SoftTimeLimitExceeded)
        failed = name in self.cycle.failed
        metrics.part_done(name, time.perf_counter() - started, failed=failed)

    def _decide(self) -> None:
        """Decide on queue and fleet as they are, and act on it, part by part."""
        inputs = live.read_input(self.now)
        if adopting.count_running(inputs.snapshot.cluster, self.now):
            # What they take is not to be given away.
            inputs = live.read_input(self.now)
        self.holding = inputs.holding
        self._part("control", lambda: self._control(inputs))
        decisions = decide(_reach.within(inputs.snapshot))
        self.cycle.number = inputs.number + 1
        self.cycle.waiting = len(decisions.waiting)
        self.cycle.running = len(inputs.snapshot.running)
        self._part("admit", lambda: self._admit(inputs, decisions))
        if "admit" not in self.cycle.failed:
            self.cycle.decisions = decisions
        self._part("preempt", lambda: self._preempt(inputs, decisions))
        self._part("move", lambda: self._move(inputs, decisions))
        self._part("reasons", lambda: reasons.write(inputs, decisions, self.at))
        self._part("board", lambda: self._publish(inputs, decisions))
        if self.is_whole:
            self._part("shares", lambda: self._note_use(inputs))
            self._part("shadow", lambda: shadowing.ask(inputs, decisions, self.at))

    def _note_use(self, inputs: CycleInput) -> None:
        half_life_s = inputs.policy.shares.half_life_s
        shares.note(inputs.allocations.by_user(), self.now, half_life_s)

    def _control(self, inputs: CycleInput) -> None:
        """Hold what runs, before anything is added to it."""
        if inputs.holding is None:
            holding.let_go(self.now)
            status = None
        else:
            waiting = holding.act(inputs.holding)
            status = status_of(inputs.holding, waiting=waiting)
        held_status.publish(status)
        held_metrics.show(status)

    def _admit(self, inputs: CycleInput, decisions: Decisions) -> None:
        admitted = admit.admit(inputs, decisions.admitted, self.at)
        self.cycle.admitted = len(admitted)
        # After the commit: an executor may be elsewhere. What a crash leaves between the two, the
        # reconciliation of the next cycle dispatches.
        dispatch.dispatch(admitted, self.now)

    def _preempt(self, inputs: CycleInput, decisions: Decisions) -> None:
        attempts = {each.request.key: each.key for each in inputs.allocations.attempts}
        for each in decisions.preempt:
            actions.preempt(
                [attempts[each.key]], for_key=each.for_key, why=each.sentence, now=self.at
            )

    def _move(self, inputs: CycleInput, decisions: Decisions) -> None:
        attempts = {each.request.key: each.key for each in inputs.allocations.attempts}
        for each in decisions.moves.chosen:
            actions.move(
                attempts[each.key], kind=each.kind, for_key=each.for_key, why=each.sentence,
                placement=placement_as_json(each.placement, inputs.allocations.fleet),
                evidence={
                    "gpus": len(each.placement.gpus),
                    "won_gpu_s": round(each.won_gpu_s, 1),
                    "cost_gpu_s": round(each.cost_gpu_s, 1),
                },
                now=self.at,
            )  # fmt: skip

    def _publish(self, inputs: CycleInput, decisions: Decisions) -> None:
        never = _hopeless.look(decisions)
        known = starts.read()
        of_arrays = {
            key: row.told_as for key, row in inputs.rows.items() if row.element is not None
        }
        lines, order = queue_status.in_lines(pending_statuses(decisions, known, never), of_arrays)
        explaining.tell(lines, self.at)
        counts = queue_status.counts(decisions.waiting.values(), self.now)
        metrics.show_queue(counts, inputs.snapshot.classes, self.cycle.running)
        queue_status.publish(
            QueueStatus(
                cycle=self.cycle.number,
                at=self.now,
                waiting=self.cycle.waiting,
                running=self.cycle.running,
                admitted=self.cycle.admitted,
                failed=tuple(self.cycle.failed),
                counts=counts,
            ),
            lines,
            order,
        )
        queue_status.publish_stays(decisions.moves.stays)


def pending_statuses(
    decisions: Decisions, known: Starts | None, never: Mapping[str, str] | None = None
) -> dict[str, PendingStatus]:
    """Return the status of each waiting phase, in order of position.

    ``known``: when they are likely to start, as last estimated; ``never``, by key: why they cannot.
    """
    never = never or {}
    ordered = sorted(decisions.waiting.items(), key=lambda item: item[1].position)
    # Many wait for the very same reasons.
    made: dict[int, tuple[ReasonLine, ...]] = {}
    found = {}
    for key, waiting in ordered:
        in_full = waiting.position <= _IN_FULL
        same = id(waiting.reasons if in_full else waiting.dominant)
        if same not in made:
            made[same] = queue_status.reason_lines(
                waiting.reasons if in_full else [waiting.dominant]
            )
        found[key] = _pending_status(waiting, made[same], known, in_full, decisions.snapshot.now)
        if key in never:
            found[key] = msgspec.structs.replace(
                found[key], never=never[key], p10_s=None, p50_s=None, p90_s=None, basis=""
            )
    return found


def _pending_status(
    waiting: Waiting,
    reasons: tuple[ReasonLine, ...],
    known: Starts | None,
    in_full: bool,
    now: float,
) -> PendingStatus:
    trace = waiting.trace if in_full else ()
    start = known.of(waiting.request.key, now) if known else Start(basis=NOT_MADE)
    return PendingStatus(
        position=waiting.position,
        reasons=reasons,
        p10_s=start.p10_s,
        p50_s=start.p50_s,
        p90_s=start.p90_s,
        basis=start.basis,
        trace=tuple(TraceLine(each.check, each.passed, each.sentence) for each in trace),
    )
