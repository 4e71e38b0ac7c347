"""Steps of an hour are new, or made again, whenever those before them were made."""

from __future__ import annotations

import pytest

from admission.core.account import Cause
from admission.goodput.models import HourSteps
from fleet import snapshot
from tests.builders.accounted import again, at, hold, job_since, report, seconds
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db


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
