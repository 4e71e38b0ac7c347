"""The calendar: what is planned, what sites are committed to, and who is told of what."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import User
from accounts.roles import Role
from admission.allocation import open_attempts
from admission.bookings.models import Booking
from admission.calendar.committed import committed_at
from admission.core.allocation.reservation import Traffic
from fleet import snapshot
from policies import current
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from telemetry.spans import Span
from tests.builders.accounts import api_client, bearer, client_of, make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_project
from tests.html import html_of
from tests.integration.admission.cycle.conftest import clean_stores as clean_stores
from tests.integration.admission.cycle.scenes import cycle, idle_fleet, phase_of, queued


@pytest.fixture
def fleet(clean_stores: None) -> SmallFleet:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    return idle_fleet()


@pytest.fixture
def operator(fleet: SmallFleet) -> Client:
    return api_client(Role.OPERATOR)


def booked(begin_h: float, end_h: float, *, project: str = "", **fields: Any) -> Booking:
    now = timezone.now()
    return Booking.objects.create(
        **{
            "project": make_project(project) if project else None,
            "scope_kind": "rack", "scope_name": "oslo/A01",
            "nodes": ["oslo-a01-n1", "oslo-a01-n2"], "gpus": 8,
            "starts_at": now + timedelta(hours=begin_h), "ends_at": now + timedelta(hours=end_h),
            "reason": "new pumps", "made_by": "ann", "made_at": now,
        }
        | fields
    )  # fmt: skip


def limited(watts: float, begin_h: float, end_h: float) -> Restriction:
    now = timezone.now()
    return Restriction.objects.create(
        kind=RestrictionKind.POWER_BUDGET_W, scope_kind="site", scope_name="oslo", value=watts,
        reason="a test of the feeds", owner="user:ann", cause="feeds",
        state=Restriction.State.IN_FORCE, issued_at=now, effect_at=now,
        starts_at=now + timedelta(hours=begin_h), expires_at=now + timedelta(hours=end_h),
    )  # fmt: skip


@pytest.fixture
def browser(fleet: SmallFleet) -> Client:
    return client_of(Role.OPERATOR)


@pytest.fixture
def stranger(fleet: SmallFleet) -> User:
    """Somebody whose only project plans nothing."""
    user = make_user(Role.ML_USER)
    make_project("speech").members.add(user)
    return user


def asked(client: Client, query: str = "") -> dict[str, Any]:
    answer = client.get(f"/api/v1/calendar{query}")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_a_quiet_fleet_has_nothing_planned_and_is_committed_to_what_it_draws(
    operator: Client, browser: Client
) -> None:
    found = asked(operator)
    assert found["planned"] == []
    (site,) = found["sites"]
    assert site["site"] == "oslo"
    assert site["now_w"] > 0.0
    assert "Nothing is planned in the next 7 days" in html_of(browser.get("/calendar/"))


def test_bookings_and_announced_restrictions_are_told_the_next_first(operator: Client) -> None:
    booked(30, 40)
    booked(10, 12, project="vision")
    limited(9_000.0, 20, 22)
    booked(24 * 8, 24 * 9)  # later than is asked for
    found = asked(operator)["planned"]
    assert [each["kind"] for each in found] == ["reservation", "restriction", "maintenance"]
    reservation, restriction, maintenance = found
    assert reservation["project"] == "vision"
    assert restriction["watts"] == 9_000.0
    assert maintenance["watts"] is None
    assert {tuple(each["sites"]) for each in found} == {("oslo",)}


def test_the_tightest_moment_is_where_a_budget_is_lowered_under_what_is_booked(
    operator: Client, browser: Client
) -> None:
    before = asked(operator)["sites"][0]
    limited(before["now_w"] + 500.0, 4, 6)
    booked(5, 5.5, project="vision")
    (site,) = asked(operator, "?days=1")["sites"]
    at = site["tightest"]
    assert at["budget_w"] == pytest.approx(before["now_w"] + 500.0)
    assert at["committed_w"] > at["budget_w"]
    text = html_of(browser.get("/calendar/?days=1"))
    assert "oslo is committed to more than it may draw" in text


def test_what_runs_counts_until_its_walltime_is_up(operator: Client) -> None:
    idle_w = asked(operator)["sites"][0]["now_w"]
    queued("train", asks={"walltime_s": 6 * 3600.0})
    cycle()
    assert phase_of("train").state == "starting"
    open_attempts.invalidate()
    current.invalidate()
    figure = operator.get("/api/v1/calendar/figure?site=oslo&days=1").json()
    (row,) = figure["rows"]
    times, watts = row["columns"]["t"], row["columns"]["committed_w"]
    busy = [w for t, w in zip(times, watts, strict=True) if t < figure["start"] + 5 * 3600]
    after = [w for t, w in zip(times, watts, strict=True) if t > figure["start"] + 7 * 3600]
    assert min(busy) > idle_w + 100.0
    # As its hosts are rated when idle: they were read some watts above that.
    assert max(after) == pytest.approx(idle_w, rel=0.05)


def test_what_runs_counts_on_a_link_with_its_traffic_until_its_walltime_is_up(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = "oslo/A01/uplink"
    fleet.report(only=[], links={link: 1e9})
    queued("train", asks={"walltime_s": 6 * 3600.0})
    cycle()
    open_attempts.invalidate()
    current.invalidate()
    held = open_attempts.current(snapshot.current())
    on = np.array([snapshot.current().links.index_by_name[link]])
    arrays = replace(held.arrays, links=Traffic(on, np.array([0]), np.array([3e9])))
    monkeypatch.setattr(open_attempts, "current", lambda _fleet: replace(held, arrays=arrays))
    now = time.time()
    found = committed_at(Scope(ScopeKind.LINK, link), Span(now, now + 86_400.0))
    after = found.at > now + 7 * 3600
    # What is carried now is that of the job as far as it goes: so it leaves with it.
    assert found.committed[~after].max() == 8e9
    assert found.committed[after].max() == 5e9
    assert set(found.budget) == {fleet.links[link].capacity_bits_per_s}
    other = committed_at(Scope(ScopeKind.LINK, "oslo/A02/uplink"), Span(now, now + 86_400.0))
    assert np.isnan(other.committed).all()


def test_a_restriction_of_a_place_lowers_the_budget_of_that_place_alone(
    fleet: SmallFleet,
) -> None:
    limited(5_000.0, 1, 2)
    Restriction.objects.update(scope_kind="rack", scope_name="oslo/A01")
    now = time.time()
    span = Span(now, now + 86_400.0)
    rack = committed_at(Scope(ScopeKind.RACK, "oslo/A01"), span)
    assert rack.budget.min() == 5_000.0
    assert rack.budget.max() > 5_000.0
    for other in (Scope(ScopeKind.RACK, "oslo/A02"), Scope(ScopeKind.SITE, "oslo")):
        assert len(set(committed_at(other, span).budget)) == 1


def test_a_deadline_is_told_to_those_who_may_see_the_job(
    operator: Client, browser: Client, stranger: User
) -> None:
    until = timezone.now() + timedelta(hours=5)
    queued("late", project="vision", asks={"deadline_at": until.timestamp()})
    (found,) = asked(operator)["planned"]
    assert (found["kind"], found["name"]) == ("deadline", "late")
    assert "/jobs/late/" in html_of(browser.get("/calendar/"))
    assert asked(Client(headers=bearer(make_token(stranger))))["planned"] == []


def test_whose_a_booking_is_and_why_is_for_members_alone(stranger: User) -> None:
    booked(1, 2, project="vision", reason="the secret launch")
    (found,) = asked(Client(headers=bearer(make_token(stranger))))["planned"]
    assert (found["project"], found["reason"]) == ("", "")
    client = Client()
    client.force_login(stranger)
    text = html_of(client.get("/calendar/"))
    assert "rack oslo/A01" in text
    assert "secret" not in text


@pytest.mark.parametrize("query", ["?days=0", "?days=31", "?days=x", "?dayss=3"])
def test_a_span_that_makes_no_sense_is_refused_with_the_field(operator: Client, query: str) -> None:
    answer = operator.get(f"/api/v1/calendar{query}")
    assert answer.status_code == 400
    assert "day" in answer.json()["error"]["field"]


def test_the_figure_of_a_site_has_lanes_of_what_is_planned_and_a_file(operator: Client) -> None:
    booked(1, 2)
    limited(9_000.0, 3, 4)
    figure = operator.get("/api/v1/calendar/figure?site=oslo&days=1").json()
    assert [lane["key"] for lane in figure["lanes"]] == ["maintenance", "restriction"]
    text = operator.get("/api/v1/calendar/figure?site=oslo&days=1&format=csv")
    assert text.getvalue().decode().startswith("time,committed_w,budget_w")
    assert operator.get("/api/v1/calendar/figure?site=bergen").status_code == 404


def test_nobody_without_the_right_to_see_the_fleet_is_told() -> None:
    assert Client().get("/api/v1/calendar").status_code == 401
    assert Client().get("/calendar/").status_code == 302
