"""Jobs as they are submitted to a server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest

from admission.core.request import Locality, Request
from admission.core.response.respond import Throttling
from headroom.client import Refused, Unavailable
from headroom.contracts import FieldError
from headroom.jobs import reading
from lab.live.jobs import Document, Manner, Submitter, job_document, set_up_project
from lab.world.arrival import Arrival

MANNER = Manner(run="r1", project="replay", sites=("s-oslo", "s-bergen"), faster=10.0)


def make_arrival(name: str = "job-1", **more: Any) -> Arrival:
    request = Request(
        key=f"{name}/train",
        job=name,
        phase="train",
        project="vision",
        job_class="training",
        priority=0,
        submitted_at=0.0,
        gpus=16,
        min_gpus=8,
        gpu_peak_w=650.0,
        lowest_cap_w=400.0,
        max_slowdown=0.25,
        required=Locality.SITE,
        preferred=Locality.RACK,
        walltime_s=7200.0,
        checkpoint_interval_s=600.0,
    )
    values: dict[str, Any] = {
        "at_s": 30.0,
        "request": request,
        "runs_s": 3000.0,
        "throttling": Throttling(shrink_below=0.05, pause_below=0.01, batch_scale=0.5),
        "moves": True,
        "activity": 0.9,
    }
    return Arrival(**(values | more))


def make_plain() -> Arrival:
    """Return a job that agrees to nothing and says little."""
    arrival = make_arrival(throttling=Throttling(), moves=False, activity=None)
    request = replace(
        arrival.request,
        min_gpus=16,
        gpu_peak_w=None,
        lowest_cap_w=None,
        max_slowdown=0.0,
        checkpoint_interval_s=None,
        walltime_s=10.0,
    )
    return replace(arrival, request=request)


@pytest.mark.parametrize(
    "throttling",
    [
        Throttling(),
        Throttling(shrink_below=0.05),
        Throttling(pause_below=0.01),
        Throttling(shrink_below=0.05, pause_below=0.01, batch_scale=0.6),
    ],
)
@pytest.mark.parametrize("moves", [True, False])
def test_it_is_a_job_that_a_server_takes(throttling: Throttling, moves: bool) -> None:
    arrival = make_arrival(throttling=throttling, moves=moves)
    # Raises where the specification is broken.
    reading.read(msgspec.json.encode(job_document(arrival, MANNER)))


def test_a_job_that_says_little_is_taken_too() -> None:
    document = job_document(make_plain(), MANNER)
    spec = reading.read(msgspec.json.encode(document))
    assert spec.phases[0].walltime_s == 60.0
    assert document["phases"][0]["throttling"]["responses"] == ["continue"]
    assert "checkpoint" not in document["phases"][0]


def test_times_are_shorter_as_the_replay_is_faster() -> None:
    (phase,) = job_document(make_arrival(), MANNER)["phases"]
    assert phase["env"]["TWIN_WORK_S"] == "300.0"
    assert phase["env"]["TWIN_CHECKPOINT_S"] == "60.0"
    assert phase["walltime_s"] == 720.0
    assert phase["checkpoint"] == {"interval_s": 60.0, "cross_site": "optional"}
    assert phase["locality"]["sites"] == ["s-oslo", "s-bergen"]
    assert phase["throttling"]["responses"] == ["continue", "shrink-batch", "pause", "migrate"]


@dataclass
class FakeServer:
    """Takes jobs; is away, or refuses those whose names it is told."""

    away: bool = False
    refuses: set[str] = field(default_factory=set)
    jobs: list[Document] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    projects: list[str] = field(default_factory=list)

    def get(self, path: str, params: Any = None) -> Any:
        assert path == "/api/v1/projects"
        return {"results": [{"name": name} for name in self.projects]}

    def post(self, path: str, document: Any, params: Any = None) -> Any:
        if path == "/api/v1/projects":
            self.projects.append(document["name"])
            return None
        if self.away:
            raise Unavailable("away")
        name = path.split("/")[-2]
        if name in self.refuses:
            raise Refused(409, FieldError(code="ended", message="it has ended"))
        self.cancelled.append(name)
        return None

    def post_body(
        self, path: str, body: bytes, content_type: str, params: Any = None, headers: Any = None
    ) -> Any:
        if self.away:
            raise Unavailable("away")
        document = msgspec.json.decode(body)
        self.keys.append(headers["Idempotency-Key"])
        if document["name"] in self.refuses:
            raise Refused(400, FieldError(code="above_class", message="too long"))
        self.jobs.append(document)


def make_submitter(server: FakeServer, due_s: list[float]) -> Submitter:
    return Submitter(server, [{"name": f"j{i}"} for i in range(len(due_s))], due_s)


def test_jobs_are_submitted_when_they_are_due_and_once() -> None:
    server = FakeServer()
    submitter = make_submitter(server, [0.0, 10.0, 10.0, 20.0])
    submitter.step(0.0)
    assert submitter.accepted == ["j0"]
    submitter.step(15.0)
    submitter.step(15.0)
    assert submitter.accepted == ["j0", "j1", "j2"]
    assert not submitter.done
    submitter.step(20.0)
    assert submitter.done
    assert server.keys == ["j0", "j1", "j2", "j3"]


def test_while_the_server_is_away_jobs_wait() -> None:
    server = FakeServer(away=True)
    submitter = make_submitter(server, [0.0, 0.0])
    submitter.step(5.0)
    assert (submitter.place, submitter.refused) == (0, 0)
    server.away = False
    # It is not asked again at once.
    submitter.step(5.0)
    assert server.jobs == []


def test_a_refused_job_is_counted_and_the_others_go_on() -> None:
    server = FakeServer(refuses={"j0", "j2"})
    submitter = make_submitter(server, [0.0] * 4)
    submitter.step(1.0)
    assert submitter.accepted == ["j1", "j3"]
    assert submitter.refused == 2
    assert submitter.refusals[0].startswith("j0: ")
    assert "too long" in submitter.refusals[0]


def test_what_was_accepted_is_cancelled_unless_it_has_ended() -> None:
    server = FakeServer()
    submitter = make_submitter(server, [0.0] * 3)
    submitter.step(1.0)
    server.refuses = {"j1"}
    submitter.cancel("it is over")
    assert server.cancelled == ["j0", "j2"]
    server.away = True
    submitter.cancel("it is over")


def test_a_project_is_made_once() -> None:
    server = FakeServer()
    for _ in range(2):
        set_up_project(server, "replay-philly", "a trace")
    assert server.projects == ["replay-philly"]
