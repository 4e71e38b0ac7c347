"""The teams of the demo queue jobs that the server takes, and leave it alone where it is full."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from headroom.client import Refused, Unavailable
from headroom.contracts import FieldError
from headroom.jobs import reading
from lab.fleet import GPUS_PER_NODE, make_fleet, queue_nodes
from lab.teams import (
    FIRST,
    HABITS,
    HOLD_EVERY,
    HOLD_FOR,
    MOST_REFUSED,
    OF_ONE_PROJECT,
    WAITING,
    Teams,
    job,
)


class FakeServer:
    """Takes jobs, and says how many wait."""

    def __init__(self) -> None:
        self.jobs: list[dict[str, Any]] = []
        self.projects: list[dict[str, Any]] = [{"name": "vision", "waiting": 0}]
        self.acts: list[tuple[str, str]] = []
        self.starts = True
        self.error: Exception | None = None

    def get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        self._fail()
        return {"results": self.projects}

    def post(self, path: str, document: Any, params: Mapping[str, str] | None = None) -> Any:
        self._fail()
        if path == "/api/v1/jobs":
            self.jobs.append(document)
            for project in self.projects:
                project["waiting"] += project["name"] == document["project"] and not self.starts
        elif path == "/api/v1/projects":
            self.projects.append({**document, "waiting": 0})
        else:
            _, name, verb = path.rsplit("/", 2)
            self.acts.append((verb, name))
        return {}

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def teams(server: FakeServer) -> Teams:
    return Teams(server, stop=threading.Event(), rng=random.Random(3))


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.stem)
def test_what_they_queue_keeps_to_the_specification(habit: Any) -> None:
    rng = random.Random(5)
    for number in range(20):
        document = job(habit, f"{habit.stem}-{number}", rng)
        spec = reading.read(msgspec.json.encode(document))
        for phase in spec.phases:
            assert phase.gang.gpus % GPUS_PER_NODE == 0
            assert phase.walltime_s > 2 * float(phase.env["TWIN_WORK_S"])


def test_together_they_want_more_gpus_than_are_for_the_queue() -> None:
    fleet = make_fleet(gpus=1536)
    rng = random.Random(5)
    wanted = [
        max(phase["gang"]["gpus"] for phase in job(habit, "x", rng)["phases"])
        for habit in rng.choices(HABITS, [habit.weight for habit in HABITS], k=FIRST)
    ]
    assert sum(wanted) > queue_nodes(fleet).sum() * GPUS_PER_NODE


def test_a_quarter_of_the_nodes_is_for_the_queue() -> None:
    for gpus in (64, 128, 1536, 10_000):
        share = queue_nodes(make_fleet(gpus=gpus)).mean()
        assert 0.15 < share < 0.35, gpus


def test_projects_that_are_missing_are_made(server: FakeServer, teams: Teams) -> None:
    assert teams.set_up()
    names = [each["name"] for each in server.projects]
    assert len(names) == len(set(names))
    assert {habit.project for habit in HABITS} <= set(names)


def test_they_stop_while_enough_waits(server: FakeServer, teams: Teams) -> None:
    for _ in range(FIRST):
        assert teams.step()
    assert len(server.jobs) == FIRST
    server.projects[0]["waiting"] = WAITING
    assert teams.step()
    assert len(server.jobs) == FIRST
    server.projects[0]["waiting"] = WAITING - 1
    assert teams.step()
    assert len(server.jobs) == FIRST + 1


def test_where_nothing_begins_they_queue_no_more_than_at_first(
    server: FakeServer, teams: Teams
) -> None:
    teams.set_up()
    server.starts = False
    for _ in range(2 * FIRST):
        teams.step()
    assert len(server.jobs) <= FIRST


def test_no_project_fills_the_queue_with_its_own(server: FakeServer, teams: Teams) -> None:
    teams.set_up()
    server.starts = False
    for _ in range(2 * FIRST):
        teams.step()
    counts = Counter(each["project"] for each in server.jobs)
    assert set(counts) == {habit.project for habit in HABITS}
    assert set(counts.values()) == {OF_ONE_PROJECT}


def test_what_others_queue_is_not_theirs(server: FakeServer, teams: Teams) -> None:
    server.projects.append({"name": "somebody", "waiting": 1_000})
    teams.step()
    assert len(server.jobs) == 1


def test_names_differ(server: FakeServer, teams: Teams) -> None:
    for _ in range(200):
        teams.step()
    names = [each["name"] for each in server.jobs]
    assert len(set(names)) == len(names) == 200


def test_some_jobs_are_held_for_a_while(server: FakeServer, teams: Teams) -> None:
    for _ in range(HOLD_EVERY // 2 + HOLD_FOR):
        teams.step()
    held = server.jobs[HOLD_EVERY // 2 - 1]["name"]
    assert server.acts == [("hold", held), ("release", held)]


def test_a_server_that_is_away_is_asked_again(server: FakeServer, teams: Teams) -> None:
    server.error = Unavailable("away")
    assert not teams.set_up()
    for _ in range(3 * MOST_REFUSED):
        assert teams.step()
    server.error = None
    assert teams.set_up()
    teams.step()
    assert len(server.jobs) == 1


def test_where_the_server_wants_no_jobs_they_give_up(server: FakeServer, teams: Teams) -> None:
    server.error = Refused(403, FieldError(code="permission_denied", message="no"))
    assert [teams.step() for _ in range(MOST_REFUSED)] == [True] * (MOST_REFUSED - 1) + [False]


def test_one_refusal_is_no_reason_to_give_up(server: FakeServer, teams: Teams) -> None:
    for _ in range(MOST_REFUSED * 3):
        server.error = Refused(409, FieldError(code="name_taken", message="taken"))
        assert teams.step()
        server.error = None
        assert teams.step()
    assert server.jobs


def test_the_thread_ends_when_it_is_told_to(server: FakeServer) -> None:
    stop = threading.Event()
    teams = Teams(server, stop=stop)
    teams.start()
    for _ in range(300):
        if server.jobs:
            break
        threading.Event().wait(0.01)
    stop.set()
    teams.join(2.0)
    assert server.jobs
