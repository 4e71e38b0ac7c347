"""The loop of a machine that runs jobs: look at attempts, report on them, carry out orders."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol

import msgspec

from headroom import __version__
from headroom.agent.delivery import Backoff
from headroom.errors import HeadroomError, Unavailable
from headroom.work.cgroups import Cgroups
from headroom.work.claim_journal import Claim, ClaimJournal, ClaimState, JournalError
from headroom.work.contract import (
    LOG_PART_BYTES,
    MAX_LOG_PARTS,
    MAX_ORDERS,
    DesiredState,
    LogAsk,
    LogPart,
    Measured,
    Order,
    ShellAsk,
    SignalKind,
    SignalOrder,
    Task,
    WorkOrders,
    WorkOutcome,
    WorkReport,
    WorkReports,
    WorkState,
)
from headroom.work.folder import Folder, JobStatus, Marks
from headroom.work.judging import Step, report_of, step_of
from headroom.work.launch import Launcher, Separation
from headroom.work.shipping import ReportDesk, Shipping
from headroom.work.slices import Slices
from headroom.work.terminal import Terminals
from headroom.work.trash import Trash

__all__ = ["Runner", "RunnerSettings", "WorkServer"]

logger = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 15.0
#: How soon to say what has just been done, s.
_AT_ONCE_S = 0.02
#: Folders of attempts that are over, kept for their logs.
_KEPT_FOLDERS = 50
#: For how long what a server runs here goes on without it, where the server does not say, s.
_FENCE_S = 150.0
#: As many tries to reach the server fit into the time for which what runs here goes on without it.
_TRIES = 3
#: Parts of output that one reader is sent at once.
_PARTS_AHEAD = 4
#: A job that stands still by itself is frozen anyhow when it has not done so by then, s.
_PAUSE_WITHIN_S = 15.0
#: What goes wrong with one attempt, and is held to it.
_MOST_TEXT = 500


class WorkServer(Protocol):
    """The part of :class:`headroom.client.Client` that the runner needs."""

    def work(self, node: str, store: str, *, timeout_s: float | None = None) -> WorkOrders: ...

    def report_work(
        self, reports: WorkReports, *, timeout_s: float | None = None
    ) -> WorkOrders: ...


class TrainingListener(Protocol):
    """The part of :class:`headroom.agent.sources.training.TrainingSource` that the runner needs."""

    def listen(self, attempt: str, path: Path, uid: int, gid: int) -> None: ...

    def forget(self, attempt: str) -> None: ...

    def obeyed(self, attempt: str) -> frozenset[str] | None: ...


@dataclass(frozen=True)
class RunnerSettings:
    """Whose jobs are run, and where they are kept. ``log_bytes``: of one attempt, at most.

    ``disk_bytes`` is what the folders of one may hold, ``memory_bytes`` what memory it may have
    (None: by its share of the GPUs), ``pids`` how many processes. ``separation`` says as whom jobs
    run; None: all as we do, and then ``is_shared`` says whether jobs of several projects may run at
    once. ``frozen_s`` is for how long an attempt of which the server was not heard stands still
    before it is ended. ``allow_shell``: those who may can open terminals in what runs here.
    """

    node: str
    folder: Path
    log_bytes: int = 8 * 1024 * 1024
    limits: bool = True
    disk_bytes: int | None = None
    pids: int | None = None
    memory_bytes: int | None = None
    separation: Separation | None = None
    is_shared: bool = False
    frozen_s: float = 6 * 3600.0
    allow_shell: bool = False
    #: with which terminals are passed on
    server_url: str = ""


def boottime() -> float:
    """Return the time since this machine was started, also while it was suspended, s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Runner:
    """Runs jobs for one node, for as long as the context lasts. Running jobs then run on."""

    def __init__(
        self,
        settings: RunnerSettings,
        server: WorkServer,
        *,
        launcher: Launcher | None = None,
        training: TrainingListener | None = None,
        limit_reports: ReportDesk | None = None,
        slices: Slices = dict,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = boottime,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """Take the folder. Raises :class:`JournalError` where another runner has it."""
        self._settings = settings
        self._server = server
        self._clock = clock
        self._monotonic = monotonic
        self._draw = draw
        self._lock = _only_one(settings.folder)
        self._places = _make_folders(settings)
        self._journal = ClaimJournal(settings.folder / "book.sqlite")
        self._launcher = launcher or _launcher(settings, self._journal.store, slices)
        self._trash = Trash(self._places)
        self._training = training
        self._shipping = (
            Shipping(settings.node, training, limit_reports, clock=monotonic)
            if training is not None and limit_reports is not None
            else None
        )
        #: until when each attempt may run unless the server is heard again, by ``monotonic``
        self._until: dict[str, float] = {}
        #: what was last told of each, for when it cannot be looked at
        self._told: dict[str, WorkReport] = {}
        #: for how long what runs here goes on without the server, as that said last, s
        self._fence_s = _FENCE_S
        self._backoff = Backoff(first_s=_FIRST_WAIT_S, longest_s=_LONGEST_WAIT_S, draw=draw)
        self._complaint = ""
        self._troubles: dict[str, str] = {}
        self._report_at = -float("inf")
        #: What was offered again after it had been forgotten.
        self._declined: dict[str, WorkReport] = {}
        #: Output that the server has asked for.
        self._logs: list[LogPart] = []
        self._terminals = Terminals(settings.server_url)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.run, name="work", daemon=True)

    def __enter__(self) -> Runner:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._thread.join(2 * _TIMEOUT_S)
        self.close()

    def stop(self) -> None:
        """Ask the loop to end. Jobs run on, and are found again by the next life."""
        self._stop.set()

    def close(self) -> None:
        """Let go of the folder."""
        self._trash.close()
        self._journal.close()
        os.close(self._lock)

    def run(self) -> None:
        """Go round until :meth:`stop`."""
        logger.info("runs jobs", extra={"node": self._settings.node, "store": self._journal.store})
        while not self._stop.wait(self._safe_round()):
            pass

    def _safe_round(self) -> float:
        """Do a round; one that fails on this machine (a full disk) is tried again."""
        try:
            return self.round()
        except (OSError, JournalError) as exc:
            self._complain("work is held up", exc)
        except Exception:
            # The loop is all that minds what runs here.
            logger.exception("round of work failed")
        return _LONGEST_WAIT_S

    def held(self) -> list[Claim]:
        """Return the attempts that the server has not let go of."""
        return self._journal.held()

    def round(self) -> float:
        """Look, report and obey once; return how long to wait until the next round, s."""
        self._trash.empty()
        reports = [self._safe_look(claim) for claim in self.held()[:MAX_ORDERS]]
        self._told = {report.attempt: report for report in reports}
        asked_at = self._monotonic()
        try:
            answer = self._ask(reports)
        except HeadroomError as exc:
            self._complain("work is not reported", exc)
            wait_s = self._backoff.fail(exc.retry_after_s if isinstance(exc, Unavailable) else None)
            return min(wait_s, self._fence_s / 2 / _TRIES)
        self._complaint = ""
        self._backoff.succeed()
        self._fence_s = answer.fence_s or _FENCE_S
        # From when it was asked for: the server counts from when it heard that, which is later.
        until = asked_at + self._fence_s
        has_changed = [self._safe_obey(order, until) for order in answer.orders]
        self._limit_shipping(answer, asked_at)
        self._logs = self._read_logs(answer.logs)
        for ask in answer.shells:
            self._open_shell(ask)
        # A fleet that was started as one should not ask as one.
        return (
            _AT_ONCE_S
            if any(has_changed) or self._logs
            else answer.poll_s * (0.9 + 0.2 * self._draw())
        )

    def _limit_shipping(self, answer: WorkOrders, asked_at: float) -> None:
        """Pass on how fast checkpoints may be sent; an error holds up nothing else."""
        if self._shipping is None:
            return
        running = [claim for claim in self.held() if claim.state == ClaimState.STARTING]
        folders = {claim.attempt: self._folder(claim) for claim in running if not claim.report}
        try:
            self._shipping.pass_on(folders, answer.ships, server_now=answer.now, asked_at=asked_at)
        except OSError as exc:
            self._complain("sending of checkpoints is not limited", exc)

    def _ask(self, reports: Sequence[WorkReport]) -> WorkOrders:
        now = self._monotonic()
        said = [*reports, *self._declined.values()]
        # What does not get through is asked for again, as long as somebody reads it.
        logs, self._logs = self._logs, []
        timeout_s = min(_TIMEOUT_S, self._fence_s / 2 / _TRIES)
        if not said and not logs and now < self._report_at:
            return self._server.work(self._settings.node, self._journal.store, timeout_s=timeout_s)
        message = WorkReports(
            store=self._journal.store,
            nodes=[self._settings.node],
            reports=said,
            logs=logs,
            version=__version__,
            runs_for_s=self._runs_for_s(now),
        )
        answer = self._server.report_work(message, timeout_s=timeout_s)
        self._report_at = now + answer.report_s
        self._declined = {}
        return answer

    def _runs_for_s(self, now: float) -> float | None:
        """Return for how long what runs here goes on at most without the server, s; None: unknown.

        What an earlier life of ours was told counts, too: its jobs run on by that.
        """
        longest_s = 0.0
        for claim in self.held():
            if claim.state != ClaimState.STARTING:
                continue
            folder = self._folder(claim)
            until = folder.promised()
            if until is None and folder.has_begun():
                return None
            longest_s = max(longest_s, (until or now) - now)
        return longest_s

    # --- What is held -----------------------------------------------------------------------------

    def _safe_look(self, claim: Claim) -> WorkReport:
        """Look at an attempt; an error goes into its report, and holds up no other."""
        try:
            return self._look(claim)
        except Exception as exc:
            self._complain_of(claim.attempt, exc)
            last = self._told.get(claim.attempt) or self._unseen(claim)
            return msgspec.structs.replace(last, text=f"cannot be looked at: {exc}"[:_MOST_TEXT])

    def _unseen(self, claim: Claim) -> WorkReport:
        is_claimed = claim.state == ClaimState.CLAIMED
        return WorkReport(
            attempt=claim.attempt,
            node=self._settings.node,
            state=WorkState.CLAIMED if is_claimed else WorkState.RUNNING,
            signals_seen=claim.signals,
        )

    def _look(self, claim: Claim) -> WorkReport:
        """Do the next step for an attempt, and return its report."""
        folder = self._folder(claim)
        if claim.report is not None:
            return claim.report
        marks = folder.marks()
        step = step_of(
            claim,
            marks,
            is_starting=self._launcher.is_starting(folder),
            is_confirmed=self._monotonic() < self._until.get(claim.attempt, 0.0),
        )
        match step:
            case Step.LAUNCH:
                self._launch(claim, folder)
            case Step.END:
                return self._end(claim, folder, marks)
            case Step.GIVE_UP:
                return self._give_up(claim, folder, marks)
            case Step.NOTHING:
                pass
        status = folder.job_status()
        if marks.is_watched:
            self._listen(claim, folder)
            self._freeze_when_ready(folder, marks, status)
        return report_of(claim, self._settings.node, marks, status)

    def _listen(self, claim: Claim, folder: Folder) -> None:
        """Have the job's ranks be heard. A job that cannot be goes on as one that says nothing."""
        if self._training is None:
            return
        owner = os.lstat(folder.work)
        try:
            self._training.listen(claim.attempt, folder.reports, owner.st_uid, owner.st_gid)
        except OSError as exc:
            self._complain_of(claim.attempt, exc)

    def _freeze_when_ready(self, folder: Folder, marks: Marks, status: JobStatus) -> None:
        """Freeze a job that pauses by itself once it stands still, or takes too long for that."""
        paused = folder.read_directives().paused if status.hears and not marks.is_paused else 0
        if paused and (status.done >= paused or folder.told_s(self._clock()) > _PAUSE_WITHIN_S):
            folder.tell(SignalKind.PAUSE.value)

    def _launch(self, claim: Claim, folder: Folder) -> None:
        if claim.task is not None:  # it is dropped when all is over
            self._launcher.launch(claim.attempt, claim.task, folder, self._until[claim.attempt])
            logger.info("job started", extra={"attempt": claim.attempt, "folder": folder.path})

    def _end(self, claim: Claim, folder: Folder, marks: Marks) -> WorkReport:
        node, status = self._settings.node, folder.job_status()
        tail, refusal, made = folder.log_tail(), folder.refusal(), _made(claim, folder, marks)
        report = report_of(claim, node, marks, status, tail, refusal, made)
        self._journal.end(report)
        self._let_go(claim, folder)
        logger.info("job ended", extra={"attempt": claim.attempt, "how": report.text})
        return report

    def _give_up(self, claim: Claim, folder: Folder, marks: Marks) -> WorkReport:
        self._launcher.kill_leftovers(folder)
        report = WorkReport(
            attempt=claim.attempt,
            node=self._settings.node,
            state=WorkState.ENDED,
            outcome=WorkOutcome.LOST,
            started_at=marks.started_at,
            ended_at=self._clock(),
            text="what watched it is gone, and with it how it ended",
            log_tail=folder.log_tail(),
        )
        self._journal.end(report)
        self._let_go(claim, folder)
        logger.warning("job lost", extra={"attempt": claim.attempt})
        return report

    def _let_go(self, claim: Claim, folder: Folder) -> None:
        self._launcher.dismiss(folder)
        if self._training is not None:
            self._training.forget(claim.attempt)

    # --- What somebody reads ----------------------------------------------------------------------

    def _read_logs(self, asks: Sequence[LogAsk]) -> list[LogPart]:
        """Return the output that is asked for, in parts; a bounded number of them."""
        parts: list[LogPart] = []
        for ask in asks:
            if ask.node == self._settings.node and len(parts) < MAX_LOG_PARTS:
                parts += self._parts(ask)
        return parts[:MAX_LOG_PARTS]

    def _parts(self, ask: LogAsk) -> list[LogPart]:
        claim = self._journal.get(ask.attempt)
        most = _PARTS_AHEAD * LOG_PART_BYTES if ask.start is not None else LOG_PART_BYTES
        found = None if claim is None else self._folder(claim).output(ask.start, most)
        if found is None:
            at = ask.start or 0
            return [LogPart(attempt=ask.attempt, node=ask.node, start=at, first=at, size=at)]
        return [
            LogPart(
                attempt=ask.attempt,
                node=ask.node,
                start=found.start + at,
                first=found.first,
                size=found.size,
                data=found.data[at : at + LOG_PART_BYTES],
            )
            for at in range(0, max(len(found.data), 1), LOG_PART_BYTES)
        ]

    # --- Terminals --------------------------------------------------------------------------------

    def _open_shell(self, ask: ShellAsk) -> None:
        """Have a terminal opened; one that cannot be is told so, and holds up nothing else."""
        claim = self._journal.get(ask.attempt) if ask.node == self._settings.node else None
        if not self._settings.allow_shell:
            self._terminals.refuse(ask, "its machine lets nobody in: allow_shell is off there")
        elif claim is None or claim.state != ClaimState.STARTING:
            self._terminals.refuse(ask, "the job does not run there")
        else:
            self._terminals.open(ask, self._folder(claim))

    # --- What is wanted ---------------------------------------------------------------------------

    def _safe_obey(self, order: Order, until: float) -> bool:
        """Obey an order; an error holds up no other order. The order is given again."""
        try:
            return order.node == self._settings.node and self._obey(order, until)
        except Exception as exc:
            self._complain_of(order.attempt, exc)
            return False

    def _obey(self, order: Order, until: float) -> bool:
        """Carry out an order; return whether there is something new to report."""
        claim = self._journal.get(order.attempt)
        match order.wanted:
            case DesiredState.CLAIM:
                return self._claim(order, claim)
            case DesiredState.RUN:
                return self._run(order, claim, until)
            case DesiredState.STOP:
                return self._stop_one(order, claim)
            case DesiredState.FORGET:
                return self._forget(claim)

    def _claim(self, order: Order, claim: Claim | None) -> bool:
        if claim is not None and claim.state == ClaimState.FORGOTTEN:
            self._declined[order.attempt] = self._never(order, "it was here before")
            return True
        if claim is not None or order.task is None:
            return False
        if why := self._why_not(order.task):
            self._journal.refuse(self._never(order, why), self._clock())
            return True
        return self._journal.claim(order.attempt, order.task, self._clock())

    def _why_not(self, task: Task) -> str:
        """Return why a job may not run beside those that do; "": it may.

        Jobs of one user read and end each other: then one project has the machine at a time.
        """
        if self._settings.separation is not None or self._settings.is_shared:
            return ""
        others = {
            claim.task.project
            for claim in self.held()
            if claim.task is not None and claim.state != ClaimState.ENDED
        }
        if others <= {task.project}:
            return ""
        return (
            "jobs of another project run here, and all jobs of this machine have one user: "
            "run its agent as root, or with shared_user"
        )

    def _run(self, order: Order, claim: Claim | None, until: float) -> bool:
        if claim is None:
            self._journal.refuse(self._never(order, "it was not claimed here"), self._clock())
            return True
        if claim.state not in (ClaimState.CLAIMED, ClaimState.STARTING):
            return False
        is_new = order.attempt not in self._until
        self._until[order.attempt] = until
        if claim.state == ClaimState.CLAIMED:
            return self._journal.start(order.attempt)
        # A life of ours that has just begun may start it only now.
        folder = self._folder(claim)
        if folder.promised() is not None:
            folder.promise(until)
        folder.tell(f"until {until:.3f}")
        return self._pass_on(claim, order.signals) or is_new

    def _stop_one(self, order: Order, claim: Claim | None) -> bool:
        if claim is None or claim.state == ClaimState.CLAIMED:
            self._journal.refuse(self._never(order, order.why), self._clock())
            return True
        if claim.state != ClaimState.STARTING:
            return False
        folder = self._folder(claim)
        if folder.tell("stop") or not folder.bar():
            return False
        # It was begun by a life of ours that ended before anything came of it.
        self._journal.end(self._never(order, order.why))
        return True

    def _forget(self, claim: Claim | None) -> bool:
        if claim is None or claim.state != ClaimState.ENDED:
            return False
        folder = self._folder(claim)
        self._trash.put(folder.place if folder.is_apart else folder.work)
        self._journal.forget(claim.attempt)
        self._until.pop(claim.attempt, None)
        self._sweep()
        return False

    def _pass_on(self, claim: Claim, signals: Sequence[SignalOrder]) -> bool:
        new = [signal for signal in signals if signal.seq > claim.signals]
        folder = self._folder(claim)
        if not new or not folder.marks().is_watched:
            return False
        directives = folder.read_directives()
        hears = folder.job_status().hears
        for signal in new:
            _tell(folder, signal, hears=hears)
            directives.take(signal)
        folder.write_directives(directives)
        folder.tell("notify")
        self._journal.signaled(claim.attempt, new[-1].seq)
        return True

    def _never(self, order: Order, why: str) -> WorkReport:
        return WorkReport(
            attempt=order.attempt,
            node=order.node,
            state=WorkState.ENDED,
            outcome=WorkOutcome.NEVER_STARTED,
            ended_at=self._clock(),
            text=why,
        )

    def _folder(self, claim: Claim) -> Folder:
        path = self._settings.folder / "attempts" / f"{claim.id:08d}"
        # What was started before jobs had places of their own stays where it is.
        if self._settings.separation is None or (path / "work").exists():
            return Folder(path)
        return Folder(path, self._places / path.name)

    def _sweep(self) -> None:
        """Remove the oldest folders of attempts that are over."""
        held = {self._folder(claim).path for claim in self.held()}
        with contextlib.suppress(FileNotFoundError):
            found = sorted((self._settings.folder / "attempts").iterdir())
            over = [path for path in found if path not in held]
            for path in over[:-_KEPT_FOLDERS]:
                Folder(path).remove()

    def _complain_of(self, attempt: str, exc: Exception) -> None:
        known = self._troubles.get(attempt)
        if known != str(exc):
            logger.warning("job is held up", extra={"attempt": attempt, "cause": exc})
        self._troubles[attempt] = str(exc)

    def _complain(self, what: str, exc: Exception) -> None:
        if str(exc) != self._complaint:
            logger.warning(what, extra={"cause": exc})
        self._complaint = str(exc)


