"""Where a job may go on by what machines found of its inputs there."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.core.cycle.change import Change
from admission.cycle import live
from admission.directives import fallback
from admission.directives.models import JobFallback
from admission.jobs import inputs
from admission.jobs.applying import applicable
from admission.jobs.models import Job, JobEvent
from tests.builders.fleet import small_fleet
from tests.builders.jobs import ARTIFACTS, MOVED, make_attempt, make_explanation, make_job
from tests.integration.admission.directives.scenes import Clock, end
from tests.integration.admission.directives.test_causes import leave

pytestmark = pytest.mark.django_db


@pytest.fixture
def two(clean_stores: None) -> Clock:
    """Oslo and Bergen, of a node each."""
    made = Clock(small_fleet(racks_per_row=1, rows=("A",), nodes_per_rack=1))
    made.read()
    return made


PINNED = {**ARTIFACTS, "code_path": "/srv/nanogpt"}
REFUSED = "bergen-a01-n1: input code differs: declared cdcd, found 0123 at /srv/nanogpt"


def pin(name: str, **artifacts: Any) -> Job:
    """Have a job declare inputs that machines can verify."""
    job = Job.objects.get(name=name)
    job.spec["phases"][0]["artifacts"] = {**PINNED, **artifacts}
    job.save(update_fields=["spec"])
    return job


def ran_at(
    two: Clock, site: str, name: str = "before", *, ago_s: float = 600.0, **given: Any
) -> Job:
    """Have a job of the same project with the same inputs have ended at a site."""
    job = Job.objects.filter(name=name).first() or make_job(name)
    ended_at = two.at - timedelta(seconds=ago_s)
    fields = {
        "state": "ended", "outcome": "succeeded", "started_at": ended_at - timedelta(minutes=5),
        "ended_at": ended_at, **given,
    }  # fmt: skip
    make_attempt(job.phases.get(), {f"{site}-a01-n1": [0]}, racks=[f"{site}/A01"], **fields)
    return pin(name)


REFUSES: dict[str, Any] = {"outcome": "failed", "exit_code": 126, "why": REFUSED}


def state() -> str:
    return Job.objects.get(name="llama").fallback_state


def told_of_the_move(two: Clock) -> str:
    """Have a job whose site fell silent leave it, and return why it says it did."""
    two.rest(45)
    two.rest(45)
    two.run(45, until=lambda: state() == "regional-fallback")
    assert state() == "regional-fallback"
    return JobEvent.objects.get(kind="fallback", job__name="llama").text


def test_a_move_says_where_its_inputs_were_verified(two: Clock) -> None:
    ran_at(two, "bergen")
    leave(two)
    pin("llama")
    assert "; its inputs were verified at bergen, " in told_of_the_move(two)


def known(name: str = "llama") -> dict[str, str]:
    """Return by site what differs there, and nothing where all is as declared."""
    job = Job.objects.get(name=name)
    phase = job.phases.select_related("job").get()
    seen = inputs.of_phases([phase], datetime.now(UTC))
    return {site: each.why for site, each in seen.get(phase.pk, {}).items()}


def test_a_site_where_its_inputs_differ_is_not_gone_to(two: Clock) -> None:
    ran_at(two, "bergen", **REFUSES)
    attempt = leave(two)
    pin("llama")
    assert known() == {"bergen": REFUSED.partition(": ")[2]}
    for _ in range(2):
        two.rest(45)
    assert state() == "primary-site"
    # What is put right is seen as soon as somebody starts with it there.
    ran_at(two, "bergen", ago_s=1.0)
    assert known() == {"bergen": ""}
    assert "its inputs were verified at bergen" in told_of_the_move(two)
    end(attempt, two.now, "lost")
    assert fallback.unfit(["llama"], two.at) == {"llama": frozenset()}
    ran_at(two, "bergen", **REFUSES, ago_s=0.5)
    assert fallback.unfit(["llama"], two.at) == {"llama": frozenset({"bergen"})}


@pytest.mark.parametrize(
    ("ends", "artifacts"),
    [
        # Other inputs; a day ago; a command that ended so itself; one that was stopped before.
        ({}, {"code_revision": "ee" * 20}),
        ({"ago_s": 90_000.0}, {}),
        ({"outcome": "failed", "exit_code": 126, "why": "bergen-a01-n1: exit code 126"}, {}),
        ({"outcome": "preempted", "exit_code": 143}, {}),
        ({"placement": {"sites": ["bergen", "oslo"]}}, {}),
    ],
    ids=["others", "old", "its own", "stopped", "two sites"],
)
def test_what_says_nothing_of_inputs_is_not_taken_for_it(
    two: Clock, ends: dict[str, Any], artifacts: dict[str, Any]
) -> None:
    ran_at(two, "bergen", **ends)
    pin("before", **artifacts)
    make_job("llama")
    pin("llama")
    assert known() == {}


def test_inputs_of_another_project_say_nothing(two: Clock) -> None:
    make_job("before", project="speech")
    ran_at(two, "bergen")
    make_job("llama")
    pin("llama")
    assert known() == {}


def test_one_that_runs_and_has_saved_had_started_with_them(two: Clock) -> None:
    now = datetime.now(UTC)
    ran_at(two, "bergen", state="running", outcome="", ended_at=None,
           started_at=now - timedelta(hours=30), checkpoint_at=now)  # fmt: skip
    make_job("llama")
    pin("llama")
    assert known() == {"bergen": ""}


def test_a_site_where_its_inputs_differ_is_not_offered(two: Clock) -> None:
    ran_at(two, "bergen", **REFUSES)
    make_job("llama")
    pin("llama")
    (found,) = make_explanation("llama/train", MOVED).counterfactuals
    offers = [
        replace(found, placement=replace(found.placement, sites=(site,)))
        for site in ("oslo", "bergen")
    ]
    assert applicable("llama/train", offers) == tuple(offers[:1])
    # Where it only need wait it changes nothing, and nothing is offered.
    waits = replace(offers[1], change=Change(begin_at=1e9))
    assert applicable("llama/train", [waits]) == (waits,)


def test_a_job_that_is_away_waits_for_sites_that_did_not_refuse_it(clean_stores: None) -> None:
    fleet = small_fleet(
        sites=("oslo", "bergen", "narvik"), racks_per_row=1, rows=("A",), nodes_per_rack=1
    )
    two = Clock(fleet)
    two.read()
    for name in ("llama", "other"):
        job = make_job(name, fallback_state="regional-fallback")
        pin(name, code_path=f"/srv/{name}")
        JobFallback.objects.create(job=job, home="oslo", since=two.at, open_since={})

    def sites() -> dict[str, tuple[str, ...]]:
        live.invalidate()
        waiting = live.snapshot(time.time()).pending
        return {each.request.job: each.request.sites for each in waiting}

    assert sites() == dict.fromkeys(("llama", "other"), ("bergen", "narvik"))
    ran_at(two, "bergen", "llama", **REFUSES)
    pin("llama", code_path="/srv/llama")
    assert sites() == {"llama": ("narvik",), "other": ("bergen", "narvik")}
