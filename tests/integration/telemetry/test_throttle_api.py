from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from tests.builders.accounts import api_client
from tests.builders.readings import make_node

pytestmark = pytest.mark.django_db
URL = "/api/v1/throttle-events"
T0 = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


def make_event(gpu: Gpu, cause: ThrottleCause, from_min: int, to_min: int | None) -> ThrottleEvent:
    opened = T0 + timedelta(minutes=from_min)
    closed = None if to_min is None else T0 + timedelta(minutes=to_min)
    return ThrottleEvent.objects.create(
        gpu=gpu, cause=cause, opened_at=opened, updated_at=closed or opened, closed_at=closed
    )


@pytest.fixture
def events() -> dict[str, ThrottleEvent]:
    here = make_node("n1", gpus=2)
    there = make_node("n2", gpus=1, site="bergen", rack="B01")
    one, two = here.gpus.order_by("index")
    return {
        "cap": make_event(one, ThrottleCause.SW_POWER_CAP, 0, 5),
        "heat": make_event(two, ThrottleCause.HW_THERMAL, 10, None),
        "far": make_event(there.gpus.get(), ThrottleCause.SW_POWER_CAP, 20, 30),
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
    with django_assert_num_queries(2):  # type: ignore[operator]  # the token, then the page
        client.get(URL)


def test_it_is_read_only_and_not_for_everybody(client: Client) -> None:
    assert client.get(URL).status_code == 401
    assert api_client().post(URL, {}, content_type="application/json").status_code == 405
