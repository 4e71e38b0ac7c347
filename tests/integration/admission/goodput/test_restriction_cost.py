"""What a restriction cost is told by the account, with its energy and money, or why it is not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from accounts.models import User
from accounts.roles import Role
from admission.energy.models import ProjectHour, SiteHour
from admission.goodput import costs, hours
from admission.goodput.models import AccountedHour, HourRestriction
from admission.jobs.models import Job
from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from policies.restrictions.models import Restriction
from telemetry.models import ThrottleEvent
from tests.builders.accounted import again, at, make_hour
from tests.builders.accounts import api_client, client_of, make_user
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db

#: Of half an hour of a GPU: what waiting for data left, and a tenth of that was throttled away.
CAPPED_S = 162.0


@pytest.fixture(scope="module")
def jobs(module_db: None) -> tuple[Job, Job]:
    made = make_hour()
    ThrottleEvent.objects.create(
        gpu=Gpu.objects.get(node__name="n1", index=0), cause=ThrottleCause.SW_POWER_CAP,
        opened_at=at(0), updated_at=at(1800), closed_at=at(1800), usual_mhz=1000.0,
        lost_mhz_s=180_000.0, expected=True,
    )  # fmt: skip
    return made


def restrict(kind: str, scope: tuple[str, str], **given: Any) -> Restriction:
    """Make a restriction that held for the first half hour."""
    fields: dict[str, Any] = {
        "reason": "hot", "owner": "user:a", "cause": "hot", "state": "ended", "issued_at": at(0),
        "effect_at": at(0), "expires_at": at(9000), "ended_at": at(1800), **given,
    }  # fmt: skip
    return Restriction.objects.create(kind=kind, scope_kind=scope[0], scope_name=scope[1], **fields)


def cap(**given: Any) -> Restriction:
    return restrict("power_cap_w", ("gpu", "n1/0"), **{"value": 500.0, **given})


def cost(row: Restriction, user: User | None = None) -> costs.Cost:
    return costs.of_restriction(row, user or make_user(Role.VIEWER), at(9000))


def closed(*, gpu_hour: float | None = None, price: float | None = None) -> None:
    """Close the energy of the hour: vision drew 1.2 kWh in 2 GPU-hours."""
    none = dict.fromkeys(("idle_mj", "unmanaged_mj", "residual_mj", "bridged_mj"), 0)
    SiteHour.objects.create(
        hour=at(0), site="oslo", jobs_mj=4_320_000_000, gpu_ms=4, covered_ms=4, it_mj=0,
        overhead_mj=0, by_difference_mj=0, basis=0, it_metered=False, facility_metered=False,
        gpu_hour=gpu_hour, price_per_kwh=price, **none,
    )  # fmt: skip
    ProjectHour.objects.create(
        hour=at(0), site="oslo", project="vision", gpu_mj=4_000_000_000, host_mj=320_000_000,
        shared_mj=0, overhead_mj=0, gpu_ms=7_200_000,
    )  # fmt: skip


@pytest.mark.usefixtures("jobs")
def test_a_cap_cost_what_it_held_back_at_the_draw_and_the_prices_of_the_hour() -> None:
    row = cap()
    again()
    closed(gpu_hour=2.0, price=0.5)
    found = cost(row)
    assert found.gpu_s == pytest.approx(CAPPED_S)
    hours = CAPPED_S / 3600.0
    # 0.6 kWh for each GPU-hour.
    assert found.kwh.value == pytest.approx(0.6 * hours)
    assert found.kwh.known == 1.0
    assert found.energy.value == pytest.approx(0.3 * hours)
    assert found.gpu_hours.value == pytest.approx(2.0 * hours)
    assert found.money == pytest.approx(2.3 * hours)
    assert (found.hours, found.missing, found.open, found.is_least) == (1, 0, 0, False)


@pytest.mark.usefixtures("jobs")
def test_without_closed_energy_and_prices_time_alone_is_known() -> None:
    row = cap()
    again()
    found = cost(row)
    assert found.gpu_s == pytest.approx(CAPPED_S)
    nothing = costs.Amount(value=None, known=0.0)
    assert (found.kwh, found.energy, found.gpu_hours) == (nothing, nothing, nothing)
    assert (found.money, found.is_least) == (None, True)


@pytest.mark.usefixtures("jobs")
def test_of_two_caps_the_lower_one_has_all_of_it_and_a_cap_on_clocks_shares_it() -> None:
    loose, strict = cap(value=600.0, cause="b"), cap(value=400.0, cause="c")
    clocks = restrict("clock_cap_mhz", ("gpu", "n1/0"), value=900.0)
    again()
    assert cost(loose).gpu_s == 0.0
    assert cost(strict).gpu_s == pytest.approx(CAPPED_S)
    assert cost(strict).shared_gpu_s == pytest.approx(CAPPED_S)
    with pytest.raises(costs.NotKnown, match="no throttling at a power limit"):
        cost(clocks)


@pytest.mark.usefixtures("jobs")
def test_a_drain_cost_the_time_of_gpus_that_nobody_held_and_their_energy_is_not_known() -> None:
    row = restrict("drain", ("node", "n2"))
    again()
    closed(gpu_hour=2.0, price=0.5)
    found = cost(row)
    # One of its GPUs is held all the time.
    assert found.gpu_s == pytest.approx(1800.0)
    assert found.kwh.value is None
    assert found.money == pytest.approx(1.0)
    assert found.is_least


@pytest.mark.usefixtures("jobs")
def test_an_hour_that_is_computed_again_counts_once_and_one_from_before_is_missing() -> None:
    row = cap()
    again()
    again()
    assert HourRestriction.objects.count() == 1
    assert cost(row).gpu_s == pytest.approx(CAPPED_S)
    AccountedHour.objects.update(has_restrictions=False)
    assert cost(row).missing == 1


@pytest.mark.usefixtures("jobs")
def test_of_one_that_goes_on_the_hour_that_goes_on_is_not_in_it() -> None:
    row = cap(state="in_force", ended_at=None, expires_at=at(90_000))
    again()
    found = costs.of_restriction(row, make_user(Role.VIEWER), at(3600 + 60))
    assert (found.hours, found.missing, found.open) == (2, 0, 1)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("no_new_launches", "told by reason"),
        ("power_budget_w", "the controller chooses"),
        ("prefer_away", "holds nobody back"),
    ],
)
def test_what_the_account_does_not_tell_is_said(db: None, kind: str, why: str) -> None:
    row = restrict(kind, ("site", "oslo"), value=None)
    found = api_client().get(f"/api/v1/restrictions/{row.pk}/cost").json()
    assert found["cost"] is None
    assert why in found["not_known"]


def test_one_that_never_had_an_effect_cost_nothing_that_is_known(db: None) -> None:
    with pytest.raises(costs.NotKnown, match="never had an effect"):
        cost(cap(state="pending_approval", effect_at=None))


@pytest.mark.usefixtures("jobs")
def test_who_sees_the_own_projects_alone_is_told_of_these() -> None:
    row = cap()
    again()
    user = make_user(Role.ML_USER)
    found = cost(row, user)
    assert (found.gpu_s, found.is_own) == (0.0, True)
    Job.objects.get(name="llama").project.members.add(user)
    assert cost(row, user).gpu_s == pytest.approx(CAPPED_S)


@pytest.mark.usefixtures("jobs")
def test_that_of_a_job_of_others_is_not_there() -> None:
    row = restrict("max_batch_scale", ("job", "llama"), value=0.5)
    url = f"/api/v1/restrictions/{row.pk}/cost"
    assert api_client(Role.ML_USER).get(url).status_code == 404
    assert api_client().get(url).status_code == 200
    assert api_client().get("/api/v1/restrictions/99999999999999999999/cost").status_code == 404


@pytest.mark.usefixtures("jobs")
def test_its_page_and_the_api_tell_the_same() -> None:
    row = cap(owner="user:a", ended_at=at(1800), ended_by="user:a", ended_why="over")
    again()
    closed(gpu_hour=200.0)
    told = api_client().get(f"/api/v1/restrictions/{row.pk}/cost").json()
    assert told["cost"]["gpu_hours"] == {"value": pytest.approx(9.0), "known": 1.0}
    assert told["cost"]["energy"] == {"value": None, "known": 0.0}
    html = text_of(html_of(client_of(Role.VIEWER).get(f"/restrictions/{row.pk}/")))
    assert "What it cost GPU-hours 0.04 held back kWh 0.03 USD of energy not known" in html
    assert "USD of GPU-hours 9.00" in html


@pytest.mark.usefixtures("jobs")
def test_what_is_forgotten_is_forgotten_with_the_days() -> None:
    cap()
    again()
    hours.prune(at(0) + timedelta(days=5_000))
    assert not HourRestriction.objects.exists()
