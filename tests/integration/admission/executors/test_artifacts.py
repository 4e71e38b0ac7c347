"""Artifacts of phases: recorded as machines measured them, and handed to those that take them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import User
from accounts.roles import Role
from admission.cycle import dispatch, live
from admission.executors.models import Gang
from admission.jobs import artifacts
from admission.jobs.models import Artifact, Attempt, Job, JobEvent, Phase
from headroom.jobs import words
from headroom.work.contract import Measured
from tests.builders.accounts import api_client, bearer, make_token, make_user
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import make_project
from tests.integration.admission.cycle.conftest import clean_stores as clean_stores
from tests.integration.admission.cycle.scenes import cycle, idle
from tests.integration.admission.executors.conftest import Machine, Scene
from tests.unit.headroom.jobs.specs import make_phase, make_spec

pytestmark = pytest.mark.django_db

FIRST, SECOND = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
MODEL = {"name": "model", "path": "/models/a.pt"}
OF_TRAIN = {"phase": "train", "output": "model"}


def measured(digest: str = FIRST, name: str = "model", **given: Any) -> dict[str, Any]:
    return {"name": name, "digest": digest, "size_bytes": 7, "at": 1.0, **given}


def running(scene: Scene, **output: Any) -> Attempt:
    """Have a gang of two nodes run that makes an artifact."""
    attempt = scene.attempt()
    job = attempt.phase.job
    job.spec["phases"][0]["outputs"] = [{**MODEL, **output}]
    job.save(update_fields=["spec"])
    attempt.placement["sites"] = ["bergen"]
    attempt.save(update_fields=["placement"])
    dispatch.dispatch([attempt], scene.now)
    for _ in range(4):
        scene.go_round()
    scene.reconcile()
    return attempt


def end(scene: Scene, attempt: Attempt, *outputs: Mapping[str, Any], exit_code: int = 0) -> None:
    """Have the command end on all nodes, each with its own measures, by rank."""
    for machine, found in zip(scene.machines, outputs, strict=True):
        made = {"outputs": [found]} if found else {}
        machine.hold(attempt.key, "ended", outcome="exited", exit_code=exit_code, **made)
    scene.go_round()
    scene.reconcile()


def test_machines_are_told_which_artifacts_to_measure(scene: Scene) -> None:
    attempt = running(scene)
    assert Gang.objects.get(key=attempt.key).work["outputs"] == [MODEL]


def test_an_artifact_is_recorded_as_the_node_found_it_that_measured_last(scene: Scene) -> None:
    attempt = running(scene)
    end(scene, attempt, measured(SECOND, at=5.0), measured(FIRST, at=4.0))
    row = Artifact.objects.get()
    assert (row.phase, row.name, row.path) == (attempt.phase, "model", "/models/a.pt")
    assert (row.digest, row.size_bytes, row.site) == (SECOND, 7, "bergen")
    event = JobEvent.objects.get(kind=artifacts.RECORDED)
    assert event.text == f"train made model at bergen: 7 bytes, {SECOND}"
    # It is said before the phase ends, and so before what takes it may begin.
    assert event.pk < JobEvent.objects.get(kind="ended", phase="train").pk


def test_what_a_phase_has_not_declared_is_not_recorded(scene: Scene) -> None:
    attempt = running(scene)
    end(scene, attempt, measured(name="other"), measured(name="other"))
    assert not Artifact.objects.exists()
    assert scene.phase(attempt).state == "succeeded"


def test_nothing_is_recorded_of_a_phase_that_has_failed_on_one_node(scene: Scene) -> None:
    attempt = running(scene)
    scene.machines[0].hold(
        attempt.key, "ended", outcome="exited", exit_code=0, outputs=[measured()]
    )
    scene.machines[1].hold(attempt.key, "ended", outcome="exited", exit_code=1)
    scene.go_round()
    scene.reconcile()
    assert scene.phase(attempt).state == "failed"
    assert not Artifact.objects.exists()


def test_what_is_recorded_stays_whoever_records_it_again(scene: Scene) -> None:
    attempt = running(scene)
    end(scene, attempt, measured(), measured())
    again = Measured(name="model", digest=SECOND, size_bytes=9, at=9.0)
    attempt.refresh_from_db()
    artifacts.record(attempt, [again], scene.at)
    assert Artifact.objects.get().digest == FIRST
    assert JobEvent.objects.filter(kind=artifacts.RECORDED).count() == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"digest": "sha256:short"},
        {"digest": f"sampled-{FIRST}"},
        {"size_bytes": -1},
        {"name": ""},
    ],
)
def test_a_report_with_a_bad_measure_is_refused_with_the_field(
    scene: Scene, wrong: dict[str, Any]
) -> None:
    attempt = running(scene)
    machine: Machine = scene.machines[0]
    machine.hold(attempt.key, "ended", outcome="exited", outputs=[{**measured(), **wrong}])
    answer = machine.post()
    assert answer.status_code == 400
    assert f"outputs[0].{next(iter(wrong))}" in answer.json()["error"]["field"]


# --- Handed on -----------------------------------------------------------------------------------


@pytest.fixture
def two_sites(clean_stores: None) -> SmallFleet:
    made = small_fleet(sites=["bergen", "oslo"], rows=["A"], racks_per_row=1, nodes_per_rack=1)
    idle(made)
    return made


def submitted(*phases: dict[str, Any], name: str = "pipeline") -> Client:
    make_project("vision")
    operator = api_client(Role.OPERATOR)
    spec = make_spec(*phases, name=name)
    answer = operator.post("/api/v1/jobs", spec, content_type="application/json")
    assert answer.status_code == 201, answer.content
    return operator


def make_train(**given: Any) -> dict[str, Any]:
    return make_phase("train", **{"gang": {"gpus": 4}, "outputs": [MODEL], **given})


def make_check(**given: Any) -> dict[str, Any]:
    fields = {"gang": {"gpus": 4}, "needs": ["train"], "inputs": [OF_TRAIN], **given}
    return make_phase("check", **fields)


def succeed(*found: dict[str, Any]) -> Attempt:
    """Have the machines of whatever runs say that it has succeeded; do a cycle."""
    attempt = Attempt.objects.select_related("phase__job").get(state="dispatched")
    gang = Gang.objects.get(key=attempt.key)
    at = attempt.dispatched_at
    gang.assignments.update(
        state="ended", outcome="exited", exit_code=0, started_at=at, ended_at=at,
        outputs=list(found) or None,
    )  # fmt: skip
    Gang.objects.filter(pk=gang.pk).update(
        go_at=at, ended_at=at, outcome="succeeded", version=gang.version + 1
    )
    cycle()
    return attempt


def why(operator: Client, name: str = "pipeline") -> dict[str, Any]:
    live.invalidate()
    (phase,) = operator.get(f"/api/v1/jobs/{name}/explain").json()["phases"]
    found: dict[str, Any] = phase["reasons"][0]
    return found


def test_a_phase_begins_where_its_artifact_is_and_is_told_digest_and_path(
    two_sites: SmallFleet,
) -> None:
    submitted(make_train(locality={"sites": ["oslo"]}), make_check())
    cycle()
    succeed(measured())
    cycle()
    attempt = Attempt.objects.get(phase__name="check")
    assert attempt.placement["sites"] == ["oslo"]
    work = Gang.objects.get(key=attempt.key).work
    taken = {"name": "artifact/train/model", "digest": FIRST, "path": "/models/a.pt"}
    assert work["inputs"] == [taken]
    assert work["env"] == {
        "HEADROOM_ARTIFACT_TRAIN_MODEL": "/models/a.pt",
        "HEADROOM_ARTIFACT_TRAIN_MODEL_DIGEST": FIRST,
    }


def test_a_phase_waits_for_an_artifact_that_no_machine_has_measured(two_sites: SmallFleet) -> None:
    operator = submitted(make_train(), make_check())
    cycle()
    # As of an agent that measures nothing yet.
    succeed()
    cycle()
    assert Phase.objects.get(name="check").reason == "ArtifactPending"
    reason = why(operator)
    assert reason["token"] == "ArtifactPending"
    assert (reason["need"], reason["have"], reason["unit"]) == (1.0, 0.0, "artifacts")
    assert reason["sentence"] == (
        "waits for artifact model of phase train: no machine has measured it yet"
    )


def test_a_phase_waits_for_an_artifact_that_is_at_another_site(two_sites: SmallFleet) -> None:
    operator = submitted(
        make_train(locality={"sites": ["oslo"]}), make_check(locality={"sites": ["bergen"]})
    )
    cycle()
    succeed(measured())
    cycle()
    assert why(operator)["sentence"] == (
        "waits for artifact model of phase train: it is at oslo, and it may run at bergen"
    )


def test_a_copy_at_another_site_is_taken_there(two_sites: SmallFleet) -> None:
    copied = {"name": "model", "path": "/mnt/b.pt", "copy_of": OF_TRAIN}
    operator = submitted(
        make_train(
            locality={"sites": ["oslo"]}, outputs=[{**MODEL, "copies": ["bergen"]}]
        ),
        make_phase("copy", gang={"gpus": 1}, needs=["train"], locality={"sites": ["bergen"]},
                   outputs=[copied]),
        make_check(needs=["copy"], locality={"sites": ["bergen"]}),
    )  # fmt: skip
    cycle()
    succeed(measured())
    (line,) = operator.get("/api/v1/jobs/pipeline/artifacts").json()["artifacts"]
    assert [(each["site"], each["is_whole"]) for each in line["places"]] == [
        ("oslo", True), ("bergen", None),
    ]  # fmt: skip
    cycle()
    succeed(measured())
    cycle()
    attempt = Attempt.objects.get(phase__name="check")
    work = Gang.objects.get(key=attempt.key).work
    assert work["inputs"][0]["path"] == "/mnt/b.pt"
    answer = operator.get("/api/v1/jobs/pipeline/artifacts").json()
    assert list(words.artifacts(answer)) == [
        "ARTIFACT        SIZE  AT",
        "train/model  7 bytes  oslo, bergen",
        f"train/model: {FIRST}, /models/a.pt",
    ]


def test_a_copy_that_differs_is_told_and_not_taken(two_sites: SmallFleet) -> None:
    copied = {"name": "model", "path": "/mnt/b.pt", "copy_of": OF_TRAIN}
    operator = submitted(
        make_train(locality={"sites": ["oslo"]}),
        make_phase("copy", gang={"gpus": 1}, needs=["train"], locality={"sites": ["bergen"]},
                   outputs=[copied]),
        make_check(needs=["copy"], locality={"sites": ["bergen"]}),
    )  # fmt: skip
    cycle()
    succeed(measured())
    cycle()
    succeed(measured(SECOND))
    cycle()
    assert Phase.objects.get(name="check").reason == "ArtifactPending"
    (line,) = operator.get("/api/v1/jobs/pipeline/artifacts").json()["artifacts"]
    assert [(each["site"], each["is_whole"]) for each in line["places"]] == [
        ("oslo", True), ("bergen", False),
    ]  # fmt: skip


MATRIX = {"name": "matrix", "path": "/models/matrix", "matrix": True}
CELLS = {"passed": 7, "failed": 0, "error": 0, "not_measured": 0, "not_run": 0}


def promotion() -> tuple[dict[str, Any], ...]:
    """Return a model that is trained and tested, promoted at both sites, and copied meanwhile."""
    at_oslo = {"locality": {"sites": ["oslo"]}}
    return (
        make_train(outputs=[{**MODEL, "copies": ["bergen"]}, MATRIX], **at_oslo),
        make_phase(
            "promote", gang={"gpus": 1}, needs=["train"], inputs=[OF_TRAIN], **at_oslo,
            promotion={"matrix": [{"phase": "train", "output": "matrix"}]},
        ),
        make_phase(
            "copy", gang={"gpus": 1}, needs=["train"], locality={"sites": ["bergen"]},
            outputs=[{**MODEL, "copy_of": OF_TRAIN}],
        ),
    )  # fmt: skip


def test_a_promotion_is_refused_while_a_copy_lags_and_begins_once_it_is_there(
    two_sites: SmallFleet,
) -> None:
    operator = submitted(*promotion())
    cycle()
    assert Gang.objects.get().work["outputs"] == [MODEL, MATRIX]
    succeed(measured(), measured(SECOND, "matrix", cells=CELLS))
    cycle()
    assert Phase.objects.get(name="promote").reason == "ArtifactPending"
    reason = why(operator)
    assert (reason["need"], reason["have"], reason["unit"]) == (2.0, 1.0, "places")
    assert reason["sentence"] == (
        "promotes only what has its copies: that of artifact model of phase train at bergen is"
        " missing; 1 of 2 places have theirs, 7 bytes lag"
    )
    succeed(measured())
    cycle()
    assert Attempt.objects.get(phase__name="promote").state == "dispatched"


def test_a_promotion_is_refused_for_good_by_a_matrix_that_has_not_passed(
    two_sites: SmallFleet,
) -> None:
    operator = submitted(*promotion())
    cycle()
    failed = {**CELLS, "passed": 5, "failed": 2}
    succeed(measured(), measured(SECOND, "matrix", cells=failed))
    cycle()
    succeed(measured())
    cycle()
    assert Phase.objects.get(name="promote").reason == "DependencyNeverMet"
    reason = why(operator)
    assert (reason["need"], reason["have"], reason["unit"]) == (7.0, 5.0, "cells")
    answer = operator.get("/api/v1/jobs/pipeline/artifacts").json()
    assert answer["artifacts"][1]["cells"] == failed
    assert "5 of 7 cells passed, 2 failed" in "\n".join(words.artifacts(answer))


def test_artifacts_are_shown_to_those_who_see_the_job_and_to_nobody_else(
    two_sites: SmallFleet,
) -> None:
    submitted(make_train(outputs=[{**MODEL, "copies": ["oslo"]}]))
    stranger: User = make_user(Role.ML_USER)
    client = Client(headers=bearer(make_token(stranger)))
    assert client.get("/api/v1/jobs/pipeline/artifacts").status_code == 404
    member = Job.objects.get(name="pipeline").project.members
    member.add(stranger)
    (line,) = client.get("/api/v1/jobs/pipeline/artifacts").json()["artifacts"]
    assert (line["phase"], line["name"], line["digest"], line["size_bytes"]) == (
        "train", "model", "", None,
    )  # fmt: skip
    assert Client().get("/api/v1/jobs/pipeline/artifacts").status_code == 401


def test_a_site_that_copies_are_to_be_at_has_to_be_there(two_sites: SmallFleet) -> None:
    make_project("vision")
    spec = make_spec(make_train(outputs=[{**MODEL, "copies": ["olso"]}]))
    answer = api_client(Role.OPERATOR).post("/api/v1/jobs", spec, content_type="application/json")
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == ("unknown_site", "phases[0].outputs[0].copies[0]")
    assert error["hint"] == "do you mean 'oslo'?"


def test_the_page_of_a_job_shows_its_artifacts(two_sites: SmallFleet) -> None:
    submitted(make_train(outputs=[{**MODEL, "copies": ["oslo"]}], locality={"sites": ["bergen"]}))
    client = Client()
    client.force_login(make_user(Role.OPERATOR, username="olga"))
    assert "not made yet" in client.get("/jobs/pipeline/").content.decode()
    cycle()
    succeed(measured())
    page = client.get("/jobs/pipeline/").content.decode()
    assert "7 bytes at bergen, oslo (missing)" in page
    assert FIRST in page


def test_looking_at_the_queue_asks_for_artifacts_where_some_are_taken_alone(
    two_sites: SmallFleet,
) -> None:
    submitted(make_train(), name="alone")
    live.snapshot(time.time())  # requests are read once
    with CaptureQueriesContext(connection) as asked:
        live.snapshot(time.time())
    assert not [each for each in asked if "admission_jobs_artifact" in each["sql"]]
