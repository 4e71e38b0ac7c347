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
from telemetry.models import ReportedJob, ThrottleEvent, XidEvent
from telemetry.throttle.rules import Severity
from tests.builders.fleet import SmallFleet
from tests.html import html_of

URL = "/throttle/"


def text_of(html: str) -> str:
    """Return what a page says, without what its terms mean, which opens on demand."""
    html = re.sub(r'<span class="meaning" popover.*?</span>', "", html, flags=re.DOTALL)
    return re.sub(r"\s+([,.])", r"\1", re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


def make_event(
    gpu: Gpu, cause: ThrottleCause, opened_min: int, closed_min: int | None, **given: Any
) -> ThrottleEvent:
    """An event from ``opened_min`` to ``closed_min`` minutes ago (None: still open)."""
    now = timezone.now()
    closed = None if closed_min is None else now - timedelta(minutes=closed_min)
    opened = now - timedelta(minutes=opened_min)
    return ThrottleEvent.objects.create(
        gpu=gpu, cause=cause, opened_at=opened, updated_at=closed or now, closed_at=closed, **given
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


def opened(viewer: Client, query: str = "", by: str = "events") -> str:
    """Return the page with a row for each event; with ``by`` empty as it comes."""
    asked = "&".join(filter(None, (query.removeprefix("?"), by and f"by={by}")))
    response = viewer.get(f"{URL}?{asked}")
    assert response.status_code == 200
    return html_of(response)


def rows_of(html: str) -> list[str]:
    """Return GPU and cause of each row of the table of events."""
    body = html[html.index("<tbody") : html.index("</tbody>")]
    found = re.findall(r'cause-(\w+)".*?title="([^"]+ GPU \d+)"', body)
    return [f"{gpu.split('-', 1)[0]} {gpu[-1]} {cause}" for cause, gpu in found]


def test_nobody_sees_it_without_logging_in(client: Client, db: None) -> None:
    assert client.get(URL).status_code == 302
    assert client.get("/live/throttle").status_code == 302


def test_the_answer_counts_by_cause_and_names_the_worst(viewer: Client, events: None) -> None:
    text = text_of(opened(viewer))
    # One GPU has two causes and counts once.
    assert "2 GPUs throttling unexpectedly now: 2 info · 2 SW power cap, 1 SW thermal" in text
    assert "worst: oslo-a01-n1 GPU 0, sw_power_cap, just now · where: oslo/A01 2" in text


def test_the_answer_tells_what_is_expected_from_what_is_not(
    viewer: Client, small: SmallFleet
) -> None:
    for index in range(3):
        make_event(
            small.gpu("bergen-a01-n1", index), ThrottleCause.SW_POWER_CAP, 60, None, expected=True
        )
    assert "No GPU throttles unexpectedly now · 3 under caps, as expected" in text_of(
        opened(viewer)
    )
    make_event(
        small.gpu("oslo-a01-n1", 2), ThrottleCause.HW_POWER_BRAKE, 4, None,
        severity=Severity.CRITICAL, observed_s=240, throttled_s=96,
    )  # fmt: skip
    make_event(small.gpu("oslo-b02-n1", 1), ThrottleCause.SW_POWER_CAP, 90, None)
    html = opened(viewer)
    text = text_of(html)
    assert "2 GPUs throttling unexpectedly now: 1 critical, 1 info" in text
    assert "3 under caps, as expected" in text
    assert "worst: oslo-a01-n1 GPU 2, hw_power_brake for 40 % of 4 min" in text
    assert "where: oslo/A01 1, oslo/B02 1" in text
    # The worst is on top of the table, though others have gone on for longer.
    assert rows_of(html)[0] == "oslo 2 hw_power_brake"


def test_an_open_event_of_a_silent_gpu_says_so(viewer: Client, small: SmallFleet) -> None:
    event = make_event(small.gpu("oslo-a01-n1"), ThrottleCause.SW_THERMAL, 30, None)
    assert ">silent<" not in opened(viewer)
    ThrottleEvent.objects.filter(pk=event.pk).update(
        updated_at=timezone.now() - timedelta(minutes=12)
    )
    assert 'title="Its GPU was last heard 12 min ago">silent<' in opened(viewer)


def test_an_event_says_what_it_cost(viewer: Client, small: SmallFleet) -> None:
    gpu = small.gpu("oslo-a01-n1", 2)
    make_event(
        gpu, ThrottleCause.HW_THERMAL, 30, 20, severity=Severity.WARNING, observed_s=600,
        throttled_s=150, usual_mhz=1800.0, lost_mhz_s=54_000.0, energy_j=180_000.0,
        peak_temp_c=91.0, peak_temp_mem_c=99.0, min_sm_mhz=1200.0,
        job=ReportedJob.objects.create(name="llama"),
    )  # fmt: skip
    at = timezone.now() - timedelta(minutes=25)
    XidEvent.objects.create(node=gpu.node, gpu=gpu, ts=at, xid=48)
    html = opened(viewer)
    body = text_of(html[html.index("<tbody") : html.index("</tbody>")])
    assert "llama" in body
    assert "10 min 25 % 30.0 91, 99 1,200 50.0 48" in body
    assert 'title="54,000 MHz·s below 1,800 MHz"' in html
    assert '<span class="tag warning">warning</span>' in html


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
        ("?class=unexpected&site=bergen", ["bergen 0 sync_boost"]),
        ("?severity=info&site=bergen", ["bergen 0 sync_boost"]),
        ("?range=48h&site=bergen", ["bergen 0 sync_boost", "bergen 0 sync_boost"]),
        # Still open, though it began before the range.
        ("?range=15m&cause=sw_power_cap", ["oslo 1 sw_power_cap", "oslo 0 sw_power_cap"]),
    ],
)
def test_filters_are_in_the_url(viewer: Client, events: None, query: str, gpus: list[str]) -> None:
    assert rows_of(opened(viewer, query)) == gpus


