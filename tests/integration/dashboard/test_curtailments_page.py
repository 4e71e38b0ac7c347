"""The pages of curtailments tell what is asked, what it would cost, and what was kept."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from admission.curtailments.models import Curtailment
from dashboard import moments
from policies.restrictions.models import Restriction
from tests.builders.accounts import client_of
from tests.builders.fleet import SmallFleet
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

pytestmark = pytest.mark.django_db
ESTIMATE = {
    "load_w": 10_000.0, "target_w": 8_000.0, "need_w": 2_000.0, "possible_w": 3_000.0,
    "least_target_w": 7_000.0, "is_possible": True, "sure": 0.93, "lost_gpu_h": 12.0,
    "lost_low_gpu_h": 9.0, "lost_high_gpu_h": 15.5, "lost_by_project": {}, "lost_by_class": {},
    "measures": [],
}  # fmt: skip

RESULT = {
    "seconds": 600.0, "read_s": 590.0, "held_s": 300.0, "met_after_s": None, "mean_w": 8_500.0,
    "worst_over_w": 900.0, "not_drawn_j": 9e5, "coverage": 0.98, "held_share": 0.51,
    "verdict": "missed", "meters": 1, "metered": "power domains", "lost_gpu_h": 3.25,
    "lost_as_said": False,
}  # fmt: skip


@pytest.fixture
def client(db: None) -> Client:
    return client_of(Role.VIEWER)


def make(in_s: float = 60.0, **given: Any) -> Curtailment:
    starts_at = timezone.now() + timedelta(seconds=in_s)
    ends_at = starts_at + timedelta(seconds=600)
    held = Restriction.objects.create(
        kind="power_budget_w", scope_kind="site", scope_name="oslo", value=8e3, reason="cold",
        owner="user:ada", cause=f"cold {in_s}", state="in_force", issued_at=timezone.now(),
        effect_at=starts_at, starts_at=starts_at, expires_at=ends_at,
    )  # fmt: skip
    fields = {
        "site": "oslo", "asked": {"by_w": 2_000.0}, "source": "user:ada", "reason": "it is cold",
        "target_w": 8_000.0, "baseline_w": 10_000.0, "baseline_s": 600.0,
        "announced_at": timezone.now(), "starts_at": starts_at, "ends_at": ends_at,
        "restriction": held, "estimate": ESTIMATE, **given,
    }  # fmt: skip
    return Curtailment.objects.create(**fields)


def opened(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return text_of(html_of(answer))


def test_nothing_is_asked_yet(client: Client) -> None:
    text = opened(client, "/curtailments/")
    assert "No grid asks for less now" in text
    assert "None yet." in text


def test_what_is_announced_is_told_with_its_cost(client: Client) -> None:
    row = make()
    listed = opened(client, "/curtailments/")
    assert "1 curtailment to be met now or later" in listed
    assert "announced" in listed
    text = opened(client, f"/curtailments/{row.pk}/")
    assert "oslo is to draw at most 8.0 kW" in text
    assert "announced, to be met in" in text
    assert "12.0 GPU h of work (9.0 to 15.5, 8 times of 10)" in text
    assert "It is judged from meters" in text


def test_what_is_to_be_met_now_says_what_is_drawn(client: Client, small: SmallFleet) -> None:
    small.report(power_w=700.0)
    row = make(in_s=-60.0)
    moments.invalidate()
    text = opened(client, f"/curtailments/{row.pk}/")
    assert "oslo is to draw at most 8.0 kW · to be met now" in text
    assert "site oslo draws 57.6 of 8.0 kW now: 49.6 kW over" in text
    row = make(in_s=60.0)
    assert "draws 57.6" not in opened(client, f"/curtailments/{row.pk}/")


def test_what_was_not_kept_says_so(client: Client) -> None:
    row = make(-700.0, judged_at=timezone.now(), result=RESULT)
    text = opened(client, f"/curtailments/{row.pk}/")
    assert "missed" in text
    assert "1 meter on power domains" in text
    assert "3.25 GPU h" in text
    assert "never" in text
    assert "1.5 kW of 2.0 kW asked for" in text
    assert "9.00 to 15.50 were said: outside" in text
    assert "said to be kept by 93 %" in text


def test_what_was_said_beforehand_is_held_against_what_came_of_it(client: Client) -> None:
    assert "answered beforehand" not in opened(client, "/curtailments/")
    for number, (as_said, verdict) in enumerate(
        [(True, "held"), (False, "held"), (True, "missed")]
    ):
        result = {**RESULT, "verdict": verdict, "lost_as_said": as_said}
        make(-800.0 - number, judged_at=timezone.now(), result=result)
    make(-900.0, judged_at=timezone.now(), result={**RESULT, "lost_as_said": None})
    text = opened(client, "/curtailments/")
    assert "Of the last 3 that were answered beforehand 2 cost as much work as was said" in text
    assert "Of 3 that were sure to be kept by 90 % or more 2 were held" in text


def test_who_would_be_slowed_beyond_what_was_agreed_is_told_beforehand(client: Client) -> None:
    row = make(estimate={**ESTIMATE, "beyond": 2})
    text = opened(client, f"/curtailments/{row.pk}/")
    assert "2 jobs would be slowed by more than they agreed to" in text


def test_what_is_unknown_is_not_found(client: Client) -> None:
    assert client.get("/curtailments/7/").status_code == 404


def test_what_is_announced_stands_on_the_page_of_restrictions(client: Client) -> None:
    row = make()
    text = opened(client, "/restrictions/")
    assert "Announced 1" in text
    assert "to be met later" in text
    one = opened(client, f"/restrictions/{row.restriction_id}/")
    assert "announced, to be met in" in one
