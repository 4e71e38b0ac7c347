"""Phases of a pipeline that are jobs of a scheduler, each by itself, which hand artifacts on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from accounts.roles import Role
from admission.jobs import artifacts
from admission.jobs.models import Artifact, ArtifactCopy, Job, JobEvent, Phase
from fleet.models import HardwareModel, Node
from tests.builders.accounts import api_client
from tests.builders.begun import begin_anew
from tests.builders.fleet import small_fleet
from tests.builders.schedulers import NAME, Invented

pytestmark = pytest.mark.django_db

FIRST, SECOND = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
WITHOUT_GPUS, ELSEWHERE = "bergen-a01-n2", "oslo-a01-n2"
MAKES = "output=bundle,path=/shared/b,copies=oslo"
PROMOTES = "input=package/bundle promotion=package/cells"
CPU = {"gpus": 0, "gpus_per_node": None, "model": "", "cores": 2}


@pytest.fixture
def invented(db: None) -> Invented:
    """A scheduler at two sites, at each of which it has a node without GPUs."""
    fleet = small_fleet(sites=["bergen", "oslo"], rows=["A"], racks_per_row=1)
    model = HardwareModel.objects.create(
        name="EPYC", kind="node", rated_w=600, idle_w=120, cores=32
    )
    for name in (WITHOUT_GPUS, ELSEWHERE):
        node = Node.objects.get(name=name)
        node.gpus.all().delete()
        node.model = model
        node.save()
    begin_anew()
    has = tuple(fleet.nodes)
    for name in (WITHOUT_GPUS, ELSEWHERE):
        fleet.report_host(name, power_w=120.0)
        # It has no GPUs to be read.
        del fleet.nodes[name]
    return Invented(fleet, fleet.token, has=has)


def submit(invented: Invented, ref: str, phase: str, words: str, **given: Any) -> None:
    comment = f"headroom: pipeline=llama-7 phase={phase} {words}"
    on = {"only_nodes": [WITHOUT_GPUS]} if phase != "copy" else {"only_nodes": [ELSEWHERE]}
    invented.submit(ref, **{**CPU, **on, "comment": comment, **given})


def end(invented: Invented, ref: str, *outputs: dict[str, Any]) -> None:
    """Have a running job end well, having measured artifacts."""
    assert invented.jobs[ref]["state"] == "running"
    invented.jobs[ref] |= {
        "state": "ended", "ended_as": "succeeded", "exit_code": 0, "nodes": [],
        "ended_at": time.time(), "outputs": list(outputs),
    }  # fmt: skip
    invented.tell()
    invented.cycle()


def measured(name: str, digest: str = FIRST, **given: Any) -> dict[str, Any]:
    return {"name": name, "digest": digest, "size_bytes": 7, "at": 1.0, **given}


def cells(failed: int = 0) -> dict[str, Any]:
    return measured(
        "cells",
        cells={
            "passed": 2,
            "failed": failed,
            "error": 0,
            "not_measured": 0,
            "not_run": 0,
        },
    )


def packaged(invented: Invented, failed: int = 0) -> None:
    """Have a package be made that is wanted at two sites, and a job wait that promotes it."""
    submit(invented, "1", "package", f"{MAKES} output=cells,path=/shared/c,matrix=true")
    invented.round()
    end(invented, "1", measured("bundle"), cells(failed))
    submit(invented, "3", "promote", PROMOTES)
    invented.round()


def phase(ref: str) -> Phase:
    return Phase.objects.get(job__name=f"{NAME}-{ref}")


def sentence(ref: str) -> str:
    """Return why a job waits, as its page, the API and the command line say it."""
    found = api_client(Role.VIEWER).get(f"/api/v1/jobs/{NAME}-{ref}/explain").json()
    return str(found["phases"][0]["reasons"][0]["sentence"])


def test_a_phase_without_gpus_is_adopted_as_one_and_runs_under_a_lease(
    invented: Invented,
) -> None:
    submit(invented, "1", "package", MAKES)
    invented.round()
    job = Job.objects.get()
    assert (job.pipeline, phase("1").name) == ("ada/llama-7", "package")
    assert job.spec["phases"][0]["gang"] == {"gpus": 0, "cores": 2}
    assert invented.jobs["1"]["nodes"] == [WITHOUT_GPUS]
    end(invented, "1", measured("bundle"))
    row = Artifact.objects.get()
    assert (row.phase, row.digest, row.site) == (phase("1"), FIRST, "bergen")


def test_a_promotion_is_held_until_the_copy_is_there(invented: Invented) -> None:
    packaged(invented)
    assert (invented.jobs["3"]["state"], phase("3").reason) == ("held", "ArtifactPending")
    why = (
        "promotes only what has its copies: that of artifact bundle of phase package at oslo is"
        " missing; 1 of 2 places have theirs, 7 bytes lag"
    )
    assert sentence("3") == why
    # The same stands where the owner looks: in the job's AdminComment.
    invented.session, invented.is_new = "s2", True
    assert why in invented.tell()["comments"]["3"]
    submit(invented, "2", "copy", "output=bundle,path=/copy,copy_of=package/bundle")
    invented.round()
    end(invented, "2", measured("bundle"))
    assert ArtifactCopy.objects.get().site == "oslo"
    invented.round()
    assert invented.jobs["3"]["state"] == "running"
    assert invented.jobs["3"]["nodes"] == [WITHOUT_GPUS]


def test_a_promotion_is_held_while_the_copy_differs(invented: Invented) -> None:
    packaged(invented)
    submit(invented, "2", "copy", "output=bundle,path=/copy,copy_of=package/bundle")
    invented.round()
    end(invented, "2", measured("bundle", SECOND))
    invented.round()
    assert invented.jobs["3"]["state"] == "held"
    assert "at oslo differs" in sentence("3")


def test_a_promotion_by_a_matrix_that_has_failed_never_begins(invented: Invented) -> None:
    packaged(invented, failed=1)
    invented.round()
    assert invented.jobs["3"]["state"] == "held"
    assert phase("3").reason in ("ArtifactPending", "DependencyNeverMet")
    found = api_client(Role.VIEWER).get(f"/api/v1/jobs/{NAME}-3/explain").json()
    told = [each["sentence"] for each in found["phases"][0]["reasons"]]
    assert any("2 of 3 cells passed, 1 failed" in each for each in told), told


def test_a_phase_waits_for_what_nobody_has_measured(invented: Invented) -> None:
    submit(invented, "1", "train", "output=model,path=/m")
    submit(invented, "2", "evaluate", "input=train/model")
    invented.round()
    end(invented, "1")
    invented.round()
    assert invented.jobs["2"]["state"] == "held"
    assert sentence("2") == (
        "waits for artifact model of phase train: no machine has measured it yet"
    )


@pytest.mark.parametrize(
    "other",
    [{"user": "mallory"}, {"account": "robotics"}],
    ids=["of another user", "of another project"],
)
def test_pipelines_of_others_hand_nothing_over(invented: Invented, other: dict[str, str]) -> None:
    submit(invented, "1", "train", "output=model,path=/m", **other)
    submit(invented, "2", "evaluate", "input=train/model")
    invented.round()
    end(invented, "1", measured("model"))
    invented.round()
    assert invented.jobs["2"]["state"] == "held"


def test_of_two_that_made_the_same_the_later_counts(invented: Invented) -> None:
    for ref, digest in (("1", FIRST), ("2", SECOND)):
        submit(invented, ref, "train", "output=model,path=/m")
        invented.round()
        end(invented, ref, measured("model", digest))
    submit(invented, "3", "evaluate", "input=train/model", state="blocked")
    invented.round()
    (found,) = artifacts.of_jobs([phase("3").job_id]).values()
    assert found["train", "model"].digest == SECOND
    # Each has its own for itself.
    (own,) = artifacts.of_jobs([phase("1").job_id]).values()
    assert own["train", "model"].digest == FIRST


@pytest.mark.parametrize(
    ("ref", "comment", "told"),
    [
        ("1", "headroom: output=m,path=/m", "output needs the pipeline to be named"),
        ("1_0", "headroom: pipeline=p output=m,path=/m", "pipeline is for jobs that are no part"),
    ],
)
def test_artifacts_of_no_pipeline_are_left_out_and_told(
    invented: Invented, ref: str, comment: str, told: str
) -> None:
    invented.submit(ref, comment=comment)
    invented.round()
    assert told in JobEvent.objects.get(kind="adopted").text
    job = Job.objects.get()
    assert (job.pipeline, job.spec["phases"][0].get("outputs")) == ("", None)


def test_a_job_that_waits_may_be_made_a_phase(invented: Invented) -> None:
    invented.submit("1", state="blocked")
    invented.round()
    assert phase("1").name == "job"
    invented.jobs["1"]["comment"] = "headroom: pipeline=llama-7 phase=train output=model,path=/m"
    invented.round()
    assert (phase("1").name, phase("1").job.pipeline) == ("train", "ada/llama-7")


def test_bad_measures_are_refused_with_their_field(invented: Invented) -> None:
    submit(invented, "1", "train", "output=model,path=/m")
    invented.round()
    invented.jobs["1"]["outputs"] = [measured("model", "sha256:short")]
    answer = invented.post()
    assert answer.status_code == 400
    assert "jobs[0].outputs[0].digest" in answer.json()["error"]["field"]
