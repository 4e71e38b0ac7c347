"""Delivery of directives: telling jobs of those in force, and undoing those that have ended.

What an attempt is to do is made anew from all that is in force for it: the smallest batch, the
lowest cap, paused if anybody wants it so. It is told what differs from what it was told last. So a
directive that ends is undone by its absence, and whoever dies before that leaves the difference to
the next step. What is told and that it was told are one commit where the executor's queue is in
the same database; other executors take a signal twice without harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import structlog
from django.db import transaction

from admission.core.directives.book import desired_of
from admission.directives import store
from admission.directives.models import Control, Directive
from admission.executors.protocol import Executor, SignalKind, WorkStatus, WorkStatusState
from admission.executors.registry import executor_of
from admission.jobs.models import Attempt

__all__ = ["deliver"]

log = structlog.get_logger(__name__)

_Kind = Directive.Kind
#: The signal for each kind that lasts, and for its end.
_PAUSES = {True: SignalKind.PAUSE, False: SignalKind.RESUME}


def deliver(rows: Sequence[Directive], statuses: Mapping[str, WorkStatus], *, now: datetime) -> int:
    """Send attempts the changes of their directives; return how many signals that took.

    ``rows``: unfinished directives, with their attempts and the controls of these. One that cannot
    be told holds up no other.
    """
    by_attempt: dict[int, list[Directive]] = {}
    for row in rows:
        by_attempt.setdefault(row.attempt_id, []).append(row)
    count = 0
    for given in by_attempt.values():
        attempt = given[0].attempt
        if attempt.state == Attempt.State.ENDED:
            continue
        try:
            with transaction.atomic():
                count += _Telling(attempt, given, statuses.get(attempt.key), now).tell()
        except Exception:
            log.exception("directive_not_delivered", attempt=attempt.key)
    return count


class _Telling:
    """The signals to one attempt."""

    def __init__(
        self,
        attempt: Attempt,
        rows: Sequence[Directive],
        status: WorkStatus | None,
        now: datetime,
    ) -> None:
        self.attempt, self.rows, self.status, self.now = attempt, rows, status, now
        self.executor: Executor = executor_of(attempt.executor)
        self.control = getattr(attempt, "control", None) or Control(attempt=attempt)
        self.count = 0

    def tell(self) -> int:
        in_force = [row for row in self.rows if row.ended_at is None and row.expires_at > self.now]
        self._resume(in_force)
        wanted = desired_of(row for row in in_force if row.ended_at is None)
        for kind, was, is_to_be in (
            (_Kind.SET_BATCH_SCALE, self.control.batch_scale, wanted.batch_scale),
            (_Kind.SET_POWER_CAP, self.control.power_cap_w, wanted.power_cap_w),
            (_Kind.PAUSE, self.control.is_paused, wanted.is_paused),
        ):
            if was != is_to_be:
                self._set(kind, is_to_be)
            self._link(kind, is_told=was == is_to_be or self._told(kind) == is_to_be)
        for row in in_force:
            if row.kind == _Kind.CHECKPOINT and row.signal_seq is None:
                self._once(row, SignalKind.CHECKPOINT)
            elif row.kind in Directive.ENDING:
                self._end(row)
        return self.count

    def _signal(self, kind: SignalKind, value: float | None = None, why: str = "") -> int | None:
        seq = self.executor.signal(
            self.attempt.key, kind, self.now.timestamp(), value=value, why=why
        )
        self.count += seq is not None
        return seq

    # --- What lasts -------------------------------------------------------------------------------

    def _set(self, kind: str, value: float | bool | None) -> None:
        if kind == _Kind.PAUSE:
            seq = self._signal(_PAUSES[bool(value)])
        else:
            seq = self._signal(SignalKind(kind), value)
        if seq is None:
            return
        if kind == _Kind.PAUSE:
            self.control.is_paused, self.control.pause_seq = bool(value), seq
        elif kind == _Kind.SET_BATCH_SCALE:
            self.control.batch_scale, self.control.batch_scale_seq = float(value or 1.0), seq
        else:
            self.control.power_cap_w, self.control.power_cap_seq = value, seq
        self.control.save()

    def _told(self, kind: str) -> float | bool | None:
        control = self.control
        return {
            _Kind.PAUSE: control.is_paused,
            _Kind.SET_BATCH_SCALE: control.batch_scale,
            _Kind.SET_POWER_CAP: control.power_cap_w,
        }[_Kind(kind)]

    def _link(self, kind: str, *, is_told: bool) -> None:
        """Note which signal carried each directive, and each undoing."""
        if not is_told:
            return
        control = self.control
        seq = {
            _Kind.PAUSE: control.pause_seq,
            _Kind.SET_BATCH_SCALE: control.batch_scale_seq,
            _Kind.SET_POWER_CAP: control.power_cap_seq,
        }[_Kind(kind)]
        for row in self.rows:
            if row.kind != kind:
                continue
            if row.ended_at is None and row.signal_seq is None:
                row.signal_seq = seq
                row.save(update_fields=["signal_seq"])
            elif row.ended_at is not None and row.undo_seq is None and row.signal_seq is not None:
                row.undo_seq = seq
                row.save(update_fields=["undo_seq"])

    # --- What is done once ------------------------------------------------------------------------

    def _resume(self, in_force: Sequence[Directive]) -> None:
        """End the pauses that others asked for, so that the job goes on."""
        for row in in_force:
            if row.kind != _Kind.RESUME or row.signal_seq is not None:
                continue
            pauses = [each for each in in_force if each.kind == _Kind.PAUSE]
            store.book().end(pauses, now=self.now, by=row.owner, why=row.reason)
            if self.control.response:
                # The response looks again from the start. If there is no room, it pauses again.
                self.control.response = {}
                self.control.save()
            row.signal_seq = 0
            row.save(update_fields=["signal_seq"])

    def _once(self, row: Directive, kind: SignalKind) -> None:
        seq = self._signal(kind, why=row.reason)
        if seq is not None:
            row.signal_seq = seq
            row.save(update_fields=["signal_seq"])

    def _end(self, row: Directive) -> None:
        """Have the attempt save, and end when it has, or when its time for that is up."""
        if "stop_seq" in row.arguments:
            return
        if row.signal_seq is None and self._can_save(row):
            self._once(row, SignalKind.CHECKPOINT)
        if row.signal_seq is not None and not self._has_saved(row):
            return
        seq = self._signal(SignalKind.STOP, why=row.reason)
        if seq is not None:
            row.arguments = {**row.arguments, "stop_seq": seq}
            row.signal_seq = seq if row.signal_seq is None else row.signal_seq
            row.save(update_fields=["arguments", "signal_seq"])

    def _can_save(self, row: Directive) -> bool:
        runs = self.status is not None and self.status.state == WorkStatusState.RUNNING
        # What stands still does not save; to have it go on would draw what is not there.
        return runs and row.arguments.get("save_s", 0.0) > 0 and not self.control.is_paused

    def _has_saved(self, row: Directive) -> bool:
        save_s = float(row.arguments.get("save_s", 0.0))
        is_late = (self.now - row.issued_at).total_seconds() >= save_s
        if is_late or self.status is None or row.signal_seq is None:
            return is_late
        saved_at = self.status.checkpoint_at
        has_written = saved_at is not None and saved_at >= row.issued_at.timestamp()
        return has_written or self.status.signals_done >= row.signal_seq
