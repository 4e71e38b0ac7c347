"""Two runs stand on one axis by step, with what they were given that differs, for who sees both."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from admission.directives.models import Directive
from admission.jobs.models import Attempt, Job, JobRevision
from fleet import snapshot
from fleet.models import Gpu
from policies.restrictions.models import Restriction
from telemetry.models import ReportedJob
from telemetry.samples import GPU, JOB
from tests.builders.accounts import api_client, bearer, client_of, make_token, make_user
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node, write_samples
from tests.html import html_of

pytestmark = pytest.mark.django_db

URL = "/api/v1/jobs/llama/timeline/compared"
EVERY_S = 10.0
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def began() -> float:
    return float(int(time.time()) // 3600 * 3600 - 7200)


def at(moment: float) -> datetime:
    return datetime.fromtimestamp(moment, UTC)


def run(
    job: Job, began: float, *, node: str, loss: float, power_w: float, first: int = 0, **given: Any
) -> Attempt:
    """Have a job have run on the first GPU of a node for 600 s, a step each 10 s from ``first``."""
    row = make_attempt(
        job.phases.get(), {node: [0]}, state="ended", outcome="failed",
        dispatched_at=at(began), started_at=at(began + 20.0), ended_at=at(began + 600.0), **given,
    )  # fmt: skip
    times = [began + 60.0 + EVERY_S * each for each in range(54)]
    known, _ = ReportedJob.objects.get_or_create(name=row.key)
    steps = [first + each for each in range(54)]
    write_samples(JOB, known.pk, times, step=steps, loss=loss, step_time_s=10.0)
    times = [began + EVERY_S * each for each in range(60)]
    write_samples(GPU, Gpu.objects.get(node__name=node, index=0).pk, times, power_w=power_w)
    return row


@pytest.fixture
def job(db: None) -> Job:
    make_node("n1", gpus=1)
    make_node("n2", gpus=1, rack="A02")
    snapshot.fresh()
    return make_job("llama", gpus=1, state="running")


@pytest.fixture
def two(job: Job, began: float) -> tuple[Attempt, Attempt]:
    """A run from step 0 on one node, and one from step 30 on another, under a lower cap."""
    first = run(job, began, node="n1", loss=4.0, power_w=600.0, placement={"power_cap_w": None})
    last = run(job, began + 1000.0, node="n2", loss=3.0, power_w=500.0, first=30)
    return first, last


def ask(params: Mapping[str, str] | None = None, status: int = 200) -> dict[str, Any]:
    answer = api_client(Role.OPERATOR).get(URL, params or {})
    assert answer.status_code == status, answer.content
    found: dict[str, Any] = answer.json()
    return found


def row(run: Mapping[str, Any], key: str) -> dict[str, Any]:
    (only,) = [each for each in run["rows"] if each["key"] == key]
    return dict(only["columns"])


def test_an_attempt_is_compared_with_the_one_before_it_by_step(two: object) -> None:
    found = ask()
    assert (found["this"]["attempt"], found["other"]["attempt"]) == (
        "llama/train/2", "llama/train/1",
    )  # fmt: skip
    ours, theirs = row(found["this"], "loss"), row(found["other"], "loss")
    assert (ours["step"][0], ours["step"][-1]) == (30.0, 83.0)
    assert (theirs["step"][0], theirs["step"][-1]) == (0.0, 53.0)
    assert (set(ours["loss"]), set(theirs["loss"])) == ({3.0}, {4.0})
    power = row(found["this"], "power")
    assert set(power["power_w"]) == {500.0}
    assert 30.0 <= min(power["step"]) <= max(power["step"]) <= 83.0


def test_place_limits_and_what_was_told_meanwhile_are_told_where_they_differ(
    two: tuple[Attempt, Attempt],
) -> None:
    Directive.objects.create(
        attempt=two[1], kind="set_power_cap", value=450.0, owner="response", cause="A",
        reason="feed", state="verdict", issued_at=two[1].dispatched_at,
        expires_at=LATER, applied_at=two[1].started_at,
    )  # fmt: skip
    Restriction.objects.create(
        kind="power_cap_w", scope_kind="node", scope_name="n1", value=400.0, reason="feed",
        owner="user:ada", cause="x", state="ended", issued_at=two[0].dispatched_at,
        effect_at=two[0].dispatched_at, ended_at=two[0].ended_at, expires_at=LATER,
    )  # fmt: skip
    found = {(each["kind"], each["what"]): each for each in ask()["differences"]}
    nodes = found["place", "nodes"]
    assert (nodes["this"], nodes["other"]) == ("n2", "n1")
    cap = found["limits", "power cap of its placement"]
    assert (cap["this"], cap["other"]) == ("550 W per GPU", "")
    meanwhile = found["limits", "in force meanwhile"]
    assert "450" in meanwhile["this"]
    assert meanwhile["other"] == "power_cap_w 400"
    assert ("place", "GPUs") not in found


def test_image_and_inputs_are_those_of_when_each_began(two: tuple[Attempt, Attempt]) -> None:
    job = two[0].phase.job
    old = {"name": "train", "artifacts": {"image": "sha256:old", "data": {"c4": "sha256:1"}}}
    new = {"name": "train", "artifacts": {"image": "sha256:new", "data": {"c4": "sha256:2"}}}
    JobRevision.objects.create(
        job=job, number=1, spec={"phases": [old]}, replaced_at=two[1].dispatched_at,
        replaced_by="ada",
    )  # fmt: skip
    Job.objects.filter(pk=job.pk).update(spec={"phases": [new]})
    found = {each["what"]: each for each in ask()["differences"]}
    assert (found["image"]["this"], found["image"]["other"]) == ("sha256:new", "sha256:old")
    assert (found["c4"]["this"], found["c4"]["other"]) == ("sha256:2", "sha256:1")


def test_another_job_may_be_named_and_its_attempt(two: object, began: float) -> None:
    other = make_job("bert", gpus=1, state="running")
    run(other, began, node="n1", loss=9.0, power_w=300.0)
    for key in ("bert", "bert/train", "bert/train/1"):
        assert ask({"with": key})["other"]["attempt"] == "bert/train/1"
    one = ask({"with": "bert", "attempt": "1"})
    assert one["this"]["attempt"] == "llama/train/1"


def test_a_file_has_both_runs_by_step(two: object) -> None:
    answer = api_client(Role.OPERATOR).get(URL, {"format": "csv"})
    assert "llama-train-2-llama-train-1" in answer["Content-Disposition"]
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    by_step = {float(each["step"]): each for each in lines}
    assert (by_step[40.0]["this_loss"], by_step[40.0]["other_loss"]) == ("3.0", "4.0")
    assert (by_step[10.0]["this_loss"], by_step[10.0]["other_loss"]) == ("", "4.0")


def test_a_run_whose_loop_told_of_no_steps_says_so(two: object, began: float) -> None:
    other = make_job("silent", gpus=1, state="running")
    make_attempt(other.phases.get(), {"n1": [0]}, dispatched_at=at(began), started_at=at(began))
    found = ask({"with": "silent"})["other"]
    assert (found["rows"], found["why"]) == ([], "its loop has told of no steps")


def test_the_job_of_another_project_is_as_one_that_is_not_there(
    two: tuple[Attempt, Attempt], began: float
) -> None:
    secret = make_job("secret", project="sphinx", gpus=1, state="running")
    run(secret, began, node="n1", loss=9.0, power_w=300.0)
    ada = make_user(Role.ML_USER, username="ada")
    ada.projects.add(two[0].phase.job.project)
    client = Client(headers=bearer(make_token(ada)))
    assert client.get(URL).status_code == 200
    answers = [client.get(URL, {"with": name}) for name in ("secret", "secret/train/1", "nobody")]
    assert [each.status_code for each in answers] == [404, 404, 404]
    assert client.get("/api/v1/jobs/secret/timeline/compared").status_code == 404


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"attempt": "1"}, "with"),
        ({"attempt": "x"}, "attempt"),
        ({"points": "0"}, "points"),
        ({"wiht": "bert"}, "wiht"),
    ],
)
def test_bad_parameters_are_refused_by_name(
    two: object, params: dict[str, str], field: str
) -> None:
    assert ask(params, 400)["error"]["field"] == field


class TestThePage:
    PAGE = "/jobs/llama/compared/"

    def test_it_has_what_differs_and_where_the_runs_come_from(self, two: object) -> None:
        html = html_of(client_of(Role.OPERATOR).get(self.PAGE))
        assert "llama/train/2 and llama/train/1, by step" in html
        assert "What differs" in html
        assert "with=llama%2Ftrain%2F1" in html

    def test_the_page_of_the_job_leads_to_it(self, two: object) -> None:
        html = html_of(client_of(Role.OPERATOR).get("/jobs/llama/"))
        assert "/jobs/llama/compared/?phase=train&amp;attempt=2" in html

    def test_the_first_attempt_asks_with_which(self, two: object) -> None:
        html = html_of(client_of(Role.OPERATOR).get(self.PAGE, {"attempt": "1"}))
        assert "llama/train/1 is the first of its phase" in html

    def test_what_is_not_there_is_told(self, two: object) -> None:
        for params in ({"attempt": "x"}, {"attempt": "9"}, {"phase": "eval"}):
            assert client_of(Role.OPERATOR).get(self.PAGE, params).status_code == 404
        answer = client_of(Role.OPERATOR).get(self.PAGE, {"with": "nobody"})
        assert answer.status_code == 404
        assert "There is no attempt &#x27;nobody&#x27;" in answer.content.decode()

    def test_the_job_of_another_project_is_not_there(self, two: object) -> None:
        make_job("secret", project="sphinx", gpus=1)
        ml_user = client_of(Role.ML_USER)
        assert ml_user.get("/jobs/secret/compared/").status_code == 404
