"""The node queue without its tables: the same decisions over rows that are never saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from admission.executors.gangs import become, settle
from admission.executors.models import Gang, NodeAssignment
from admission.executors.node_queue import moment
from admission.executors.protocol import WorkOutcomeKind
from admission.executors.sync import take, told
from headroom.work.contract import WorkOrders, WorkOutcome, WorkReport, WorkReports

GATHER_S = 30.0


@dataclass
class PureNodeQueue:
    """What the server holds, and what it answers to each machine."""

    now: float = 1_000_000.0
    gangs: dict[str, Gang] = field(default_factory=dict)
    assignments: dict[str, list[NodeAssignment]] = field(default_factory=dict)

    def release(self, key: str, nodes: Sequence[str]) -> None:
        job, phase, number = key.split("/")
        work = {
            "job": job, "phase": phase, "number": int(number), "command": ["true"], "env": {},
            "walltime_s": None, "grace_s": 1.0,
        }  # fmt: skip
        gang = Gang(
            pk=len(self.gangs) + 1, key=key, executor="local", work=work,
            offered_at=moment(self.now),
        )  # fmt: skip
        self.gangs[key] = gang
        self.assignments[key] = [
            NodeAssignment(gang=gang, node_id=rank, node=node, rank=rank, gpus=[0], gpus_of_node=1)
            for rank, node in enumerate(nodes)
        ]

    def stop(self, key: str) -> None:
        gang = self.gangs[key]
        if gang.state != Gang.State.ENDED:
            gang.outcome = gang.outcome or WorkOutcomeKind.STOPPED
            self.settle(key)

    def give_up(self, key: str, node: str) -> None:
        """Take a machine's part for lost, as after its lease."""
        if self.gangs[key].state not in (Gang.State.GO, Gang.State.STOPPING):
            return
        for assignment in self.assignments[key]:
            if assignment.node == node and assignment.state != NodeAssignment.State.ENDED:
                assignment.state, assignment.outcome = NodeAssignment.State.ENDED, WorkOutcome.LOST
        self.settle(key)

    def settle(self, key: str) -> None:
        gang = self.gangs[key]
        now = moment(self.now)
        verdict = settle(gang, self.assignments[key], now, GATHER_S)
        become(gang, verdict, now)
        if verdict.never_started:
            for assignment in self.assignments[key]:
                assignment.state = NodeAssignment.State.ENDED

    def sync(self, node: str, store: str, reports: Sequence[WorkReport]) -> WorkOrders:
        by_key = {(report.attempt, report.node): report for report in reports}
        for (key, _), report in by_key.items():
            for assignment in self.assignments.get(key, []):
                if assignment.node == node:
                    state = self.gangs[key].state
                    take(assignment, state, report, store, moment(self.now))
            if key in self.gangs:
                self.settle(key)
        rows = [
            assignment
            for assignments in self.assignments.values()
            for assignment in assignments
            if assignment.node == node
            and (
                assignment.state != NodeAssignment.State.ENDED
                or (assignment.gang.key, node) in by_key
            )
        ]
        orders = list(told(rows, by_key, store, self._nodes()))
        return WorkOrders(now=self.now, orders=orders, poll_s=2.0, report_s=30.0)

    def _nodes(self) -> Mapping[str, list[str]]:
        return {
            key: [assignment.node for assignment in assignments]
            for key, assignments in self.assignments.items()
        }


@dataclass
class Line:
    """What a machine's runner talks to: the queue over a network that loses and delays."""

    node_queue: PureNodeQueue
    node: str
    #: "ok", "request lost", "answer lost" or "stale": an answer of before, in place of the new one
    mood: str = "ok"
    heard: list[WorkOrders] = field(default_factory=list)

    def work(self, node: str, store: str, *, timeout_s: float | None = None) -> WorkOrders:
        return self._answer(store, [])

    def report_work(self, reports: WorkReports, *, timeout_s: float | None = None) -> WorkOrders:
        return self._answer(reports.store, reports.reports)

    def _answer(self, store: str, reports: Sequence[WorkReport]) -> WorkOrders:
        from headroom.errors import Unavailable

        if self.mood == "request lost":
            raise Unavailable("lost")
        answer = self.node_queue.sync(self.node, store, reports)
        self.heard.append(answer)
        if self.mood == "answer lost":
            raise Unavailable("lost")
        return self.heard[len(self.heard) // 2] if self.mood == "stale" else answer
