"""A grid asks for less through the API: answered beforehand, held, and judged by meters."""

from __future__ import annotations

import csv
import io
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.curtailments import judging
from admission.curtailments.models import Curtailment
from admission.jobs.models import Attempt
from fleet import snapshot
from policies import current
from policies.restrictions import store
from policies.restrictions.models import Restriction
from policies.scopes import ScopeKind
from tests.builders.accounts import api_client
from tests.integration.admission.curtailments.conftest import Metering

pytestmark = pytest.mark.django_db
URL = "/api/v1/curtailments"


@pytest.fixture
def operator() -> Client:
    return api_client(Role.OPERATOR)


def post(client: Client, path: str = "", **given: Any) -> Any:
    return client.post(f"{URL}{path}", given, content_type="application/json")


def asked(**changes: Any) -> dict[str, Any]:
    given = {"site": "oslo", "by_w": 1_000, "in_s": 120, "for_s": 600, "reason": "a cold morning"}
    return {**given, **changes}


def code(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.content
    found: str = answer.json()["error"]["code"]
    return found


def test_it_is_answered_beforehand_what_it_would_cost(
    job: Attempt, metering: Metering, operator: Client
) -> None:
    now = time.time()
    metering.read(now - 700, now, 11_000.0)
    answer = post(operator, "?dry_run=1", **asked(by_w=1_500))
    assert answer.status_code == 200, answer.content
    found = answer.json()
    assert found["baseline_w"] == pytest.approx(11_000.0)
    assert found["target_w"] == pytest.approx(9_500.0)
    cost = found["estimate"]
    assert cost["possible_w"] > 0
    assert cost["lost_low_gpu_h"] <= cost["lost_gpu_h"] <= cost["lost_high_gpu_h"]
    assert not Curtailment.objects.exists()
    assert not Restriction.objects.exists()


def test_it_is_announced_and_held_as_a_budget_of_the_site(
    job: Attempt, metering: Metering, operator: Client
) -> None:
    now = time.time()
    metering.read(now - 700, now, 11_000.0)
    row = post(operator, **asked(to_w=9_000, by_w=None)).json()
    assert (row["state"], row["target_w"]) == ("announced", 9_000.0)
    held = Restriction.objects.get(pk=row["restriction"])
    assert (held.kind, held.scope_name, held.value) == ("power_budget_w", "oslo", 9_000.0)
    assert AuditEntry.objects.filter(action="curtailment.ask").exists()
    soon = timezone.now() + timedelta(seconds=100)
    assert [each.id for each in store.in_force(soon).restrictions] == [held.pk]
    current.invalidate()
    budget_w = current.headroom(soon.timestamp()).powers[ScopeKind.SITE].budget_w
    assert budget_w.tolist() == [9_000.0]


def test_what_jobs_cannot_give_is_refused_with_what_is_possible(
    job: Attempt, metering: Metering, operator: Client
) -> None:
    now = time.time()
    metering.read(now - 700, now, 11_000.0)
    answer = post(operator, **asked(to_w=100, by_w=None))
    assert code(answer, 409) == "out_of_reach"
    assert "the lowest target is" in answer.json()["error"]["message"]
    assert not Restriction.objects.exists()
    assert post(operator, **asked(to_w=100, by_w=None, even_if_short=True)).status_code == 201


def test_without_readings_there_is_nothing_to_compare_with(
    job: Attempt, metering: Metering, operator: Client
) -> None:
    assert code(post(operator, **asked()), 409) == "no_baseline"
    assert post(operator, **asked(by_w=None, to_w=9_000)).status_code == 201


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"site": "atlantis"}, "site"),
        ({"by_w": None}, "by_w"),
        ({"to_w": 1.0}, "by_w"),
        ({"by_w": None, "by_share": 2.0}, "by_share"),
        ({"in_s": None}, "starts_at"),
        ({"in_s": None, "starts_at": "2020-01-01T00:00:00Z"}, "starts_at"),
        ({"for_s": 0}, "for_s"),
        ({"reason": ""}, "reason"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(
    metering: Metering, operator: Client, changes: dict[str, Any], field: str
) -> None:
    answer = post(operator, **asked(**changes))
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"]["field"] == field


def test_who_may_not_edit_policies_may_not_ask(metering: Metering) -> None:
    assert post(api_client(Role.VIEWER), **asked()).status_code == 403


def past(metering: Metering, *, drawn_w: float, target_w: float = 9_000.0) -> Curtailment:
    """Return a curtailment that was over two minutes ago, in which the site drew so much."""
    now = time.time()
    start = float(int(now)) - 720.0
    metering.read(start - 60, start, 11_000.0)
    metering.read(start, start + 600, drawn_w)
    at, until = (datetime.fromtimestamp(each, UTC) for each in (start, start + 600))
    held = Restriction.objects.create(
        kind="power_budget_w", scope_kind="site", scope_name="oslo", value=target_w, reason="cold",
        owner="user:ada", cause="cold", state="expired", issued_at=at, expires_at=until,
    )  # fmt: skip
    return Curtailment.objects.create(
        site="oslo", asked={"to_w": target_w}, source="user:ada", reason="cold",
        target_w=target_w, baseline_w=11_000.0, announced_at=at, starts_at=at, ends_at=until,
        restriction=held, estimate={},
    )  # fmt: skip


@pytest.mark.parametrize(("drawn_w", "verdict"), [(8_900.0, "held"), (9_100.0, "missed")])
def test_what_was_kept_is_proven_from_meters(
    metering: Metering, drawn_w: float, verdict: str
) -> None:
    row = past(metering, drawn_w=drawn_w)
    assert judging.judge_due(timezone.now()) == 1
    row.refresh_from_db()
    assert row.result["verdict"] == verdict
    assert row.result["coverage"] == pytest.approx(1.0)
    assert row.result["not_drawn_j"] == pytest.approx(600.0 * (11_000.0 - drawn_w))
    assert (row.result["meters"], row.result["metered"]) == (1, "power domains")
    assert row.state_at(timezone.now()) == verdict
    assert judging.judge_due(timezone.now()) == 0


def test_a_site_without_meters_proves_nothing(metering: Metering) -> None:
    row = past(metering, drawn_w=8_000.0)
    metering.meter.delete()
    snapshot.invalidate()
    judging.judge_due(timezone.now())
    row.refresh_from_db()
    assert (row.result["verdict"], row.result["meters"]) == ("unproven", 0)


def test_readings_come_as_csv(metering: Metering) -> None:
    row = past(metering, drawn_w=8_900.0)
    answer = api_client().get(f"{URL}/{row.pk}/readings.csv")
    lines = list(csv.reader(io.StringIO(answer.content.decode())))
    assert lines[0] == ["time", "load_w", "target_w"]
    assert len(lines) == 61
    assert lines[1][1:] == ["8900.0", "9000.0"]


def test_it_may_be_canceled_before_its_time(metering: Metering, operator: Client) -> None:
    row = post(operator, **asked(by_w=None, to_w=9_000, even_if_short=True)).json()
    answer = post(operator, f"/{row['id']}/cancel", reason="called off")
    assert answer.json()["state"] == "canceled"
    assert not store.in_force(timezone.now()).announced
    assert code(post(operator, f"/{row['id']}/cancel", reason="again"), 409) == "ended"
    assert judging.judge_due(timezone.now() + timedelta(hours=1)) == 0
