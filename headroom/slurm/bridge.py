"""The loop of the bridge: read Slurm, tell the server, carry out what it wants; and begin anew.

A round begins each second, and at once where there is news: a job was submitted, or the server has
orders. Where only the server has, Slurm is not read before.

Nothing is kept that a restart would miss. Whose a hold is, and under which lease a job may start,
stands in the job's AdminComment; all else is what Slurm and the server say. Slurm's own state is
looked at again after each change, and a job is let go only where the change is seen.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headroom.errors import HeadroomError
from headroom.schedulers import words
from headroom.schedulers.comments import Comments
from headroom.schedulers.contract import (
    EndedAs,
    JobOrder,
    JobState,
    Parcel,
    SchedulerJob,
    SchedulerKind,
    SchedulerNode,
    SchedulerOrders,
    SchedulerReport,
    WantedOfJob,
    WhenAway,
)
from headroom.schedulers.rounds import NewsServer, OrderListener, keep_going
from headroom.schedulers.telling import Telling
from headroom.slurm import marks, moving, reading
from headroom.slurm.commands import Pinned, Slurm, SlurmError
from headroom.slurm.files import RunFiles, Shared

__all__ = ["Bridge", "BridgeSettings", "LetGo", "let_all_go"]

logger = logging.getLogger(__name__)

#: Nodes are read this often, s.
_NODES_EVERY_S = 5.0
#: job_submit.lua holds new jobs for this long after the bridge last did its round, s.
_HOLDS_FOR_S = 30.0
#: Between two rounds at least, s: what comes together is looked at together.
_ROUND_S = 0.1
#: How often it is looked whether job_submit.lua has held something, s.
_GLANCE_S = 0.02
#: What job_submit.lua tells of an owner.
_OWNER = re.compile(r" ?\[headroom: owner (holds|releases)\]")
_RUNS = (JobState.RUNNING, JobState.SUSPENDED)
_WAITS = (JobState.HELD, JobState.BLOCKED, JobState.RELEASED)


@dataclass(frozen=True, kw_only=True)
class BridgeSettings:
    """Which cluster, and how. ``node_name`` has ``{node}`` where Slurm's name of a node goes.

    ``away_s``: after so long without the server jobs are let go, where ``when_away`` is open.
    """

    name: str
    when_away: WhenAway = WhenAway.CLOSED
    away_s: float = 60.0
    run_dir: Path
    #: that jobs see; None: they are sent no directives
    shared_dir: Path | None = None
    node_name: str = "{node}"
    poll_s: float = 1.0
    comments_per_s: int = 20


@dataclass(frozen=True)
class _Row:
    """What a row of squeue says of one job."""

    job: SchedulerJob
    mark: marks.Mark | None
    #: Slurm's number of it: an element of an array has one of its own once it may start
    number: str
    #: whose good end is all that it waits for
    behind: Sequence[str]


@dataclass
class _Seen:
    """Slurm, as it was last read."""

    jobs: dict[str, SchedulerJob] = field(default_factory=dict)
    marks: dict[str, marks.Mark | None] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    behind: dict[str, Sequence[str]] = field(default_factory=dict)

    def follow(self) -> None:
        """Take those to wait for us alone that Slurm has not yet seen to be through waiting."""
        for ref, others in self.behind.items():
            ends = [self.jobs[each].ended_as if each in self.jobs else None for each in others]
            if ends and all(end is EndedAs.SUCCEEDED for end in ends):
                self.jobs[ref] = _replace(self.jobs[ref], state=JobState.HELD, why="")


class Bridge:
    """Between one slurmctld and one server. :meth:`step` does one round."""

    def __init__(
        self,
        settings: BridgeSettings,
        server: NewsServer,
        *,
        slurm: Slurm | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._server, self._clock = settings, server, clock
        self._slurm = slurm or Slurm()
        self._files = RunFiles(settings.run_dir)
        self._shared = Shared(settings.shared_dir) if settings.shared_dir else None
        self._telling = Telling(SchedulerKind.SLURM, clock)
        self._version = ""
        self._nodes: list[SchedulerNode] = []
        self._facts: list[reading.NodeFacts] = []
        self._nodes_at = -float("inf")
        self._comments = Comments(int(settings.comments_per_s * settings.poll_s))
        #: rows as they were last read, by their text: most are the same again
        self._rows: dict[bytes, list[_Row]] = {}
        self._seen: _Seen | None = None
        self._reads = True
        self._news = (0, 0)
        self._orders: OrderListener | None = None
        self._signalled: dict[str, int] = {}
        #: what the next report says of jobs that move
        self._parcels: dict[str, Parcel] = {}
        self._refused: dict[str, str] = {}
        self._unpacked: set[str] = set()
        self.stop = threading.Event()

    def run(self) -> None:
        """Do rounds until :attr:`stop` is set."""
        self._orders = OrderListener(self._server, self._settings.name, self.stop)
        self._orders.start()
        keep_going(
            lambda: self.step(reads=self._reads), self.stop, self._pause, self._settings.poll_s
        )

    def _pause(self, longest_s: float) -> None:
        """Return when a round is due, or there is news for one."""
        began, self._reads = time.monotonic(), True
        while not self.stop.wait(_GLANCE_S):
            waited_s = time.monotonic() - began
            if waited_s < _ROUND_S:
                continue
            if waited_s >= longest_s or self._files.news() != self._news:
                return
            if self._orders is not None and self._orders.has_some.is_set():
                # Slurm is as it was.
                self._reads = False
                return

    def step(self, *, reads: bool = True) -> bool:
        """Read, tell, obey, once; return whether something was done. Raises :class:`SlurmError`.

        Without ``reads`` Slurm is taken to be as it was.
        """
        # Before it is read: what comes after is news.
        self._news = self._files.news()
        if self._orders is not None:
            self._orders.has_some.clear()
        seen = self._seen if self._seen and not reads else self._read()
        self._seen = seen
        self._files.hold_until(self._clock() + _HOLDS_FOR_S)
        self._take_back(seen)
        report = self._report(seen)
        try:
            orders = self._server.scheduler(self._settings.name, report)
        except HeadroomError as error:
            self._without_server(seen, error)
            return False
        self._heard(report, seen)
        if orders.resync:
            self._telling.begin_anew()
            return True
        return self._obey(orders, seen)

    # --- Reading ----------------------------------------------------------------------------------

    def _read(self) -> _Seen:
        if self._clock() - self._nodes_at >= _NODES_EVERY_S:
            self._read_nodes()
        seen, known_rows = _Seen(), self._rows
        self._rows = {}
        for text in self._slurm.job_rows():
            found = known_rows.get(text)
            self._rows[text] = found = self._parsed(text) if found is None else found
            for row in found:
                # Slurm keeps ended jobs: of one ref the newest counts.
                job, ref = row.job, row.job.ref
                known = seen.jobs.get(ref)
                if known is not None and known.submitted_at > job.submitted_at:
                    continue
                seen.jobs[ref] = self._with_status(job)
                seen.marks[ref] = row.mark
                seen.numbers[ref] = row.number
                seen.behind[ref] = row.behind
        seen.follow()
        if self._seen is not None and _has_stopped(self._seen, seen):
            # Whether what it ran on still answers is told with its end.
            self._read_nodes()
        return seen

    def _read_nodes(self) -> None:
        rows = self._slurm.nodes()
        self._nodes = reading.nodes_of(rows, self._name)
        facts = reading.facts_of(rows)
        if facts != self._facts:
            # They decide where jobs may run.
            self._facts, self._rows = facts, {}
        self._nodes_at = self._clock()

    def _parsed(self, text: bytes) -> list[_Row]:
        row = self._as_owners_want(msgspec.json.decode(text))
        mark = marks.read(row.get("admin_comment") or "")
        return [
            _Row(job, mark, str(row["job_id"]), reading.behind(row))
            for job in reading.jobs_of([row], self._name, self._facts)
        ]

    def _as_owners_want(self, row: dict[str, Any]) -> dict[str, Any]:
        """Take what job_submit.lua tells of an owner out of a comment, and into the mark."""
        comment = row.get("comment") or ""
        found = _OWNER.search(comment)
        if found is None or row.get("array_task_string"):
            return row
        by_owner = found[1] == "holds"
        mark = marks.held("its owner holds it" if by_owner else "", by_owner=by_owner)
        row = {**row, "comment": _OWNER.sub("", comment), "admin_comment": mark}
        given = {"Comment": marks.clean(row["comment"]), "AdminComment": mark}
        self._slurm.update_jobs({str(row["job_id"]): given})
        return row

    def _with_status(self, job: SchedulerJob) -> SchedulerJob:
        if self._shared is None:
            return job
        if job.ended_as is EndedAs.SUCCEEDED and words.is_of_pipeline(job.comment):
            return _replace(job, outputs=self._shared.outputs(job.ref, job.user))
        if job.state not in _RUNS:
            return job
        status = self._shared.status(job.ref)
        return _replace(
            job,
            signals_seen=self._signalled.get(job.ref, 0),
            signals_done=status.done,
            checkpoint_at=status.checkpoint_at,
        )

    def _name(self, node: str) -> str:
        return self._settings.node_name.format(node=node)

    def _slurm_name(self, name: str) -> str:
        before, _, after = self._settings.node_name.partition("{node}")
        return name.removeprefix(before).removesuffix(after)

    # --- Telling ----------------------------------------------------------------------------------

    def _report(self, seen: _Seen) -> SchedulerReport:
        self._version = self._version or self._slurm.version()
        report = self._telling.report(
            seen.jobs, self._nodes, version=self._version, when_away=self._settings.when_away
        )
        return msgspec.structs.replace(report, parcels=self._parcels, refused=self._refused)

    def _heard(self, report: SchedulerReport, seen: _Seen) -> None:
        self._telling.heard(report)
        self._parcels, self._refused = {}, {}
        if self._shared is not None:
            for ref in report.gone:
                self._shared.forget(ref)
        self._comments.keep(seen.jobs)

    # --- What needs no server ---------------------------------------------------------------------

    def _take_back(self, seen: _Seen) -> None:
        """Hold jobs whose lease is over: Slurm has put them back, and would start them again."""
        stale = [
            ref
            for ref, mark in seen.marks.items()
            if mark is not None
            and not mark.is_hold
            and mark.restarts != seen.jobs[ref].restarts
            and seen.jobs[ref].state in (JobState.RELEASED, JobState.BLOCKED)
        ]
        if stale:
            self._hold(stale, "it was put back into the queue")
            for ref in stale:
                seen.marks[ref] = marks.Mark(is_hold=True)
                seen.jobs[ref] = _replace(seen.jobs[ref], state=JobState.HELD, lease="")
        self._files.leases(
            {
                seen.numbers[ref]: mark.restarts
                for ref, mark in seen.marks.items()
                if mark is not None
                and not mark.is_hold
                and seen.jobs[ref].state is not JobState.ENDED
            }
        )

    def _without_server(self, seen: _Seen, error: HeadroomError) -> None:
        away_s = self._telling.silent_s
        logger.warning("the server was not heard for %.0f s: %s", away_s, error)
        if self._settings.when_away is WhenAway.OPEN and away_s >= self._settings.away_s:
            self._files.hold_until(0.0)
            held = [ref for ref, mark in seen.marks.items() if self._is_held(seen, ref, mark)]
            if held:
                self._slurm.update_jobs({ref: {"AdminComment": ""} for ref in held})
                self._slurm.scontrol("release", held)
                logger.warning("%d jobs were let go: Headroom is away", len(held))

    @staticmethod
    def _is_held(seen: _Seen, ref: str, mark: marks.Mark | None) -> bool:
        waits = seen.jobs[ref].state in (JobState.HELD, JobState.BLOCKED)
        return waits and mark is not None and mark.is_hold and not mark.by_owner

    # --- Obeying ----------------------------------------------------------------------------------

    def _obey(self, orders: SchedulerOrders, seen: _Seen) -> bool:
        by_kind: dict[WantedOfJob, list[JobOrder]] = {}
        for order in orders.jobs:
            job = seen.jobs.get(order.ref)
            # What has changed since is told first: the next answer is about what is now.
            if job is not None and job.restarts == order.restarts:
                by_kind.setdefault(order.wanted, []).append(order)
        for wanted, some in by_kind.items():
            self._do(wanted, some, seen)
        for each in orders.nodes:
            self._drain(each.node, each.reason)
        for ref, directives in orders.directives.items():
            if ref in seen.jobs and self._shared is not None:
                self._shared.direct(ref, directives)
                if signal := words.read(seen.jobs[ref].comment).signal:
                    self._slurm.signal(ref, signal)
                self._signalled[ref] = directives.seq
        self._comment(orders.comments, seen, {order.ref for order in orders.jobs})
        if unpacked := set(orders.pack) - self._unpacked:
            self._parcels = moving.pack(sorted(unpacked), self._slurm)
            # They cannot be read: to try again each second would help nobody.
            self._unpacked |= unpacked - self._parcels.keys()
        if orders.submit:
            self._submit(orders.submit)
        # Nobody waits to hear of what was let go: the next round sees it begin.
        others = by_kind.keys() - {WantedOfJob.RUN}
        busy = others or orders.nodes or orders.directives or self._parcels or orders.submit
        return bool(busy)

    def _submit(self, wanted: Mapping[str, Parcel]) -> None:
        """Submit what comes from elsewhere, by what Slurm has at this very moment."""
        now = self._seen = self._read()
        self._refused = moving.submit(wanted, now.jobs.values(), self._slurm)

    def _do(self, wanted: WantedOfJob, orders: Sequence[JobOrder], seen: _Seen) -> None:
        refs = [order.ref for order in orders]
        match wanted:
            case WantedOfJob.RUN:
                self._run(orders, seen)
            case WantedOfJob.HOLD:
                self._hold(refs, "it did not start in time")
            case WantedOfJob.EVICT:
                self._evict(orders, seen)
            case WantedOfJob.SUSPEND:
                self._slurm.scontrol("suspend", refs)
            case WantedOfJob.RESUME:
                self._slurm.scontrol("resume", refs)
            case WantedOfJob.CANCEL:
                self._slurm.cancel(refs)

    def _run(self, orders: Sequence[JobOrder], seen: _Seen) -> None:
        """Pin jobs to their nodes under their leases, look, and release those of which it holds."""
        held = [order for order in orders if seen.jobs[order.ref].state is JobState.HELD]
        for order in held:
            self._comments.forget(order.ref)
        self._slurm.update_jobs({order.ref: self._pin(order, seen) for order in held})
        good = self._look_at_pins(held, seen)
        # PrologSlurmctld asks for the leases.
        self._take_back(seen)
        self._slurm.scontrol("release", good)

    def _look_at_pins(self, orders: Sequence[JobOrder], seen: _Seen) -> list[str]:
        """Return the jobs that Slurm has where they are to run, and take them for let go."""
        nodes = {order.ref: {self._slurm_name(node) for node in order.nodes} for order in orders}
        longest = max((len(",".join(each)) for each in nodes.values()), default=0)
        pinned = self._slurm.pinned(list(nodes), longest)
        good = []
        for order in orders:
            there = pinned.get(order.ref)
            if there is None or not _is_pinned(order, there, nodes[order.ref]):
                logger.warning("job %s cannot be pinned to its nodes", order.ref)
                continue
            good.append(order.ref)
            seen.marks[order.ref] = marks.read(there.admin_comment)
            seen.numbers[order.ref] = there.number
            # Whoever writes a comment from here on leaves the lease alone.
            job = seen.jobs[order.ref]
            seen.jobs[order.ref] = _replace(job, state=JobState.RELEASED, lease=order.lease)
        return good

    def _pin(self, order: JobOrder, seen: _Seen) -> Mapping[str, str]:
        nodes = ",".join(self._slurm_name(node) for node in order.nodes)
        job = seen.jobs[order.ref]
        given = {"NodeList": nodes}
        if order.restarts:
            # Slurm lets two minutes pass before it starts again what was put back.
            given["StartTime"] = "now"
        if len(order.nodes) != job.nodes_wanted or job.min_nodes is not None:
            given = {"NumNodes": str(len(order.nodes)), **given}
        return {**given, "AdminComment": marks.leased(order.lease, order.restarts, nodes)}

    def _hold(self, refs: Sequence[str], why: str) -> None:
        self._slurm.scontrol("hold", refs)
        self._slurm.update_jobs(
            {ref: {"AdminComment": marks.held(why), "NodeList": ""} for ref in refs}
        )

    def _evict(self, orders: Sequence[JobOrder], seen: _Seen) -> None:
        """Put running jobs back into the queue, held; those that cannot be started again end."""
        again = [o for o in orders if seen.jobs[o.ref].can_requeue]
        self._slurm.update_jobs({o.ref: {"AdminComment": marks.held(o.why)} for o in again})
        # "Incomplete": one that has just ended by itself is not started a second time.
        self._slurm.scontrol("requeuehold", [o.ref for o in again], "Incomplete")
        self._slurm.cancel([o.ref for o in orders if not seen.jobs[o.ref].can_requeue])

    def _drain(self, node: str, reason: str) -> None:
        name = self._slurm_name(node)
        try:
            if reason:
                text = marks.clean(f"{reading.NODE_MARK}{reason}")
                self._slurm.update_node(name, state="drain", reason=text)
            else:
                self._slurm.update_node(name, state="resume")
        except SlurmError as error:
            logger.warning("node %s: %s", name, error)
        self._nodes_at = -float("inf")

    def _comment(self, new: Mapping[str, str], seen: _Seen, ordered: Collection[str]) -> None:
        """Write what owners are to read: of jobs that we hold, and of those under a lease of ours.

        Not of running jobs of which something was ``ordered``: their marks are others by now.
        """
        held = marks.Mark(is_hold=True)
        shown = {ref: held for ref, job in seen.jobs.items() if job.state is JobState.HELD}
        for ref, mark in seen.marks.items():
            if mark is not None and ref not in ordered and _runs_under(mark, seen.jobs[ref]):
                shown[ref] = mark
        due, settled = self._comments.take(new, shown)
        told = {ref: {"AdminComment": marks.said(shown[ref], text)} for ref, text in due.items()}
        self._slurm.update_jobs(told)
        self._telling.commented(settled)


def _runs_under(mark: marks.Mark, job: SchedulerJob) -> bool:
    is_current = not mark.is_hold and mark.restarts == job.restarts
    return is_current and job.state is JobState.RUNNING


@dataclass(frozen=True)
class LetGo:
    """How much was let go."""

    jobs: int
    nodes: int


def let_all_go(slurm: Slurm, run_dir: Path) -> LetGo:
    """Undo all holds, marks and drains of ours, as if we had never been there."""
    RunFiles(run_dir).clear()
    held: list[str] = []
    marked: list[str] = []
    pinned: list[str] = []
    for row in slurm.jobs():
        mark = marks.read(row.get("admin_comment") or "")
        for job in reading.jobs_of([row]) if mark is not None else ():
            if job.state is JobState.ENDED or mark is None:
                continue
            marked.append(job.ref)
            waits = job.state in (JobState.HELD, JobState.BLOCKED)
            if waits and not mark.by_owner:
                held.append(job.ref)
            if waits and not mark.is_hold:
                pinned.append(job.ref)
    slurm.update_jobs({ref: {"AdminComment": ""} for ref in marked})
    slurm.update_jobs({ref: {"NodeList": ""} for ref in pinned})
    slurm.scontrol("release", held)
    drained = [node.node for node in reading.nodes_of(slurm.nodes()) if node.is_ours]
    for node in drained:
        slurm.update_node(node, state="resume")
    return LetGo(len(held), len(drained))


def _has_stopped(before: _Seen, now: _Seen) -> bool:
    """Say whether a job that ran waits again."""
    waits = (ref for ref, job in now.jobs.items() if job.state in _WAITS and ref in before.jobs)
    return any(before.jobs[ref].state not in _WAITS for ref in waits)


def _is_pinned(order: JobOrder, there: Pinned, nodes: set[str]) -> bool:
    mark = marks.read(there.admin_comment)
    return (
        mark is not None
        and mark.lease == order.lease
        and mark.restarts == order.restarts == there.restarts
        and set(reading.hostnames(there.nodes_asked)) == nodes
    )


def _replace(job: SchedulerJob, **given: object) -> SchedulerJob:
    found: SchedulerJob = msgspec.structs.replace(job, **given)
    return found
