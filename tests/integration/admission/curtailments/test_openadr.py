"""Events of a grid's VTN are held, taken back and reported, whatever the VTN does meanwhile."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone
from pytest_django import Settings

from admission.curtailments import judging, tasks
from admission.curtailments.models import Curtailment
from admission.curtailments.openadr import following
from admission.curtailments.openadr.client import Access, Vtn, VtnError
from policies.restrictions import store
from policies.restrictions.models import Restriction
from tests.integration.admission.curtailments.conftest import Metering
from tests.integration.admission.curtailments.vtn import (
    CLIENT_ID,
    SCHEMAS,
    SECRET,
    StandIn,
    serving,
)
from tests.json_schema import validator

pytestmark = pytest.mark.django_db


@pytest.fixture
def vtn(settings: Settings, metering: Metering) -> Iterator[StandIn]:
    following.invalidate()
    with serving() as found:
        found.add_program()
        settings.OPENADR_VTN_URL = found.url
        settings.OPENADR_CLIENT_ID, settings.OPENADR_CLIENT_SECRET = CLIENT_ID, SECRET
        settings.OPENADR_PROGRAM, settings.OPENADR_SITE = "cold-days", "oslo"
        settings.OPENADR_TIMEOUT_S = 0.3
        settings.OPENADR_MAX_SITE_SHARE = 1.0
        yield found
    following.invalidate()


def limit(
    number: int, kilowatts: float, *, in_s: float = 120.0, for_s: int = 600
) -> dict[str, Any]:
    """Return the fields of an event with one limit."""
    start = timezone.now() + timedelta(seconds=in_s)
    return {
        "eventName": f"limit {number}",
        "intervalPeriod": {"start": start.isoformat(), "duration": f"PT{for_s}S"},
        "payloadDescriptors": [{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "KW"}],
        "intervals": [
            {"id": 0, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [kilowatts]}]}
        ],
    }


def poll() -> bool:
    cache.delete("openadr.polled")
    return tasks.follow_vtn()


def test_where_no_vtn_is_set_nobody_is_asked_and_nothing_is_late(
    vtn: StandIn, settings: Settings
) -> None:
    settings.OPENADR_VTN_URL = ""
    assert tasks.follow_vtn() is True
    assert vtn.asked == []


def test_an_event_is_held_once_and_with_its_own_end(vtn: StandIn) -> None:
    vtn.add_event(1, **limit(1, 9.5))
    assert poll()
    assert poll()
    row = Curtailment.objects.get()
    assert (row.target_w, row.asked, row.event_id) == (9_500.0, {"to_w": 9_500.0}, "e-1")
    assert row.source == "openadr:e-1/0"
    assert row.ends_at - row.starts_at == timedelta(seconds=600)
    held = Restriction.objects.get()
    assert (held.kind, held.state, held.value) == ("power_budget_w", "in_force", 9_500.0)
    assert [each.id for each in store.in_force(timezone.now()).announced] == [held.pk]


def test_the_vtn_is_asked_no_more_often_than_is_set(vtn: StandIn) -> None:
    assert poll()
    before = len(vtn.asked)
    assert tasks.follow_vtn() is True
    assert len(vtn.asked) == before


def test_what_is_taken_back_ends_and_what_is_changed_begins_anew(vtn: StandIn) -> None:
    vtn.add_event(1, **limit(1, 9.5))
    vtn.add_event(2, **limit(2, 8.5, in_s=3600.0))
    poll()
    vtn.events[0]["intervals"][0]["payloads"][0]["values"] = [7.5]
    del vtn.events[1]
    poll()
    open_now = Curtailment.objects.open(timezone.now())
    assert [(row.event_id, row.target_w) for row in open_now] == [("e-1", 7_500.0)]
    announced = store.in_force(timezone.now()).announced
    assert [each.value for each in announced] == [7_500.0]


@pytest.mark.parametrize("fault", ["error", "slow", "garbage", "redirect"])
def test_while_the_vtn_is_away_what_is_held_stays(vtn: StandIn, fault: str) -> None:
    vtn.add_event(1, **limit(1, 9.5))
    poll()
    vtn.fault = fault
    assert poll() is False
    # It is not asked again yet, and the loop is none the less late.
    assert tasks.follow_vtn() is False
    assert store.in_force(timezone.now()).announced
    vtn.fault = ""
    assert poll()
    assert Curtailment.objects.count() == 1


def test_a_token_that_has_ended_is_fetched_anew(vtn: StandIn) -> None:
    vtn.token_s, vtn.says_s = 3600.0, 3600.0
    assert poll()
    vtn.tokens.clear()  # it was taken back
    assert poll()
    assert vtn.asked.count("POST /auth/token") == 2


def test_a_wrong_secret_is_told_without_it(
    vtn: StandIn, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OPENADR_CLIENT_SECRET = "not-the-secret"
    with caplog.at_level(logging.DEBUG):
        assert poll() is False
    assert "invalid_client" in caplog.text
    assert "not-the-secret" not in caplog.text


def test_neither_secret_nor_token_is_ever_told(
    vtn: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    vtn.add_event(1, **limit(1, 9.5))
    with caplog.at_level(logging.DEBUG):
        poll()
        vtn.fault = "error"
        poll()
    assert not any(each in caplog.text for each in (SECRET, *vtn.tokens))
    access = Access(
        url=vtn.url, token_url=vtn.url, client_id="ven", secret=SECRET, scopes="", timeout_s=1.0
    )
    assert SECRET not in repr(access)


def test_secrets_are_sent_over_tls_alone() -> None:
    access = Access(
        url="http://grid.example.com", token_url="https://grid.example.com/auth/token",
        client_id="ven", secret=SECRET, scopes="", timeout_s=1.0,
    )  # fmt: skip
    with pytest.raises(VtnError, match="is not https"):
        Vtn(access)


def test_all_pages_are_read(vtn: StandIn) -> None:
    for number in range(60):
        vtn.add_event(number, **limit(number, 9.0, in_s=1000.0 + 700.0 * number))
    poll()
    assert Curtailment.objects.count() == 60


def test_what_cannot_be_held_is_left_out_and_told(
    vtn: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    fields = limit(1, 9.5)
    fields["payloadDescriptors"][0]["units"] = "KWH"
    vtn.add_event(1, **fields)
    vtn.add_event(2, **limit(2, 9.0))
    poll()
    assert [row.event_id for row in Curtailment.objects.all()] == ["e-2"]
    assert "KWH is no unit of power" in caplog.text


def test_more_than_was_agreed_to_waits_for_a_person(vtn: StandIn, settings: Settings) -> None:
    settings.OPENADR_MAX_SITE_SHARE = 0.05
    vtn.add_event(1, **limit(1, 2.0))
    poll()
    held = Restriction.objects.get()
    assert held.state == "pending_approval"
    assert "without a person they may take 5 %" in held.pending_why


def test_what_was_kept_is_reported_once(vtn: StandIn, metering: Metering) -> None:
    vtn.add_event(1, **limit(1, 9.5, in_s=0.0, for_s=300))
    poll()
    row = Curtailment.objects.get()
    began = timezone.now() - timedelta(seconds=400)
    ends = began + timedelta(seconds=300)
    Curtailment.objects.filter(pk=row.pk).update(starts_at=began, ends_at=ends, baseline_w=11e3)
    metering.read(began.timestamp(), ends.timestamp(), 9_000.0)
    assert judging.judge_due(timezone.now()) == 1
    vtn.events.clear()
    poll()
    poll()
    (report,) = vtn.reports
    assert (report["programID"], report["eventID"]) == ("p-1", "e-1")
    (resource,) = report["resources"]
    values = {each["type"]: each["values"] for each in resource["intervals"][0]["payloads"]}
    assert values == {"DEMAND": [9.0], "BASELINE": [11.0]}
    validator(SCHEMAS["report"]).validate(report)
    row.refresh_from_db()
    assert isinstance(row.reported_at, datetime)
