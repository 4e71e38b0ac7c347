"""Brings the limits in force on each GPU to those that the leases ask for, and back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from headroom.agent.actuation.journal import Entry, HeldLimit, Journal, JournalError, Key
from headroom.agent.actuation.knobs import ActuatedGpu, Knob, KnobError
from headroom.agent.actuation.leases import LeaseBook
from headroom.agent.actuation.reports import Reports
from headroom.agent.devices import GpuLostError
from headroom.contracts import LINK_SHARE, SHIP_RATE, Limit, LimitKind, LimitReport, LimitState

__all__ = ["LimitActuator"]

logger = logging.getLogger(__name__)

#: Over how long the mean power before and after a change is measured, s.
_WINDOW_S = 10.0
#: How long what failed is left alone, and how long a GPU that does not answer is waited for, s.
_RETRY_S = 10.0
_ABSENT_S = 10.0
#: Drivers may round a limit to whole units.
_TOLERANCE = 1.0


@dataclass
class _Held:
    """The state of one kind of limit on one GPU in this life of the agent, beside the journal.

    ``limits`` are those that were told to be in force, by their ids.
    """

    limits: dict[str, Limit] = field(default_factory=dict)
    original: float | None = None
    applied: float | None = None
    set_by: Knob | None = None
    set_at: float | None = None
    watts_before: float | None = None
    watts_after: float | None = None
    violation: str = ""


class LimitActuator:
    """Sets, checks and undoes limits. All calls must come from one thread.

    Of several limits of one kind on one GPU the lowest counts. A limit never raises what is in
    force. Where somebody else changes a limit meanwhile, theirs is what will be restored. What an
    earlier life left behind is in the journal, and treated like what this one set.
    """

    def __init__(
        self,
        node: str,
        leases: LeaseBook,
        journal: Journal,
        reports: Reports,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._leases = leases
        self._journal = journal
        self._reports = reports
        self._monotonic = monotonic
        self._held: dict[Key, _Held] = {}
        #: What failed: until when it is left alone, unless other limits are wanted.
        self._resting: dict[Key, tuple[float, set[str]]] = {}
        self._absent_since: dict[tuple[str, int | None], float] = {}
        self._complaint = ""

    def step(self, gpus: Sequence[ActuatedGpu]) -> None:
        """Bring the limits of ``gpus``, all that answer, to those of the leases."""
        now = self._monotonic()
        limits = self._leases.in_force(now)
        for gpu in gpus:
            for kind in LimitKind:
                wanted = [each for each in limits if each.kind == kind and _is_of(each, gpu.index)]
                self._settle(gpu, kind, wanted, now)
        self._refuse_the_rest(limits, {gpu.index for gpu in gpus}, now)
        ids = {limit.id for limit in limits}
        others = (LINK_SHARE, SHIP_RATE)
        self._reports.forget(lambda last: last.kind not in others and last.limit not in ids)

    def stop(self, gpus: Sequence[ActuatedGpu]) -> None:
        """Undo all limits that were set. One that cannot be undone now is at the next start."""
        self._leases.close(self._monotonic())
        self._resting.clear()
        self.step(gpus)
        if self._journal.entries:
            logger.error("limits remain in force", extra={"limits": len(self._journal.entries)})

    # --- One kind of limit on one GPU -------------------------------------------------------------

    def _settle(self, gpu: ActuatedGpu, kind: str, wanted: list[Limit], now: float) -> None:
        key = (gpu.uuid, kind)
        if not wanted and key not in self._held and self._journal.get(key) is None:
            return
        ids = {limit.id for limit in wanted}
        until, failed_with = self._resting.get(key, (0.0, ids))
        knob = gpu.knob(kind)
        if knob is None or (now < until and failed_with == ids):
            return
        try:
            if wanted:
                self._hold(gpu, key, knob, wanted, now)
            else:
                self._release(gpu, key, knob)
            self._resting.pop(key, None)
        except GpuLostError:
            return
        except (KnobError, JournalError) as exc:
            self._resting[key] = (now + _RETRY_S, ids)
            self._fail(gpu, key, wanted, exc)

    def _hold(
        self, gpu: ActuatedGpu, key: Key, knob: Knob, wanted: list[Limit], now: float
    ) -> None:
        held = self._held.setdefault(key, _Held())
        target = min(knob.bounded(limit.value) for limit in wanted)
        in_force = knob.in_force()
        entry = self._journal.get(key)
        if entry is not None and not _is_ours(entry, in_force):
            entry = None  # somebody else changed it: theirs is the original now
        held.original = entry.original if entry else in_force
        if held.original is not None and held.original <= target:
            self._leave_to_the_original(key, knob, entry, held)
        elif entry is None or not _holds(knob, held, entry, in_force, target):
            self._set(gpu, key, knob, entry, target, wanted, now)
        else:
            held.applied = target if in_force is None else in_force
            if entry.limits != _noted(wanted):
                self._journal.put(msgspec.structs.replace(entry, limits=_noted(wanted)))
        self._measure(gpu, knob, held, now)
        self._tell(gpu, held, wanted)

    def _leave_to_the_original(
        self, key: Key, knob: Knob, entry: Entry | None, held: _Held
    ) -> None:
        """Undo our limit: the one in force before is strict enough."""
        if entry is not None:
            knob.restore(entry.original)
        if self._journal.get(key) is not None:
            self._journal.drop(key)
        held.applied = knob.in_force()
        held.set_at = held.watts_before = held.watts_after = None

    def _set(
        self,
        gpu: ActuatedGpu,
        key: Key,
        knob: Knob,
        entry: Entry | None,
        target: float,
        wanted: list[Limit],
        now: float,
    ) -> None:
        """Write down, set, read back."""
        held, before = self._held[key], self._journal.get(key)
        held.watts_before, held.watts_after = gpu.mean_w(now - _WINDOW_S), None
        written = Entry(
            uuid=gpu.uuid,
            gpu=gpu.index,
            kind=key[1],
            original=held.original,
            ours=(*(entry.ours if entry else ()), target),
            limits=_noted(wanted),
        )
        self._journal.put(written)
        try:
            knob.set(target)
        except KnobError as exc:
            if exc.is_refusal:
                self._take_back(key, before)
            raise
        held.set_by, held.set_at, held.violation = knob, now, ""
        told = knob.in_force()
        held.applied = target if told is None else told
        self._journal.put(msgspec.structs.replace(written, ours=(held.applied,)))
        if held.applied > target + _TOLERANCE:
            raise KnobError(f"asked for {target:g}, and {held.applied:g} is in force")
        logger.info(
            "limit set",
            extra={"gpu": gpu.index, "kind": key[1], "value": held.applied, "was": held.original},
        )

    def _take_back(self, key: Key, before: Entry | None) -> None:
        if before is None:
            self._journal.drop(key)
        else:
            self._journal.put(before)

    def _release(self, gpu: ActuatedGpu, key: Key, knob: Knob) -> None:
        """Restore the limit in force before ours, unless somebody else has changed it since."""
        entry, held = self._journal.get(key), self._held.get(key) or _Held()
        limits = held.limits or _limits_of(self._node, entry)
        in_force = held.applied
        if entry is not None:
            in_force = knob.in_force()
            if _is_ours(entry, in_force):
                in_force = self._restore(gpu, knob, entry)
            self._journal.drop(key)
        self._held.pop(key, None)
        for limit in limits.values():
            self._report(
                gpu.index,
                limit,
                self._leases.why_ended(limit.id),
                original=entry.original if entry else held.original,
                applied=in_force,
                watts_before=held.watts_before,
                watts_after=held.watts_after,
            )

    def _restore(self, gpu: ActuatedGpu, knob: Knob, entry: Entry) -> float | None:
        knob.restore(entry.original)
        in_force = knob.in_force()
        if in_force is not None and not _is_close(in_force, entry.original):
            raise KnobError(f"restored {entry.original}, and {in_force} is in force")
        extra = {"gpu": gpu.index, "kind": entry.kind, "value": entry.original}
        logger.info("limit undone", extra=extra)
        return in_force

    # --- What is told -----------------------------------------------------------------------------

    def _measure(self, gpu: ActuatedGpu, knob: Knob, held: _Held, now: float) -> None:
        """Measure the effect of a limit, once, when it has been in force for long enough."""
        if held.set_at is None or now - held.set_at < _WINDOW_S:
            return
        held.watts_after = gpu.mean_w(held.set_at)
        if held.applied is not None:
            held.violation = knob.violation(held.applied)
        held.set_at = None

    def _tell(self, gpu: ActuatedGpu, held: _Held, wanted: list[Limit]) -> None:
        state = LimitState.FAILED if held.violation else LimitState.APPLIED
        told = [(limit, state, held.violation) for limit in wanted]
        ids = {limit.id for limit in wanted}
        told += [
            (limit, self._leases.why_ended(limit.id), "")
            for limit in held.limits.values()
            if limit.id not in ids
        ]
        for limit, its_state, error in told:
            self._report(
                gpu.index,
                limit,
                its_state,
                original=held.original,
                applied=held.applied,
                watts_before=held.watts_before,
                watts_after=held.watts_after,
                error=error,
            )
        held.limits = {limit.id: limit for limit in wanted}

    def _fail(
        self, gpu: ActuatedGpu, key: Key, wanted: list[Limit], exc: KnobError | JournalError
    ) -> None:
        is_refusal = isinstance(exc, KnobError) and exc.is_refusal
        complaint = f"gpu{gpu.index} {key[1]}: {exc}"
        if complaint != self._complaint:
            logger.error("limit not set or not undone", extra={"cause": complaint})
        self._complaint = complaint
        entry, held = self._journal.get(key), self._held.get(key) or _Held()
        for limit in wanted or (held.limits or _limits_of(self._node, entry)).values():
            self._report(
                gpu.index,
                limit,
                LimitState.REFUSED if is_refusal else LimitState.FAILED,
                original=held.original,
                applied=held.applied,
                error=str(exc)[:500].replace("\x00", ""),
            )

    def _refuse_the_rest(self, limits: list[Limit], answering: set[int], now: float) -> None:
        """Report the limits that no GPU here can serve."""
        absent: dict[tuple[str, int | None], float] = {}
        for limit in limits:
            place = (limit.id, limit.gpu)
            if limit.kind not in tuple(LimitKind):
                error = f"this agent knows no limit of kind {limit.kind!r}"
                self._report(limit.gpu, limit, LimitState.REFUSED, error=error)
            elif not any(_is_of(limit, index) for index in answering):
                absent[place] = self._absent_since.get(place, now)
                if now - absent[place] >= _ABSENT_S:
                    which = "no GPU answers" if limit.gpu is None else "this GPU does not answer"
                    self._report(limit.gpu, limit, LimitState.REFUSED, error=which)
        self._absent_since = absent

    def _report(
        self,
        gpu: int | None,
        limit: Limit,
        state: LimitState,
        *,
        original: float | None = None,
        applied: float | None = None,
        watts_before: float | None = None,
        watts_after: float | None = None,
        error: str = "",
    ) -> None:
        self._reports.add(
            LimitReport(
                limit=limit.id,
                node=self._node,
                gpu=gpu,
                kind=limit.kind,
                state=state,
                at=0.0,
                asked=limit.value,
                original=original,
                applied=applied,
                watts_before=watts_before,
                watts_after=watts_after,
                error=error,
            )
        )


def _is_of(limit: Limit, index: int) -> bool:
    return limit.gpu is None or limit.gpu == index


def _is_close(one: float, other: float | None) -> bool:
    return other is not None and abs(one - other) < _TOLERANCE


def _is_ours(entry: Entry, in_force: float | None) -> bool:
    """Return whether the value in force is one that we set; where nobody can tell, it is."""
    return in_force is None or any(_is_close(in_force, value) for value in entry.ours)


def _holds(knob: Knob, held: _Held, entry: Entry, in_force: float | None, target: float) -> bool:
    """Return whether ``target`` is in force.

    Where the driver does not tell: whether we set it last, through this very knob. A knob is new
    after a driver was loaded anew, which knows nothing of what was set.
    """
    if in_force is None:
        return held.set_by is knob and entry.ours == (target,)
    return _is_close(in_force, target)


def _noted(limits: Iterable[Limit]) -> tuple[HeldLimit, ...]:
    return tuple(HeldLimit(limit.id, limit.value) for limit in limits)


def _limits_of(node: str, entry: Entry | None) -> dict[str, Limit]:
    """Return the limits that an entry of an earlier life served."""
    if entry is None:
        return {}
    return {
        each.id: Limit(id=each.id, node=node, kind=entry.kind, value=each.asked, expires_at=0.0)
        for each in entry.limits
    }
