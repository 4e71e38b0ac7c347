"""A training loop that reports its steps, and obeys directives at the same step on all ranks."""

from __future__ import annotations

import logging
import math
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ParamSpec, SupportsFloat, TypeVar

from headroom.training.batch import Batch, Part, Plan
from headroom.training.groups import Group, current_group, world_of
from headroom.training.hearing import NOTHING, Channel, Mailbox, Told
from headroom.training.reports import MOST_FLOP, SOCKET, Outlet, RankReport, Sender
from headroom.training.sections import Section, Sections
from headroom.work.folder import Directives

__all__ = ["Leave", "Session", "session"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

#: How often ranks look for something new, at most, s, and the most steps in between.
_HEAR_S = 1.0
_MOST_STEPS = 1000
#: How often a rank reports, s.
_REPORT_S = 1.0
#: How often a rank that stands still looks whether it may go on, s.
_LOOK_S = 0.05
#: What shells make of the end by SIGTERM. Whoever ends so has not finished.
_LEFT = 128 + signal.SIGTERM


class Leave(SystemExit):
    """The job was told to end here: it has saved, and goes on elsewhere or later."""

    def __init__(self) -> None:
        super().__init__(_LEFT)


class Session(Sections):
    """One rank of a loop. Without a ``mailbox`` it measures, and otherwise does nothing.

    Without a ``group`` there are other ranks with which this one cannot agree: it reports, and
    hears nothing. See :func:`session` for the rest.
    """

    def __init__(
        self,
        *,
        mailbox: Channel | None,
        group: Group | None,
        sender: Outlet | None = None,
        save: Callable[[int], object] | None = None,
        step: int = 0,
        batch: Batch | None = None,
        free: Callable[[], object] | None = None,
        restore: Callable[[], object] | None = None,
        on_change: Callable[[Session], object] | None = None,
        on_leave: Callable[[], object] | None = None,
        takes_term: bool = False,
        flops_per_step: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(clock)
        self._mailbox = mailbox if group is not None else None
        self._group = group
        self._sender = sender
        self._save, self._free, self._restore = save, free, restore
        self._on_change, self._on_leave = on_change, on_leave
        self._batch = batch
        self._plan = batch.under(1.0) if batch is not None else None
        self._wait = wait
        #: steps made, those of earlier lives included
        self.step_number = step
        #: what the model takes in a step, of all ranks together; 0: not told. The loop may change
        #: it, as where sequences become longer
        self.flops_per_step = flops_per_step
        #: whether the loop has to save by itself, and to call :meth:`saved`
        self.checkpoint_due = False
        #: whether the loop was told to end
        self.is_leaving = False
        self._saved_step: int | None = None
        self._told = NOTHING
        self._said_seq = 0
        self._to_hear = 1
        self._heard_s, self._heard_step = clock(), step
        self._loss: SupportsFloat | None = None
        self._reported_s, self._reported = clock(), self.counts.copy()
        self._report_at = self._reported_s + _REPORT_S
        self._asked_to_leave = False
        self._takes_term = takes_term
        self._handler_before: Any = None

    def __enter__(self) -> Session:
        if self._mailbox is not None:
            self._catch_term()
        self.begin()
        return self

    def begin(self) -> None:
        """Say that the loop begins, and that directives are heard.

        In place of ``with``, where signals mean something else. Whoever calls it asks the session
        to end by :meth:`ask_to_leave`, and ends it by :meth:`end`.
        """
        if self._sender is not None:
            # What was before this was the start; what comes now is steps.
            self._report(self._clock())
        if self._mailbox is not None:
            self._say()
            self._offer()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._handler_before is not None:
            signal.signal(signal.SIGTERM, self._handler_before)
        # Where something went wrong, the others may never offer what is waited for here.
        if self._group is not None and self._mailbox is not None and exc is None:
            self._group.close()
        self.end()

    def end(self) -> None:
        """Report what was not reported yet."""
        if self._sender is not None:
            self._report(self._clock())
            self._sender.close()

    # --- What the loop calls ----------------------------------------------------------------------

    def step(self, *, loss: SupportsFloat | None = None, samples: int = 0, tokens: int = 0) -> None:
        """Count a step of this rank with its samples and tokens, and do what the job was told.

        Every rank calls it after every step of the optimizer. ``loss`` may be a tensor: it becomes
        a number once in a second, which on a GPU waits for what was queued there. Raises
        :class:`Leave` where the job was told to end.
        """
        self.step_number += 1
        counts = self.counts
        counts.steps += 1
        counts.samples += samples
        counts.tokens += tokens
        self._loss = loss
        if self._mailbox is not None:
            self._to_hear -= 1
            if self._to_hear <= 0:
                self._hear()
        if self._sender is not None and (now := self._clock()) >= self._report_at:
            self._report(now)

    def batches(self, source: Iterable[T]) -> Iterator[T]:
        """Yield what ``source`` has, and count how long each was waited for."""
        waiting = iter(source)
        while True:
            began_s = self._clock()
            try:
                found = next(waiting)
            except StopIteration:
                return
            self.spent(Section.DATA_LOADING, self._clock() - began_s)
            yield found

    def wrap(self, function: Callable[P, T], name: str) -> Callable[P, T]:
        """Return ``function`` whose calls are a section."""

        @wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
            with self.section(name):
                return function(*args, **kwargs)

        return wrapped

    def save(self) -> None:
        """Save now, by the function that the session was given. All ranks call it together."""
        if self._save is None:
            self.checkpoint_due = True
            return
        with self.section(Section.CHECKPOINT_SAVE):
            self._save(self.step_number)
        self.saved()

    def saved(self) -> None:
        """Say that a checkpoint of the current step is whole. For loops that save by themselves."""
        self._saved_step = self.step_number
        self._say(checkpoint_at=time.time())
        if self.checkpoint_due:
            self.checkpoint_due = False
            self._say_done()

    def ask_to_leave(self) -> None:
        """Have the job save and end at a step that all ranks agree on, as SIGTERM does."""
        self._asked_to_leave = True

    # --- What holds now ---------------------------------------------------------------------------

    @property
    def batch_scale(self) -> float:
        """The share of its batch that the job works on."""
        return self._told.batch_scale

    @property
    def power_cap_w(self) -> float | None:
        """The cap that each of its GPUs is under, W; None: there is none."""
        return None if math.isinf(self._told.power_cap_w) else self._told.power_cap_w

    @property
    def plan(self) -> Plan:
        """This rank's batch under the scale in force. Raises ValueError without a ``batch``."""
        if self._plan is None:
            raise ValueError("batch is not given: training.session(batch=training.Batch(rows=…))")
        return self._plan

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts in which this rank computes its batch."""
        return self.plan.parts

    # --- What it is told --------------------------------------------------------------------------

    def _hear(self) -> None:
        told = self._agreed()
        self._act(told)
        if self.is_leaving:
            # Nothing more is heard by a loop that ends by itself.
            self._to_hear = sys.maxsize
            return
        self._offer()
        self._to_hear = int(told.every)

    def _agreed(self) -> Told:
        assert self._group is not None  # noqa: S101 - for the type checker: there is a mailbox
        return Told.from_values(self._group.take())

    def _offer(self) -> None:
        assert self._group is not None  # noqa: S101
        is_first = self._group.rank == 0
        given = self._mailbox.read() if is_first and self._mailbox else Directives()
        leaves = self._asked_to_leave
        told = Told.of(given, every=self._every(), is_leaving=leaves)
        self._group.offer(told.as_values(has_say=is_first))

    def _every(self) -> int:
        """Return the steps that take about as long as ranks may hear nothing."""
        now, steps = self._clock(), self.step_number - self._heard_step
        step_s = (now - self._heard_s) / steps if steps else _HEAR_S
        self._heard_s, self._heard_step = now, self.step_number
        return max(1, min(_MOST_STEPS, math.ceil(_HEAR_S / max(step_s, 1e-9))))

    def _act(self, told: Told) -> None:
        """Do what is new, until the loop may go on."""
        while True:
            before, self._told = self._told, told
            self._change(before, told)
            if told.checkpoint > before.checkpoint:
                self.save()
            if told.is_leaving:
                self._leave()
                return
            if not told.paused:
                self._say_done()
                return
            told = self._stand_still(told)

    def _change(self, before: Told, told: Told) -> None:
        if (told.batch_scale, told.power_cap_w) == (before.batch_scale, before.power_cap_w):
            return
        if self._batch is not None:
            self._plan = self._batch.under(min(told.batch_scale, 1.0))
        if self._on_change is not None:
            self._on_change(self)
        elif self._batch is None and told.batch_scale != before.batch_scale:
            logger.warning("the loop has no batch that can be scaled: it goes on as it was")

    def _stand_still(self, told: Told) -> Told:
        """Wait until the pause is over; return what all ranks are told then.

        That is agreed upon once more, since a pause ends at another moment on each machine.
        """
        self._report(self._clock())
        with self.section(Section.PAUSE):
            if self._free is not None:
                self._free()
            # Only now: who says so may be frozen from here on.
            self._say_done()
            while not self._asked_to_leave and self._is_paused(told):
                self._wait(_LOOK_S)
            if self._restore is not None:
                self._restore()
        self._offer()
        return self._agreed()

    def _is_paused(self, told: Told) -> bool:
        if self._mailbox is None:
            return False
        here = self._mailbox.read()
        # Another machine may have heard of it before this one. And where another pause is in force
        # here, that one was lifted, and other ranks may be on their way.
        return here.seq < told.seq or here.paused == told.paused

    def _leave(self) -> None:
        self.is_leaving = True
        if self._saved_step != self.step_number:
            self.save()
        self._say_done()
        logger.info("told to leave: saved at step %d", self.step_number)
        if self._on_leave is None:
            raise Leave
        self._on_leave()

    def _say_done(self) -> None:
        seq = int(self._told.seq)
        if seq > self._said_seq and not self.checkpoint_due:
            self._said_seq = seq
            self._say(done=seq, step=self.step_number)

    def _say(
        self,
        *,
        done: int | None = None,
        step: int | None = None,
        checkpoint_at: float | None = None,
    ) -> None:
        if self._mailbox is not None and self._group is not None and self._group.is_first_here:
            self._mailbox.say(done=done, step=step, checkpoint_at=checkpoint_at)

    def _catch_term(self) -> None:
        """Leave at a step where SIGTERM would end the loop. Other handlers are left alone."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL and not self._takes_term:
            return

        def handle(_number: int, _frame: FrameType | None) -> None:
            # Once more changes nothing: launchers pass on what their ranks have got themselves.
            self.ask_to_leave()

        self._handler_before = signal.signal(signal.SIGTERM, handle)

    # --- What it reports --------------------------------------------------------------------------

    def _report(self, now: float) -> None:
        """Report what came since the last report that was taken."""
        self._report_at = now + _REPORT_S
        if self._sender is None:
            return
        counts = self.counts.since(self._reported)
        rank, world = self._place()
        sent = self._sender.send(
            RankReport(
                rank=rank,
                world=world,
                step=self.step_number,
                steps=counts.steps,
                span_s=now - self._reported_s,
                samples=counts.samples,
                tokens=counts.tokens,
                loss=None if self._loss is None else float(self._loss),
                sections=counts.sections,
                memory_bytes=_memory_bytes(),
                dropped=self._sender.dropped,
                nccl=_nccl(),
                image=os.environ.get("HEADROOM_IMAGE", "")[:300],
                flops_per_step=_known_flop(self.flops_per_step),
            )
        )
        if sent:
            self._reported_s, self._reported = now, self.counts.copy()

    def _place(self) -> tuple[int, int]:
        if self._group is None:
            return world_of(os.environ)
        return self._group.rank, self._group.world


def session(
    *,
    save: Callable[[int], object] | None = None,
    step: int = 0,
    batch: Batch | None = None,
    free: Callable[[], object] | None = None,
    restore: Callable[[], object] | None = None,
    on_change: Callable[[Session], object] | None = None,
    on_leave: Callable[[], object] | None = None,
    takes_term: bool = False,
    flops_per_step: float = 0.0,
    environment: Mapping[str, str] = os.environ,
) -> Session:
    """Return a session of this rank, to be entered once the process group is up.

    ``save`` writes a checkpoint of a step, and is called on all ranks after the same step; without
    it ``checkpoint_due`` tells the loop to. ``step`` is how many steps were made before.
    ``batch`` is what a scale of the batch changes. ``free`` and ``restore`` are called before the
    loop stands still and after it. ``on_change`` is called when batch or power cap have changed,
    ``on_leave`` in place of raising :class:`Leave`. ``takes_term``: SIGTERM is caught although
    something else catches it. ``flops_per_step`` is what the model takes in a step, of all ranks
    together, without what is computed twice; 0: not told. :attr:`Session.flops_per_step` changes
    it.
    """
    mailbox = Mailbox.of(environment)
    group = current_group() if mailbox is not None else None
    if mailbox is not None and group is None:
        logger.warning(
            "other ranks are there and no process group: directives are not heard. "
            "Enter the session after torch.distributed.init_process_group"
        )
    path = environment.get(SOCKET)
    return Session(
        mailbox=mailbox,
        group=group,
        sender=Sender(Path(path)) if path else None,
        save=save,
        step=step,
        batch=batch,
        free=free,
        restore=restore,
        on_change=on_change,
        on_leave=on_leave,
        takes_term=takes_term,
        flops_per_step=flops_per_step,
    )


def _known_flop(value: float) -> float:
    """Return FLOPs of a step as a report takes them: 0 where they cannot be, which is not known."""
    return float(value) if 0.0 < value <= MOST_FLOP else 0.0


def _nccl() -> str:
    """Return the version of NCCL that PyTorch brought, where it is in use; empty: not known."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return ""
    found = cuda.nccl.version()
    return ".".join(map(str, found)) if isinstance(found, tuple) else str(found)


def _memory_bytes() -> int:
    """Return the most memory that this rank has held: of its GPU where it has one in use."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return int(cuda.max_memory_allocated())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
