"""The loop of a job in the twin: it reports and hears by the library that real loops use.

Its steps are those that the twin makes: between two looks at it, it tells the library of each whole
one. One session stands for all ranks of the job, which in the twin keep the same pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from headroom.agent.devices import Row
from headroom.agent.sources.training import Fold
from headroom.training.groups import Alone
from headroom.training.reports import RankReport
from headroom.training.sections import Section
from headroom.training.session import Session
from headroom.work.contract import SignalOrder
from headroom.work.folder import Directives, JobStatus
from lab.training.table import BEFORE, JobTable

__all__ = ["Loop"]

#: What keeps a job from its steps, as loops name it; all else prepares it.
_LOST = {"saving": Section.CHECKPOINT_SAVE, "evaluating": Section.EVALUATION}


class _Memory:
    """The directives to a loop and what it says of them: the two files, in memory.

    Pauses it does not hear of: its machine stops it, as it does with what hears nothing.
    """

    def __init__(self) -> None:
        self.given = Directives()
        self.said = JobStatus()

    def read(self) -> Directives:
        return msgspec.structs.replace(self.given, paused=0)

    def say(
        self,
        *,
        done: int | None = None,
        step: int | None = None,
        checkpoint_at: float | None = None,
    ) -> None:
        if done is not None:
            self.said = msgspec.structs.replace(self.said, done=done, step=step)


class _Desk:
    """The agent's end of the reports. What memory the twin's own process has is left out."""

    dropped = 0

    def __init__(self) -> None:
        self.fold = Fold()

    def send(self, report: RankReport) -> bool:
        self.fold.add(msgspec.structs.replace(report, memory_bytes=0))
        return True

    def close(self) -> None:
        """Nothing is held."""


class Loop:
    """The loop of the job in ``slot`` of ``table``, from the step that it begins at."""

    def __init__(
        self,
        table: JobTable,
        slot: int,
        *,
        clock: Callable[[], float],
        scale: Callable[[float], object],
    ) -> None:
        """``clock``: of the twin, s. ``scale`` is called with a new share of the batch."""
        self._table, self._slot = table, slot
        self._memory, self._desk = _Memory(), _Desk()
        self._saved_steps = float(table.durable_steps[slot])
        self._ends_at_once = False
        self._session = Session(
            mailbox=self._memory,
            group=Alone(),
            sender=self._desk,
            step=int(table.steps[slot]),
            clock=clock,
            on_change=lambda session: scale(session.batch_scale),
            on_leave=lambda: None,
        )
        self._session.begin()

    @property
    def done(self) -> int:
        """The last directive that it has carried out."""
        return self._memory.said.done

    @property
    def done_at_step(self) -> int | None:
        """The step at which it did."""
        return self._memory.said.step

    @property
    def has_left(self) -> bool:
        """Whether it was asked to leave, and has saved."""
        has_saved = self._session.is_leaving and not self._session.checkpoint_due
        return has_saved or self._ends_at_once

    @property
    def step(self) -> int:
        """How many whole steps it has made, those of earlier attempts included."""
        return self._session.step_number

    def hear(self, signals: Sequence[SignalOrder]) -> None:
        """Pass directives on to it."""
        for signal in signals:
            self._memory.given.take(signal)

    def leave(self) -> None:
        """Ask it to save, and to end. What still loads catches no signal, and ends at once."""
        self._ends_at_once = bool(self._table.phase[self._slot] == BEFORE)
        self._session.ask_to_leave()

    def advance(self, dt_s: float) -> bool:
        """Tell of what the twin did in the last ``dt_s``; return whether it has saved meanwhile."""
        table, slot, session = self._table, self._slot, self._session
        if lost_in := table.stands_in(slot):
            session.spent(_LOST.get(lost_in, Section.TRAINING_PREPARATION), dt_s)
        has_saved = float(table.durable_steps[slot]) > self._saved_steps
        self._saved_steps = float(table.durable_steps[slot])
        loss = table.loss(slot) if table.learns(slot) else None
        for _ in range(session.step_number, int(table.steps[slot])):
            session.spent(Section.GRADIENT_SYNC, table.exchange_s(slot))
            session.step(loss=loss)
        if session.checkpoint_due:
            self._save_or_say()
        return has_saved

    def _save_or_say(self) -> None:
        if self._saved_steps >= self.step:
            self._session.saved()
        else:
            self._table.save(self._slot)

    def row(self, job: str) -> Row | None:
        """Return its progress since the last row, as agents report it; None: there is none."""
        return self._desk.fold.row(job)

    def end(self) -> None:
        """Report what it has not reported yet."""
        self._session.end()