@pytest.mark.parametrize(
    "query",
    ["?rack=oslo/B02", "?node=nowhere", "?site=%7Fx", "?class=expected", "?severity=critical"],
)
def test_what_matches_nothing_is_said(viewer: Client, events: None, query: str) -> None:
    assert "No event passes these filters" in text_of(opened(viewer, query))


@pytest.mark.parametrize(
    "query", ["?cause=gremlins", "?range=soon", "?class=odd", "?severity=loud", "?by=moods"]
)
def test_a_wrong_filter_is_told(viewer: Client, events: None, query: str) -> None:
    response = viewer.get(URL + query)
    assert response.status_code == 400
    assert 'role="alert"' in html_of(response)


def groups_of(viewer: Client, query: str = "?by=racks") -> list[dict[str, Any]]:
    """Return the rows of causes by place, as their file has them."""
    response = viewer.get(f"{URL}{query}&table=groups&format=json")
    assert response.status_code == 200
    rows: list[dict[str, Any]] = response.json()["rows"]
    return rows


def test_many_events_are_one_row_by_cause_and_place(viewer: Client, small: SmallFleet) -> None:
    for index in range(4):
        gpu = small.gpu("oslo-a01-n1", index)
        make_event(
            gpu, ThrottleCause.SW_THERMAL, 30, 20, usual_mhz=1800.0,
            lost_mhz_s=1800.0 * (index + 1), peak_temp_c=80.0 + index,
            min_sm_mhz=1300.0 - index, energy_j=3600.0,
        )  # fmt: skip
        make_event(gpu, ThrottleCause.SW_THERMAL, 10, 5 if index else None)
    make_event(small.gpu("oslo-b02-n1"), ThrottleCause.SW_THERMAL, 9, 8)
    first, second = groups_of(viewer)
    assert (first["rack"], second["rack"]) == ("oslo/A01", "oslo/B02")
    told = {name: first[name] for name in ("severity", "cause", "gpus_now", "gpus_in_range")}
    assert told == {
        "severity": "info", "cause": "sw_thermal", "gpus_now": 1, "gpus_in_range": 4,
    }  # fmt: skip
    assert (first["events"], first["to_utc"], first["lost_s"]) == (8, "open", 10.0)
    assert (first["peak_c"], first["low_mhz"], first["wh"]) == (83.0, 1297.0, 4.0)
    assert second["lost_s"] is None
    (of_sites,) = groups_of(viewer, "?by=sites")
    assert (of_sites["site"], of_sites["events"]) == ("oslo", 9)


def test_what_is_expected_is_a_row_of_its_own_and_below(viewer: Client, small: SmallFleet) -> None:
    for index in range(3):
        make_event(
            small.gpu("oslo-a01-n1", index), ThrottleCause.SW_POWER_CAP, 9, None, expected=True
        )
    make_event(small.gpu("oslo-a01-n1", 3), ThrottleCause.SW_POWER_CAP, 9, None)
    make_event(
        small.gpu("oslo-a01-n1", 3), ThrottleCause.HW_THERMAL, 60, 50, severity=Severity.CRITICAL
    )
    found = [(each["severity"], each["gpus_now"]) for each in groups_of(viewer)]
    assert found == [("info", 1), ("expected", 3), ("critical", 0)]


def test_a_group_leads_to_its_events_one_by_one(viewer: Client, events: None) -> None:
    html = opened(viewer, "?open=1", by="")
    links = re.findall(r'id="group-\d+-events" href="([^"]+)"', html)
    found = [rows_of(opened(viewer, link.replace("&amp;", "&"), by="")) for link in links]
    assert found == [["oslo 1 sw_power_cap", "oslo 0 sw_power_cap"], ["oslo 1 sw_thermal"]]


def test_the_events_of_a_node_are_shown_one_by_one(viewer: Client, events: None) -> None:
    html = opened(viewer, "?node=bergen-b02-n2", by="")
    assert rows_of(html) == ["bergen 0 sync_boost"]
    assert "by=" not in re.findall(r'hx-get="(/live/throttle[^"]+)"', html)[0]


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
    second = opened(viewer, after.replace("&amp;", "&"), by="")
    assert len(rows_of(second)) == 10
    assert "?range=6h&amp;site=oslo&amp;by=events&amp;page=2&amp;v=" in second


def test_without_any_event_it_says_what_would_open_one(viewer: Client, small: SmallFleet) -> None:
    text = text_of(opened(viewer))
    assert "No GPU throttles unexpectedly now" in text
    assert "No GPU has been throttled yet" in text


def test_a_poll_brings_the_answer_along_and_then_nothing(viewer: Client, small: SmallFleet) -> None:
    make_event(small.gpu("oslo-a01-n1"), ThrottleCause.SW_POWER_CAP, 5, 3)
    now = timezone.now().replace(microsecond=0)  # as the panel's own path has it
    ends = {"from": (now - timedelta(hours=1)).isoformat(), "to": now.isoformat()}
    html = html_of(viewer.get("/live/throttle", ends))
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
    with django_assert_max_num_queries(18):
        opened(viewer)
