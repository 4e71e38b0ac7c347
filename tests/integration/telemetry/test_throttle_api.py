from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from telemetry.models import ReportedJob, ThrottleEvent, XidEvent
from telemetry.throttle.rules import Severity
from tests.builders.accounts import api_client
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db
URL = "/api/v1/throttle-events"
T0 = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


def make_event(
    gpu: Gpu, cause: ThrottleCause, from_min: int, to_min: int | None, **given: Any
) -> ThrottleEvent:
    opened = T0 + timedelta(minutes=from_min)
    closed = None if to_min is None else T0 + timedelta(minutes=to_min)
    return ThrottleEvent.objects.create(
        gpu=gpu,
        cause=cause,
        opened_at=opened,
        updated_at=closed or opened,
        closed_at=closed,
        **given,
    )


@pytest.fixture
def events() -> dict[str, ThrottleEvent]:
    here = make_node("n1", gpus=2)
    there = make_node("n2", gpus=1, site="bergen", rack="B01")
    one, two = here.gpus.order_by("index")
    return {
        "cap": make_event(one, ThrottleCause.SW_POWER_CAP, 0, 5, expected=True),
        "heat": make_event(two, ThrottleCause.HW_THERMAL, 10, None, severity=Severity.CRITICAL),
        "far": make_event(
            there.gpus.get(),
            ThrottleCause.SW_POWER_CAP,
            20,
            30,
            severity=Severity.WARNING,
            job=ReportedJob.objects.create(name="llama"),
        ),
    }


def ask(events: dict[str, ThrottleEvent], query: str) -> list[str]:
    answer = api_client().get(f"{URL}?{query}")
    assert answer.status_code == 200, answer.content
    keys = {event.pk: key for key, event in events.items()}
    return [keys[row["id"]] for row in answer.json()["results"]]


def test_events_come_newest_first_with_where_they_were(events: dict[str, ThrottleEvent]) -> None:
    rows = api_client().get(URL).json()["results"]
    assert [row["cause"] for row in rows] == ["sw_power_cap", "hw_thermal", "sw_power_cap"]
    far = rows[0]
    assert (far["site"], far["rack"], far["node"], far["gpu_index"]) == ("bergen", "B01", "n2", 0)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("cause=sw_power_cap", ["far", "cap"]),
        ("site=oslo", ["heat", "cap"]),
        ("site=nowhere", []),
        ("node=n2", ["far"]),
        ("open=1", ["heat"]),
        ("open=0", ["far", "cap"]),
        ("open=1&cause=sw_power_cap", []),
        ("class=expected", ["cap"]),
        ("class=unexpected", ["far", "heat"]),
        ("severity=info", ["far", "heat", "cap"]),
        ("severity=warning", ["far", "heat"]),
        ("severity=critical", ["heat"]),
        ("job=llama", ["far"]),
        # Touching the span is enough: an event that began before it counts.
        ("since=2026-11-20T08:25:00Z", ["far", "heat"]),
        ("until=2026-11-20T08:10:00Z", ["cap"]),
        ("since=2026-11-20T08:04:00Z&until=2026-11-20T08:06:00Z", ["cap"]),
        # Closed at the very start of the span: no longer in it.
        ("since=2026-11-20T08:05:00Z&until=2026-11-20T08:06:00Z", []),
    ],
)
def test_filters(events: dict[str, ThrottleEvent], query: str, found: list[str]) -> None:
    assert ask(events, query) == found


def test_filters_by_rack_and_gpu_id(events: dict[str, ThrottleEvent]) -> None:
    gpu = events["far"].gpu
    assert ask(events, f"rack={gpu.node.rack_id}") == ["far"]
    assert ask(events, f"gpu={gpu.pk}") == ["far"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("cause=magic", "cause"),
        ("rack=A01", "rack"),
        ("open=maybe", "open"),
        ("class=odd", "class"),
        ("severity=loud", "severity"),
        ("since=today", "since"),
    ],
)
def test_a_wrong_filter_is_named(query: str, field: str) -> None:
    answer = api_client().get(f"{URL}?{query}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, field)


def test_no_event_is_lost_between_pages_when_many_open_at_once() -> None:
    node = make_node(gpus=7)
    for gpu in node.gpus.all():
        make_event(gpu, ThrottleCause.SW_POWER_CAP, 0, None)
    client, seen, url = api_client(), [], f"{URL}?page_size=3"
    while url:
        page = client.get(url).json()
        seen += [row["id"] for row in page["results"]]
        url = page["next"]
    assert len(seen) == len(set(seen)) == 7


def test_a_page_costs_the_same_however_many_events_it_has(
    events: dict[str, ThrottleEvent], django_assert_num_queries: object
) -> None:
    client = api_client()
    # The token, the page, and around it how long a statement may take.
    with django_assert_num_queries(4):  # type: ignore[operator]
        client.get(URL)


def test_an_event_says_what_it_cost() -> None:
    gpu = make_node().gpus.get(index=1)
    event = make_event(
        gpu, ThrottleCause.HW_POWER_BRAKE, 0, 5, observed_s=300, throttled_s=60, capped_s=0,
        usual_mhz=1800, lost_mhz_s=54_000, energy_j=9e4, peak_temp_mem_c=95, place="oslo/A01/n1/1",
        severity=Severity.CRITICAL,
    )  # fmt: skip
    row = api_client().get(f"{URL}/{event.pk}").json()
    assert (row["class"], row["severity"], row["share"]) == ("unexpected", "critical", 0.2)
    assert (row["throttled_s"], row["lost_mhz_s"], row["lost_s"]) == (60, 54_000, 30)
    assert (row["energy_j"], row["peak_temp_mem_c"], row["place"]) == (9e4, 95, "oslo/A01/n1/1")
    assert (row["job"], row["xids"]) == (None, [])


def test_what_nobody_measured_is_null() -> None:
    event = make_event(make_node().gpus.get(index=0), ThrottleCause.DISPLAY_CLOCK, 0, None)
    row = api_client().get(f"{URL}/{event.pk}").json()
    assert {row[name] for name in ("share", "lost_s", "lost_mhz_s", "energy_j", "usual_mhz")} == {
        None
    }


def test_xid_errors_of_the_gpu_meanwhile_belong_to_the_event() -> None:
    node = make_node(gpus=2)
    one, two = node.gpus.order_by("index")
    event = make_event(one, ThrottleCause.HW_THERMAL, 10, 20)
    going_on = make_event(two, ThrottleCause.HW_THERMAL, 10, None)
    for gpu, minute, xid in (
        (one, 8.9, 13), (one, 9.1, 48), (one, 15, 63), (one, 20.9, 94), (one, 21.1, 31),
        (two, 15, 79), (None, 15, 119),
    ):  # fmt: skip
        at = T0 + timedelta(minutes=minute)
        XidEvent.objects.create(node=node, gpu=gpu, ts=at, xid=xid)
    client = api_client()
    assert client.get(f"{URL}/{event.pk}").json()["xids"] == [48, 63, 94]
    assert client.get(f"{URL}/{going_on.pk}").json()["xids"] == [79]


def test_it_is_read_only_and_not_for_everybody(client: Client) -> None:
    assert client.get(URL).status_code == 401
    assert api_client().post(URL, {}, content_type="application/json").status_code == 405