def _made(claim: Claim, folder: Folder, marks: Marks) -> list[Measured]:
    """Return the artifacts of a command that has succeeded: those that it was to make."""
    if claim.task is None or marks.exit is None or marks.exit.exit_code != 0:
        return []
    declared = {each.name for each in claim.task.outputs}
    return [each for each in folder.measured() if each.name in declared] if declared else []


def _tell(folder: Folder, signal: SignalOrder, *, hears: bool) -> None:
    """Have the shim freeze a job, or thaw it. One that ``hears`` is frozen once it stands still."""
    if signal.kind == SignalKind.RESUME or (signal.kind == SignalKind.PAUSE and not hears):
        folder.tell(signal.kind.value)


def _launcher(settings: RunnerSettings, store: str, slices: Slices) -> Launcher:
    return Launcher(
        cgroups=(
            Cgroups(pids=settings.pids, most_bytes=settings.memory_bytes)
            if settings.limits
            else None
        ),
        log_bytes=settings.log_bytes,
        disk_bytes=settings.disk_bytes,
        frozen_s=settings.frozen_s,
        separation=settings.separation,
        # Several may run jobs on one machine: their groups have one parent.
        prefix=f"{store[:12]}-",
        slices=slices,
    )


def _make_folders(settings: RunnerSettings) -> Path:
    """Make the folders of shims and jobs; return that of the jobs. Raises :class:`JournalError`.

    Jobs with a user of their own have to pass through ours, and may look at nothing else there.
    """
    shims, jobs = settings.folder / "attempts", settings.folder / "places"
    try:
        for folder in (shims, jobs):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)
        if settings.separation is not None:
            settings.folder.chmod(0o711)
            jobs.chmod(0o711)
    except OSError as exc:
        raise JournalError(f"the folder of jobs {settings.folder} cannot be used: {exc}") from exc
    if settings.separation is not None:
        _check_way(jobs)
    return jobs


def _check_way(jobs: Path) -> None:
    for folder in jobs.resolve().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            raise JournalError(
                f"jobs run as users of their own, and these cannot pass through {folder} to their "
                f"folders in {jobs}: put them elsewhere, with folder under [work] or --folder "
                f"(such as /var/lib/headroom-jobs), or chmod o+x {folder}"
            )


def _only_one(folder: Path) -> int:
    """Lock the folder, which no two may use. Raises :class:`JournalError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise JournalError(f"another process runs jobs from {folder}: stop it first") from exc
    except OSError as exc:
        raise JournalError(f"the folder of jobs {folder} cannot be used: {exc}") from exc
    return fd
