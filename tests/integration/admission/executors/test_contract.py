"""What every executor keeps to: local machines, the twin's, a scheduler that is there, and Kueue.

Each stage plays those who obey: machines that ask, or the bridge of a scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

from admission.executors.models import Gang
from admission.executors.protocol import (
    Executor,
    NodeShare,
    SignalKind,
    Work,
    WorkOutcomeKind,
    WorkPlacement,
    WorkStatus,
    WorkStatusState,
)
from admission.executors.registry import executor_of
from admission.executors.schedulers import registered
from admission.executors.schedulers.models import SchedulerJob
from tests.builders.fleet import SmallFleet
from tests.builders.schedulers import NAME, Invented
from tests.integration.admission.executors.conftest import NODES, Machine
from tests.kubernetes import crds
from tests.kubernetes.client import Client
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import NAME as SITE_NAME
from tests.kubernetes.site import Site, made

pytestmark = pytest.mark.django_db

State = WorkStatusState
#: Rounds in which all who obey have done what they were told, and told of it.
ROUNDS = 5


class Stage(Protocol):
    """Those who obey an executor, and its only job."""

    executor: Executor
    job: str

    @property
    def starts(self) -> int:
        """How often something of it was started."""
        ...

    def round(self) -> None:
        """Have all do what they are told, and tell of it."""
        ...

    def end(self, key: str) -> None:
        """Have the work end by itself, well."""
        ...


@dataclass
class Machines:
    """Machines that ask for their orders."""

    executor: Executor
    machines: list[Machine]
    job: str = "llama"

    def round(self) -> None:
        for machine in self.machines:
            machine.obey()

    def end(self, key: str) -> None:
        for machine in self.machines:
            machine.hold(key, "ended", outcome="exited", exit_code=0)

    @property
    def starts(self) -> int:
        return Gang.objects.exclude(go_at=None).count()


@dataclass
class Bridged:
    """A scheduler that people have, and its bridge."""

    executor: Executor
    invented: Invented
    job: str = f"{NAME}-7"
    _began: set[float] = field(default_factory=set)

    def round(self) -> None:
        self.invented.obey()
        self.invented.tell()
        if began := self.invented.jobs["7"].get("started_at"):
            self._began.add(began)

    @property
    def starts(self) -> int:
        return len(self._began)

    def end(self, key: str) -> None:
        self.invented.jobs["7"] |= {"state": "ended", "ended_as": "succeeded", "exit_code": 0}


@dataclass
class Clustered:
    """A cluster with Kueue, and its bridge: a job of two pods."""

    executor: Executor
    site: Site
    job: str
    name: str = "gang"

    def round(self) -> None:
        """Have the bridge look, and give those who play Kueue and nodes time to follow."""
        self.site.step()
        time.sleep(0.3)
        self.site.step()

    def end(self, key: str) -> None:
        self.site.finish(self.name)

    @property
    def starts(self) -> int:
        """Pods are called alike each time: what they were made as is counted."""
        calls = self.site.api_server.calls
        return sum(call.resource == "pods" and call.verb == "create" for call in calls) // 2


@contextmanager
def clustered(fleet: SmallFleet, folder: Path) -> Iterator[Clustered]:
    with ApiServer(folder) as api_server:
        for definition in crds.kueue():
            Client(api_server.kubeconfig()).create(definition)
        with made(fleet, api_server) as site:
            site.begin()
            site.submit(Clustered.name, pods=2)
            held = SchedulerJob.objects.filter(state="held")
            site.sees(held.exists)
            yield Clustered(executor_of(SITE_NAME), site, held.get().name)


@pytest.fixture(params=["local", "twin", "scheduler", "kueue"])
def stage(request: pytest.FixtureRequest, fleet: SmallFleet, tmp_path: Path) -> Iterator[Stage]:
    if request.param == "kueue":
        registered.invalidate()
        with clustered(fleet, tmp_path) as found:
            yield found
        registered.invalidate()
        return
    if request.param != "scheduler":
        machines = [Machine(fleet.token, node) for node in NODES]
        yield Machines(executor_of(request.param), machines)
        return
    registered.invalidate()
    invented = Invented(fleet, fleet.token)
    invented.submit("7", gpus=8, nodes_wanted=2)
    invented.tell()
    yield Bridged(executor_of(NAME), invented)
    registered.invalidate()


def work_for(stage: Stage, number: int = 1) -> Work:
    return Work(
        key=f"{stage.job}/job/{number}", job=stage.job, phase="job", number=number,
        command=("train",),
    )  # fmt: skip


def placed(fleet: SmallFleet) -> WorkPlacement:
    return WorkPlacement(
        tuple(NodeShare(fleet.nodes[node].pk, node, (0, 1, 2, 3), 4) for node in NODES)
    )


def status(stage: Stage, key: str) -> WorkStatus:
    (found,) = stage.executor.status([key])
    return found


def rounds(stage: Stage) -> None:
    for _ in range(ROUNDS):
        stage.round()


def running(stage: Stage, fleet: SmallFleet) -> str:
    work = work_for(stage)
    stage.executor.submit([work], time.time())
    stage.executor.release({work.key: placed(fleet)}, time.time())
    rounds(stage)
    assert status(stage, work.key).state is State.RUNNING
    return work.key


def test_what_is_submitted_is_held_and_nothing_of_it_runs(stage: Stage) -> None:
    work = work_for(stage)
    for _ in range(2):
        stage.executor.submit([work], time.time())
    rounds(stage)
    assert status(stage, work.key).state is State.HELD
    assert stage.executor.missing([work.key, "x/y/1"]) == [work.key, "x/y/1"]
    assert stage.starts == 0


def test_what_is_released_runs_once_however_often_it_is_said(
    stage: Stage, fleet: SmallFleet
) -> None:
    key = running(stage, fleet)
    stage.executor.submit([work_for(stage)], time.time())
    stage.executor.release({key: placed(fleet)}, time.time())
    rounds(stage)
    assert stage.starts == 1
    assert status(stage, key).started_at is not None
    assert stage.executor.missing([key]) == []
    assert [each.key for each in stage.executor.adopt()] == [key]
    assert stage.executor.adopt(besides=[key]) == []


def test_what_ends_is_told_until_it_is_noted(stage: Stage, fleet: SmallFleet) -> None:
    key = running(stage, fleet)
    stage.executor.note(stage.executor.changes())
    assert stage.executor.changes() == []
    stage.end(key)
    rounds(stage)
    for _ in range(2):
        (changed,) = stage.executor.changes()
        assert (changed.state, changed.outcome) == (State.ENDED, WorkOutcomeKind.SUCCEEDED)
        assert (changed.exit_code, changed.ended_at is None) == (0, False)
    stage.executor.note([changed])
    assert stage.executor.changes() == []
    assert stage.executor.adopt() == []


def test_what_is_stopped_before_it_began_never_begins(stage: Stage, fleet: SmallFleet) -> None:
    work = work_for(stage)
    stage.executor.submit([work], time.time())
    assert stage.executor.signal(work.key, SignalKind.STOP, time.time(), why="no") is not None
    stage.executor.release({work.key: placed(fleet)}, time.time())
    rounds(stage)
    found = status(stage, work.key)
    assert (found.state, found.outcome) == (State.ENDED, WorkOutcomeKind.STOPPED)
    assert stage.starts == 0


def test_what_runs_is_stopped_and_says_why(stage: Stage, fleet: SmallFleet) -> None:
    key = running(stage, fleet)
    seqs = [
        stage.executor.signal(key, kind, time.time(), value=value, why="the feed is full")
        for kind, value in ((SignalKind.SET_BATCH_SCALE, 0.5), (SignalKind.STOP, None))
    ]
    assert seqs == [1, 2]
    rounds(stage)
    found = status(stage, key)
    assert (found.state, found.outcome) == (State.ENDED, WorkOutcomeKind.STOPPED)
    assert "the feed is full" in found.why
    assert stage.executor.signal(key, SignalKind.PAUSE, time.time()) is None


def test_what_it_never_heard_of_it_does_not_know(stage: Stage) -> None:
    assert status(stage, "x/y/1").state is State.UNKNOWN
    assert stage.executor.signal("x/y/1", SignalKind.STOP, time.time()) is None
    assert stage.executor.missing([]) == []
    stage.executor.follow(time.time())
