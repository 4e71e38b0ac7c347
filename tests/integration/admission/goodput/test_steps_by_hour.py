"""Steps of an hour are new, or made again, whenever those before them were made."""

from __future__ import annotations

import csv

import pytest

from admission.core.account import Cause
from admission.goodput.models import HourSteps
from admission.jobs.models import Job
from fleet import snapshot
from tests.builders.accounted import HOUR, again, at, hold, job_since, report, seconds
from tests.builders.accounts import api_client
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db

RANGE = {"from": str(HOUR), "to": str(HOUR + 3600.0)}


def test_steps_that_move_a_model_on_are_told_from_those_made_again(db: None) -> None:
    make_node("n1", gpus=1)
    snapshot.fresh()
    job = job_since(0.0, "llama", gpus=1, state="running")
    hold(job, {"n1": [0]}, 0.0, 1200.0)
    report("llama", 60.0, 1200.0)  # steps 0 to 56
    hold(job, {"n1": [0]}, 1200.0)
    report("llama", 1260.0, 3900.0, step=27)  # 27 to 56 again, then on
    again()
    found = HourSteps.objects.get()
    # The last report of the hour is of step 144.
    assert (found.moved, found.repeated) == (56.0 + (144.0 - 56.0), 56.0 - 27.0)
    assert found.missed == pytest.approx(60.0 / 20.0)
    # The first attempt ended 20 s after it had told its last step.
    assert seconds() == {
        Cause.STARTING: 60.0, Cause.PRODUCTIVE: 1120.0 + 1760.0, Cause.UNKNOWN: 20.0,
        Cause.RESTARTING: 60.0, Cause.REPEATED: 580.0,
    }  # fmt: skip


def test_what_was_reached_hours_ago_is_known(db: None) -> None:
    make_node("n1", gpus=1)
    snapshot.fresh()
    job = job_since(-9000.0, "llama", gpus=1, state="running")
    job.phases.update(started_at=at(-9000))
    hold(job, {"n1": [0]}, -9000.0, -1800.0)
    report("llama", -9000.0, -1800.0)  # to step 359
    hold(job, {"n1": [0]}, 0.0)
    report("llama", 0.0, 3900.0, step=300)  # 60 of them again
    again()
    # Its first report, after 20 s, tells of nothing; that of 1180 s is of step 359.
    assert seconds()[Cause.REPEATED] == pytest.approx(1160.0)


def test_a_loop_that_reports_as_its_phase_is_heard(db: None) -> None:
    make_node("n1", gpus=2)
    snapshot.fresh()
    hold(job_since(-60.0, "llama", gpus=2, state="running"), {"n1": [0, 1]}, 0.0, 3600.0)
    report("llama/train", 20.0, 3900.0)
    again()
    assert seconds(project="vision") == pytest.approx({"starting": 40.0, "productive": 7160.0})


def test_a_loop_that_reports_hours_after_its_start_was_starting(db: None) -> None:
    make_node("n1", gpus=1)
    snapshot.fresh()
    job = job_since(-5000.0, "llama", gpus=1, state="running")
    job.phases.update(started_at=at(-5000))
    hold(job, {"n1": [0]}, -5000.0)
    report("llama", 1200.0, 3900.0)
    again()
    assert seconds() == {Cause.STARTING: 1200.0, Cause.PRODUCTIVE: 2400.0}


def state_flops(job: Job, **said: object) -> None:
    """Have the specification of a job state the FLOPs of its steps."""
    job.spec["phases"][0] |= said
    job.save(update_fields=["spec"])


def test_program_goodput_is_by_the_flops_that_jobs_state(db: None) -> None:
    make_node("n1", gpus=2)
    make_node("n2", gpus=1)
    snapshot.fresh()
    llama = job_since(0.0, "llama", gpus=2, state="running")
    bert = job_since(0.0, "bert", project="speech", gpus=1, state="running")
    # A step takes 20 s of two GPUs of 989.4 TFLOP/s.
    state_flops(llama, flops_per_step=0.4 * 2 * 20.0 * 989.4e12)
    hold(llama, {"n1": [0, 1]}, 0.0)
    hold(bert, {"n2": [0]}, 0.0)
    report("llama", 60.0, 3900.0)
    report("bert", 60.0, 3900.0)
    again()
    by_project = {row.project: row for row in HourSteps.objects.all()}
    vision, speech = by_project["vision"], by_project["speech"]
    # Steps come each 20 s: of the hour's productive time all but the first minute.
    assert vision.stated_gpu_s == 2 * 3540.0
    assert vision.model_flop / vision.peak_flop == pytest.approx(0.4, rel=0.01)
    assert (speech.model_flop, speech.peak_flop, speech.stated_gpu_s) == (0.0, 0.0, 0.0)
    found = api_client().get("/api/v1/goodput", {**RANGE, "by": "project"}).json()
    assert found["program_goodput"] == pytest.approx(0.4, rel=0.01)
    assert found["program_known"] == pytest.approx(2 / 3)
    assert "within the 30 to 50 %" in found["program_verdict"]
    assert found["ml_productivity_goodput"] == pytest.approx(
        found["fleet_goodput"] * found["program_goodput"]
    )
    mfu = {each["key"]["project"]: each["program_goodput"] for each in found["groups"]}
    assert mfu == {"": None, "vision": pytest.approx(0.4, rel=0.01), "speech": None} or mfu == {
        "vision": pytest.approx(0.4, rel=0.01), "speech": None,
    }  # fmt: skip


def test_program_goodput_is_by_the_flops_that_loops_tell(db: None) -> None:
    make_node("n1", gpus=2)
    snapshot.fresh()
    llama = job_since(0.0, "llama", gpus=2, state="running")
    hold(llama, {"n1": [0, 1]}, 0.0)
    # Longer sequences from the half hour on: the mean of both counts.
    flop = 2 * 20.0 * 989.4e12
    report("llama", 60.0, 1800.0, flops_per_step=0.3 * flop)
    report("llama", 1800.0, 3900.0, step=87, flops_per_step=0.5 * flop)
    again()
    row = HourSteps.objects.get()
    assert row.stated_gpu_s == 2 * 3540.0
    assert row.model_flop / row.peak_flop == pytest.approx(0.4, rel=0.03)


def test_by_place_program_goodput_is_told_of_all_alone(db: None) -> None:
    make_node("n1", gpus=1)
    snapshot.fresh()
    job = job_since(0.0, "llama", gpus=1, state="running")
    state_flops(job, flops_per_step=1e15)
    hold(job, {"n1": [0]}, 0.0)
    report("llama", 60.0, 3900.0)
    again()
    found = api_client().get("/api/v1/goodput", {**RANGE, "by": "site"}).json()
    assert found["program_goodput"] > 0.0
    assert [each["program_goodput"] for each in found["groups"]] == [None]
    text = api_client().get("/api/v1/goodput", {**RANGE, "by": "class", "format": "csv"})
    row = next(csv.DictReader(text.content.decode().splitlines()))
    assert float(row["model_flop"]) == pytest.approx(177 * 1e15)
