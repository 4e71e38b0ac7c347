"""What still runs in a place that is being drained is told, and whose it is, and why."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from accounts.models import User
from accounts.roles import Role
from accounts.visibility import Visibility
from admission.directives.remaining import Remaining, Why, remaining_in
from admission.jobs.models import Phase
from dashboard import moments
from policies import current
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import api_client, client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.html import html_of
from tests.integration.admission.directives.scenes import (
    IDLE_W,
    OTHER_RACK,
    RACK,
    Clock,
    end,
    running,
)
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

DRAINED = Scope(ScopeKind.RACK, RACK)


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    return Clock(fleet, seconds_ago=30.0)


def restrict(clock: Clock, kind: RestrictionKind) -> Restriction:
    wanted = Wanted(
        kind=kind, scope=DRAINED, value=None, reason="new fans", owner="user:ann", cause="test",
        expires_at=clock.at + timedelta(hours=1),
    )  # fmt: skip
    (row,) = store.apply([wanted], now=clock.at)
    return row


def drain(clock: Clock) -> Restriction:
    return restrict(clock, RestrictionKind.DRAIN)


def rest(fleet: SmallFleet, *, only: list[str] | None = None) -> None:
    """Have GPUs be read that do nothing."""
    fleet.report(only=only, power_w=IDLE_W, util=0.0, sm_mhz=300.0)


def left(user: User | None = None) -> Remaining:
    current.invalidate()
    visibility = Visibility(user or make_user(Role.OPERATOR))
    return remaining_in(DRAINED, current.headroom(time.time()), visibility)


def whys(found: Remaining) -> dict[str, tuple[int, Why]]:
    return {each.key: (each.gpus, each.why) for each in found.jobs}


def test_each_job_is_told_with_its_gpus_there_and_why_it_is_still_there(
    fleet: SmallFleet, clock: Clock
) -> None:
    nodes = fleet.nodes_of(RACK)
    across = [nodes[0], fleet.nodes_of(OTHER_RACK)[0]]
    running(fleet, "goes", across, now=clock.now)
    running(fleet, "stays", nodes[1:], now=clock.now, asks={"preemptible": False})
    drain(clock)
    fleet.report()
    assert whys(left()) == {"goes/train": (4, Why.NOT_TOLD), "stays/train": (4, Why.STAYS)}
    clock.step()
    found = left()
    assert whys(found) == {"goes/train": (4, Why.ENDING), "stays/train": (4, Why.STAYS)}
    told_at = {each.key: each.told_at for each in found.jobs}
    assert told_at == {"goes/train": datetime.fromtimestamp(clock.now, UTC), "stays/train": None}
    assert found.said.startswith("2 jobs still there: goes/train of ")
    assert "was told to end at " in found.said
    assert "may not be stopped, and runs to its end" in found.said


def test_of_a_job_that_goes_on_for_longer_than_expected_it_is_said(
    fleet: SmallFleet, clock: Clock
) -> None:
    running(fleet, "stays", fleet.nodes_of(RACK), now=clock.now, asks={"preemptible": False})
    drain(clock)
    ends = datetime.fromtimestamp(clock.now, UTC) + timedelta(minutes=5)
    Phase.objects.update(expected_end_at=ends)
    fleet.report()
    reader = make_user(Role.OPERATOR)
    assert f"runs to its end, expected at {ends:%m-%d %H:%M} UTC" in left(reader).said
    Phase.objects.update(expected_end_at=ends - timedelta(minutes=10))
    assert "runs to its end, which was expected at " in left(reader).said


def test_it_is_empty_once_the_last_job_has_ended_and_its_gpus_rest(
    fleet: SmallFleet, clock: Clock
) -> None:
    last = running(fleet, "goes", fleet.nodes_of(RACK), now=clock.now)
    drain(clock)
    clock.step()
    end(last, clock.now)
    rest(fleet)
    found = left()
    assert found.is_empty
    assert found.said == "nothing runs there any more"


def test_load_that_no_job_of_ours_holds_is_not_nothing(fleet: SmallFleet, clock: Clock) -> None:
    busy, calm = fleet.nodes_of(RACK)
    drain(clock)
    rest(fleet, only=[calm])
    fleet.report(only=[busy])
    found = left()
    assert (found.jobs, found.unowned, found.silent) == ((), (busy,), ())
    assert found.said == f"{busy} is at work, for no job of Headroom"


def test_a_node_that_nobody_hears_of_is_not_said_to_be_empty(
    fleet: SmallFleet, clock: Clock
) -> None:
    heard, silent = fleet.nodes_of(RACK)
    drain(clock)
    rest(fleet, only=[heard])
    found = left()
    assert not found.is_empty
    assert found.said == f"{silent} is silent: what runs there is not known"


def test_who_may_not_see_a_job_reads_neither_its_name_nor_its_project(
    fleet: SmallFleet, clock: Clock
) -> None:
    running(fleet, "secret", fleet.nodes_of(RACK), now=clock.now)
    row = drain(clock)
    fleet.report()
    found = left(make_user(Role.ML_USER))
    assert [(each.key, each.project, each.gpus) for each in found.jobs] == [("", "", 8)]
    assert found.said == "1 job still there: 1 more"
    url = f"/api/v1/restrictions/{row.pk}/remaining"
    assert "secret" not in api_client(Role.ML_USER).get(url).content.decode()


def test_the_api_and_the_page_of_the_restriction_say_it(fleet: SmallFleet, clock: Clock) -> None:
    nodes = fleet.nodes_of(RACK)
    running(fleet, "stays", nodes[:1], now=clock.now, asks={"preemptible": False})
    row = drain(clock)
    fleet.report()
    moments.invalidate()
    told: dict[str, Any] = api_client().get(f"/api/v1/restrictions/{row.pk}/remaining").json()
    assert [(each["key"], each["why"]) for each in told["jobs"]] == [("stays/train", "stays")]
    assert (told["is_empty"], told["unowned"]) == (False, [nodes[1]])
    html = html_of(client_of(Role.VIEWER).get(f"/restrictions/{row.pk}/"))
    text = text_of(html)
    assert "Still there 1 job" in text
    assert "stays/train" in text
    assert "may not be stopped, and runs to its end" in text
    assert f"{nodes[1]} is at work, for no job of Headroom." in text


def test_of_other_kinds_and_of_places_that_are_gone_nothing_is_told(
    fleet: SmallFleet, clock: Clock
) -> None:
    row = drain(clock)
    other = restrict(clock, RestrictionKind.NO_NEW_LAUNCHES)
    client = api_client()
    assert client.get(f"/api/v1/restrictions/{other.pk}/remaining").status_code == 404
    Restriction.objects.filter(pk=row.pk).update(scope_name="oslo/Z99")
    assert client.get(f"/api/v1/restrictions/{row.pk}/remaining").status_code == 404
