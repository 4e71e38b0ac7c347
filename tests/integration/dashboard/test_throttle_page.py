"""The Throttle events page and its live panel."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models import Gpu
from headroom.contracts import ThrottleCause
from telemetry.models import ThrottleEvent
from tests.builders.fleet import SmallFleet

URL = "/throttle/"


def text_of(html: str) -> str:
    return re.sub(r"\s+([,.])", r"\1", re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


def make_event(gpu: Gpu, cause: ThrottleCause, opened_min: int, closed_min: int | None) -> None:
    """An event from ``opened_min`` to ``closed_min`` minutes ago (None: still open)."""
    now = timezone.now()
    closed = None if closed_min is None else now - timedelta(minutes=closed_min)
    opened = now - timedelta(minutes=opened_min)
    ThrottleEvent.objects.create(
        gpu=gpu, cause=cause, opened_at=opened, updated_at=closed or now, closed_at=closed
    )


@pytest.fixture
def events(small: SmallFleet) -> None:
    here = [small.gpu("oslo-a01-n1", index) for index in range(3)]
    make_event(here[0], ThrottleCause.SW_POWER_CAP, 38, None)
    make_event(here[1], ThrottleCause.SW_POWER_CAP, 5, None)
    make_event(here[1], ThrottleCause.SW_THERMAL, 3, None)
    make_event(here[2], ThrottleCause.HW_THERMAL, 60, 50)
    make_event(small.gpu("bergen-b02-n2"), ThrottleCause.SYNC_BOOST, 2, 1)
    make_event(small.gpu("bergen-b02-n2"), ThrottleCause.SYNC_BOOST, 2000, 1900)


def opened(viewer: Client, query: str = "") -> str:
    response = viewer.get(URL + query)
    assert response.status_code == 200
    return response.content.decode()


def rows_of(html: str) -> list[str]:
    """Return GPU and cause of each row of the table."""
    body = html[html.index("<tbody>") : html.index("</tbody>")]
    found = re.findall(r'cause-(\w+)".*?title="([^"]+ GPU \d+)"', body)
    return [f"{gpu.split('-', 1)[0]} {gpu[-1]} {cause}" for cause, gpu in found]


def test_nobody_sees_it_without_logging_in(client: Client, db: None) -> None:
    assert client.get(URL).status_code == 302
    assert client.get("/live/throttle").status_code == 302


def test_the_answer_counts_by_cause_and_names_the_longest(viewer: Client, events: None) -> None:
    text = text_of(opened(viewer))
    # One GPU has two causes and counts once.
    assert "2 GPUs throttling now: 2 SW power cap, 1 SW thermal" in text
    assert "longest 38 min on oslo-a01-n1 GPU 0" in text


def test_open_ones_come_first_then_the_newest(viewer: Client, events: None) -> None:
    assert rows_of(opened(viewer)) == [
        "oslo 1 sw_thermal",
        "oslo 1 sw_power_cap",
        "oslo 0 sw_power_cap",
        "bergen 0 sync_boost",
        "oslo 2 hw_thermal",
    ]


@pytest.mark.parametrize(
    ("query", "gpus"),
    [
        ("?cause=sw_power_cap", ["oslo 1 sw_power_cap", "oslo 0 sw_power_cap"]),
        ("?site=bergen", ["bergen 0 sync_boost"]),
        ("?rack=B02", ["bergen 0 sync_boost"]),
        ("?rack=bergen/B02", ["bergen 0 sync_boost"]),
        ("?node=bergen-b02-n2", ["bergen 0 sync_boost"]),
        ("?open=1&cause=sw_thermal", ["oslo 1 sw_thermal"]),
        ("?range=48h&site=bergen", ["bergen 0 sync_boost", "bergen 0 sync_boost"]),
        # Still open, though it began before the range.
        ("?range=15m&cause=sw_power_cap", ["oslo 1 sw_power_cap", "oslo 0 sw_power_cap"]),
    ],
)
def test_filters_are_in_the_url(viewer: Client, events: None, query: str, gpus: list[str]) -> None:
    assert rows_of(opened(viewer, query)) == gpus


@pytest.mark.parametrize("query", ["?rack=oslo/B02", "?node=nowhere", "?site=%00x"])
def test_what_matches_nothing_is_said(viewer: Client, events: None, query: str) -> None:
    assert "No event passes these filters" in text_of(opened(viewer, query))


@pytest.mark.parametrize("query", ["?cause=gremlins", "?range=soon"])
def test_a_wrong_filter_is_told(viewer: Client, events: None, query: str) -> None:
    response = viewer.get(URL + query)
    assert response.status_code == 400
    assert 'role="alert"' in response.content.decode()


def test_the_timeline_has_racks_and_inside_of_one_its_gpus(viewer: Client, events: None) -> None:
    racks = re.findall(r'id="row-\d+" href="/racks/\d+/" title="([^"]+)"', opened(viewer))
    assert racks == ["oslo/A01", "bergen/B02"]
    html = opened(viewer, "?rack=oslo/A01")
    gpus = re.findall(r'id="row-\d+" href="/gpus/\d+/" title="([^"]+)"', html)
    assert gpus == ["oslo-a01-n1 GPU 1", "oslo-a01-n1 GPU 2", "oslo-a01-n1 GPU 0"]
    assert "oslo-a01-n1 GPU 1: 2 events, sw_power_cap, sw_thermal" in html


def test_pages_keep_the_filters(viewer: Client, small: SmallFleet) -> None:
    gpu = small.gpu("oslo-a01-n1")
    for minute in range(60):
        make_event(gpu, ThrottleCause.SW_POWER_CAP, 2 * minute + 2, 2 * minute + 1)
    first = opened(viewer, "?site=oslo")
    assert len(rows_of(first)) == 50
    (after,) = re.findall(r'rel="next" href="([^"]+)"', first)
    second = opened(viewer, after.replace("&amp;", "&"))
    assert len(rows_of(second)) == 10
    assert "?range=6h&amp;site=oslo&amp;page=2&amp;v=" in second


def test_without_any_event_it_says_what_would_open_one(viewer: Client, small: SmallFleet) -> None:
    text = text_of(opened(viewer))
    assert "Nothing throttles now" in text
    assert "No GPU has been throttled yet" in text


def test_a_poll_brings_the_answer_along_and_then_nothing(viewer: Client, small: SmallFleet) -> None:
    make_event(small.gpu("oslo-a01-n1"), ThrottleCause.SW_POWER_CAP, 5, 3)
    now = timezone.now().replace(microsecond=0)  # as the panel's own path has it
    ends = {"from": (now - timedelta(hours=1)).isoformat(), "to": now.isoformat()}
    html = viewer.get("/live/throttle", ends).content.decode()
    assert 'id="throttle-answer" hx-swap-oob="true"' in html
    (path,) = re.findall(r'hx-get="(/live/throttle[^"]+)"', html)
    assert viewer.get(path.replace("&amp;", "&")).status_code == 204
    make_event(small.gpu("oslo-a01-n1"), ThrottleCause.SW_THERMAL, 2, None)
    assert viewer.get(path.replace("&amp;", "&")).status_code == 200


def test_a_page_costs_the_same_however_many_events_it_has(
    viewer: Client, small: SmallFleet, django_assert_max_num_queries: Any
) -> None:
    for index in range(4):
        for minute in range(10):
            gpu = small.gpu("oslo-a01-n1", index)
            make_event(gpu, ThrottleCause.SW_POWER_CAP, 2 * minute + 2, 2 * minute + 1)
    with django_assert_max_num_queries(12):
        opened(viewer)
