from __future__ import annotations

from typing import Any

import pytest

from accounts.models import User
from admission.core.cycle.change import Change, Counterfactual
from admission.core.request import Locality, Placement
from admission.jobs import actions
from admission.jobs.applying import applicable
from tests.integration.admission.jobs.conftest import now, submit
from tests.unit.headroom.jobs.specs import ARTIFACTS, make_phase

pytestmark = pytest.mark.django_db
PLACE = Placement(
    gpus=(), nodes=(), peak_w=(), power_cap_w=None, slowdown=0.0, locality=Locality.NODE,
    sites=(), racks=(), switch_domains=(), storage="",
)  # fmt: skip


def found(**change: Any) -> Counterfactual:
    return Counterfactual(Change(**change), "starts now", PLACE)


def test_what_cannot_be_applied_is_not_shown(ada: User) -> None:
    job = submit(ada, make_phase(gang={"gpus": 16, "gpus_per_node": 8}, walltime_s=10_000))
    good = [found(gpus=8), found(lowest_cap_w=250.0, max_slowdown=0.5)]
    bad = [
        found(gpus=12),
        found(sites=("atlantis",)),
        # Its inputs are not pinned; the other class is not granted to its project.
        found(job_class="high-density-training"),
        found(job_class="latency-sensitive-inference-build"),
    ]
    shown = applicable(f"{job.name}/train", [bad[0], good[0], *bad[1:], good[1]])
    assert list(shown) == good
    for each in shown:
        actions.amend(job, "train", each.change.as_json(), ada, now=now())


def test_a_class_that_may_restart_is_shown_to_what_is_pinned(ada: User) -> None:
    job = submit(ada, make_phase(artifacts=ARTIFACTS))
    change = found(job_class="high-density-training")
    assert applicable(f"{job.name}/train", [change]) == (change,)


def test_a_time_at_which_it_starts_by_itself_is_shown_and_changes_nothing(ada: User) -> None:
    job = submit(ada)
    later = found(begin_at=1e9)
    assert applicable(f"{job.name}/train", [later]) == (later,)
    assert later.change.as_json() == {}


def test_nothing_can_be_applied_to_a_job_that_is_gone(ada: User) -> None:
    assert applicable("gone/train", [found(gpus=1)]) == ()
