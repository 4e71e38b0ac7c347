"""A job goes on in another scheduler: in one at a time, whoever is silent, refuses or dies."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.core.response.fallback import Fallback
from admission.directives import fallback
from admission.executors.schedulers.models import Move, SchedulerJob, SchedulerNode
from admission.jobs import actions
from admission.jobs.models import Attempt, Job, Phase
from tests.builders.accounts import make_user
from tests.builders.begun import begin_anew
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.schedulers import Invented

pytestmark = pytest.mark.django_db

A, B, C = "hall-a", "hall-b", "hall-c"
NAME = f"{A}-7"
COMMENT = "headroom: move_to=hall-b,hall-c"
PARCEL = {"user": "ada", "script": "#!/bin/sh\n./train\n", "options": {"comment": COMMENT}}


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    made = small_fleet(sites=["bergen", "oslo", "turku"], rows=["A"], racks_per_row=1)
    begin_anew()
    return made


class Two:
    """Two invented schedulers at two sites, and a job of the first that may go on in the other."""

    def __init__(self, fleet: SmallFleet) -> None:
        self.a, self.b, self.c = (
            Invented(fleet, fleet.token, name=name, has=fleet.nodes_of(f"{site}/A01"))
            for name, site in ((A, "bergen"), (B, "oslo"), (C, "turku"))
        )

    def submitted(self, comment: str = COMMENT, **given: Any) -> None:
        self.b.tell()
        self.a.submit("7", comment=comment, **given)
        if self.a.tell().get("pack"):
            self.a.tell(parcels={"7": PARCEL})
        self.a.cycle()

    def running(self, comment: str = COMMENT) -> None:
        self.submitted(comment)
        self.a.obey()
        self.a.tell()
        self.a.cycle()
        assert attempts() == [(A, "running", "")]

    def leave(self) -> None:
        """Have the job leave its site, as policy or a playbook would."""
        now = datetime.now(UTC)
        assert fallback.move(job(), Fallback.REGIONAL, why="the feed is lost", by="rule", now=now)

    def give_way(self) -> None:
        """Have it be evicted where it is."""
        wanted: list[str] = []
        for _ in range(4):
            wanted += [order["wanted"] for order in self.a.obey()]
            self.a.tell()
            # Who saves nothing is not waited for.
            self.a.cycle()
            if "evict" in wanted:
                break
        assert "evict" in wanted
        self.a.cycle()

    def arrives(self, key: str, ref: str = "31", at: str = B) -> None:
        """Have what was to be submitted be there."""
        there = self.b if at == B else self.c
        there.submit(ref, comment=f"headroom: moved={key} move_to=hall-b,hall-c")
        there.tell()


@pytest.fixture
def two(fleet: SmallFleet) -> Two:
    return Two(fleet)


def job() -> Job:
    return Job.objects.get(name=NAME)


def phase() -> Phase:
    return Phase.objects.get(job__name=NAME)


def attempts() -> list[tuple[str, str, str]]:
    rows = Attempt.objects.filter(phase__job__name=NAME).order_by("number")
    return list(rows.values_list("executor", "state", "outcome"))


def ordered(scheduler: Invented) -> list[str]:
    return [order["wanted"] for order in scheduler.tell().get("jobs", [])]


def test_a_job_is_cancelled_in_one_and_then_submitted_in_the_other_and_stays_one(two: Two) -> None:
    two.running()
    two.leave()
    two.give_way()
    assert phase().hold_reason == "it goes on in hall-b, once hall-a says that it is over there"
    assert "submit" not in two.b.tell()
    assert [order["wanted"] for order in two.a.obey()] == ["cancel"]
    assert "submit" not in two.b.tell()
    two.a.tell()
    two.a.cycle()
    assert two.b.tell()["submit"] == {f"{NAME}/move/1": PARCEL}
    two.arrives(f"{NAME}/move/1")
    two.b.cycle()
    two.b.obey()
    two.b.tell()
    two.b.cycle()
    assert attempts() == [(A, "ended", "preempted"), (B, "running", "")]
    assert Job.objects.count() == 1
    assert job().spec["scheduler"] == B
    assert two.b.jobs["31"]["lease"] == f"{NAME}/job/2"
    two.b.jobs["31"] |= {"state": "ended", "ended_as": "succeeded", "ended_at": time.time()}
    two.b.tell()
    two.b.cycle()
    assert job().state == "succeeded"
    kinds = list(job().events.values_list("kind", flat=True))
    assert [kind for kind in kinds if kind in ("leaves", "left", "arrived")] == [
        "leaves", "left", "arrived",
    ]  # fmt: skip


def test_a_job_that_never_began_leaves_too(two: Two) -> None:
    two.a.nodes = {node: {"state": "drained", "reason": "bad fans"} for node in two.a.has}
    two.submitted()
    two.leave()
    two.a.cycle()
    two.a.obey()
    two.a.tell()
    two.a.cycle()
    assert two.b.tell()["submit"]


def test_nothing_is_submitted_while_the_first_is_silent(two: Two) -> None:
    two.running()
    two.leave()
    for _ in range(3):
        two.b.cycle()
        assert "submit" not in two.b.tell()
    two.give_way()
    # It is to be cancelled there, and nobody hears whether it was.
    for _ in range(3):
        two.b.cycle()
        assert "submit" not in two.b.tell()
    assert attempts() == [(A, "ended", "preempted")]


def test_nothing_moves_while_it_may_still_run_on_a_node_that_nobody_hears(two: Two) -> None:
    two.running()
    (node,) = two.a.jobs["7"]["nodes"]
    two.leave()
    two.a.nodes = {node: {"state": "down", "reason": "Not responding"}}
    two.a.jobs["7"] |= {"state": "held", "restarts": 1, "lease": "", "nodes": []}
    two.a.tell()
    for _ in range(2):
        two.a.cycle()
        assert ordered(two.a) == []
    assert "where it may still run" in phase().hold_reason
    two.a.nodes = {node: {"state": "off", "reason": "off: the feed is lost"}}
    two.a.tell()
    two.a.cycle()
    assert ordered(two.a) == ["cancel"]


def test_a_node_that_falls_silent_after_the_job_has_ended_there_keeps_nothing(two: Two) -> None:
    two.running()
    (node,) = two.a.jobs["7"]["nodes"]
    two.leave()
    two.give_way()
    two.a.nodes = {node: {"state": "down"}}
    two.a.tell()
    since = datetime.now(UTC) + timedelta(seconds=20)
    SchedulerNode.objects.filter(node=node).update(down_since=since)
    two.a.cycle()
    assert ordered(two.a) == ["cancel"]


def test_what_has_run_to_its_end_there_goes_on_nowhere(two: Two) -> None:
    two.running()
    two.leave()
    two.give_way()
    # An administrator let it run once more in that moment.
    two.a.jobs["7"] |= {"state": "ended", "ended_as": "succeeded", "ended_at": time.time()}
    two.a.tell()
    for _ in range(2):
        two.a.cycle()
    assert "submit" not in two.b.tell()
    assert job().state == "succeeded"
    assert Move.objects.get().state == "off"


def left(two: Two) -> str:
    """Bring the job to where it is over in one scheduler; return the key of its move."""
    two.running()
    two.leave()
    two.give_way()
    two.a.obey()
    two.a.tell()
    two.a.cycle()
    (key,) = two.b.tell()["submit"]
    return str(key)


def test_it_is_asked_for_until_it_is_seen_there_and_a_second_one_is_a_job_of_its_own(
    two: Two,
) -> None:
    key = left(two)
    # Its bridge dies and begins anew, with an answer lost in between.
    two.b.session, two.b.is_new = "s2", True
    assert list(two.b.tell()["submit"]) == [key]
    two.arrives(key)
    two.b.submit("32", comment=f"headroom: moved={key}")
    two.b.tell()
    two.b.cycle()
    assert "submit" not in two.b.tell()
    names = SchedulerJob.objects.filter(scheduler__name=B).order_by("ref")
    assert list(names.values_list("ref", "name")) == [("31", NAME), ("32", f"{B}-32")]
    assert sorted(Job.objects.values_list("name", flat=True)) == [NAME, f"{B}-32"]


def test_a_job_of_somebody_else_does_not_take_its_place(two: Two) -> None:
    key = left(two)
    two.b.submit("31", comment=f"headroom: moved={key}", user="eve")
    two.b.tell()
    two.b.cycle()
    assert list(two.b.tell()["submit"]) == [key]
    assert Job.objects.filter(name=f"{B}-31").exists()


def test_one_that_refuses_is_asked_again_after_a_while(two: Two) -> None:
    key = left(two)
    two.b.tell(refused={key: "Invalid account"})
    assert "submit" not in two.b.tell()
    two.b.cycle()
    assert (
        phase().hold_reason == "it is submitted in hall-b, which does not take it: Invalid account"
    )
    Move.objects.update(refused_at=datetime.now(UTC) - timedelta(seconds=61))
    two.b.cycle()
    assert list(two.b.tell()["submit"]) == [key]


def test_where_one_refuses_another_takes_it_and_what_comes_late_is_cancelled(two: Two) -> None:
    two.c.tell()
    key = left(two)
    two.b.tell(refused={key: "Invalid account"})
    two.b.cycle()
    (other,) = two.c.tell()["submit"]
    assert other != key
    assert "submit" not in two.b.tell()
    # The call had timed out: it was taken after all.
    two.arrives(key)
    two.arrives(other, at=C)
    two.c.cycle()
    assert ordered(two.b) == ["cancel"]
    assert ordered(two.c) == ["run"]


def test_what_is_cancelled_on_its_way_never_arrives(two: Two) -> None:
    key = left(two)
    actions.cancel(job(), make_user(), why="wrong data", now=datetime.now(UTC))
    two.b.cycle()
    assert "submit" not in two.b.tell()
    two.arrives(key)
    two.b.cycle()
    assert ordered(two.b) == ["cancel"]
    assert job().state == "cancelled"


def test_a_job_whose_owner_names_no_other_scheduler_stays(two: Two) -> None:
    two.running("headroom: responses=migrate")
    two.leave()
    two.give_way()
    assert ordered(two.a) == []
    assert not Move.objects.exists()


def test_what_its_owner_changes_is_packed_anew(two: Two) -> None:
    two.submitted()
    assert "pack" not in two.a.tell()
    two.a.jobs["7"]["time_limit_s"] = 60.0
    assert two.a.tell()["pack"] == ["7"]


def test_it_is_at_home_where_it_is_once_its_first_site_would_take_it_again(two: Two) -> None:
    key = left(two)
    two.arrives(key)
    two.b.cycle()
    now = datetime.now(UTC)
    fallback.move(job(), Fallback.PRIMARY_SITE, why="the feed is back", by="rule", now=now)
    two.b.cycle()
    assert job().jobfallback.home == "oslo"
    # And it goes back as it came.
    two.a.tell()
    assert two.b.tell()["pack"] == ["31"]
    two.b.tell(parcels={"31": PARCEL})
    two.b.obey()
    two.b.tell()
    two.b.cycle()
    two.leave()
    for _ in range(5):
        two.b.obey()
        two.b.tell()
        two.b.cycle()
    assert [each.to.name for each in Move.objects.order_by("pk")] == [B, A]
    assert two.a.tell()["submit"]
