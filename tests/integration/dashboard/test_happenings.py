"""What happened to a GPU or a node: throttle events, Xid errors and memory errors in one list."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from fleet.models import Gpu, Node
from headroom.contracts import ThrottleCause
from telemetry.faults.models import EccEvent
from telemetry.models import XidEvent
from telemetry.throttle.rules import Severity
from tests.builders.fleet import SmallFleet
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import make_event, text_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def node(small: SmallFleet) -> Node:
    return small.nodes["oslo-a01-n1"]


def make_xid(node: Node, gpu: Gpu | None, minutes_ago: int, xid: int, text: str = "") -> None:
    at = timezone.now() - timedelta(minutes=minutes_ago)
    XidEvent.objects.create(node=node, gpu=gpu, ts=at, xid=xid, text=text)


@pytest.fixture
def history(small: SmallFleet, node: Node) -> None:
    one, two = small.gpu(node.name, 1), small.gpu(node.name, 2)
    make_event(
        one, ThrottleCause.HW_THERMAL, 30, 20, severity=Severity.CRITICAL, observed_s=600.0,
        throttled_s=150.0, usual_mhz=1800.0, lost_mhz_s=54_000.0, energy_j=180_000.0,
        peak_temp_c=91.0, peak_temp_mem_c=99.0,
    )  # fmt: skip
    make_event(two, ThrottleCause.SW_POWER_CAP, 10, None, expected=True)
    make_xid(node, one, 25, 79, "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.")
    make_xid(node, None, 15, 12_028, "nvidia-nvswitch0: SXid")
    at = timezone.now() - timedelta(minutes=5)
    EccEvent.objects.create(gpu=two, since=at - timedelta(seconds=10), at=at, count=2, total=9)
    make_event(small.gpu("oslo-a01-n2"), ThrottleCause.SYNC_BOOST, 5, 1)
    make_xid(node, one, 600, 13)


def rows_of(viewer: Client, path: str) -> list[str]:
    html = html_of(viewer.get(path))
    if "<tbody" not in html[html.index('id="happenings"') :]:
        return []
    part = html[html.index('id="happenings"') :]
    body = part[part.index("<tbody") : part.index("</tbody>")]
    return [text_of(row).strip() for row in re.findall(r"<tr.*?</tr>", body, flags=re.DOTALL)]


def test_a_node_shows_all_of_it_the_newest_first(viewer: Client, node: Node, history: None) -> None:
    rows = rows_of(viewer, f"/nodes/{node.pk}/")
    words = ["ECC +2", "sw_power_cap", "Xid 12028", "Xid 79", "hw_thermal"]
    assert [word for row, word in zip(rows, words, strict=True) if word in row] == words
    ecc, cap, switch, lost, hot = rows
    assert "GPU 2" in ecc
    assert "critical" in ecc
    assert "2 uncorrected memory errors since" in ecc
    assert "beside sw_power_cap" in ecc
    assert "expected" in cap
    assert "goes on" in cap
    assert "Xid error: look it up" in switch
    assert "GPU fell off the bus: drain the node" in lost
    assert "beside hw_thermal" in lost
    assert "NVRM: Xid (PCI:0000:9b:00): 79" in lost
    assert "25 % of 10 min · lost 30.0 s of work · up to 91 °C, memory 99 °C · 50.0 Wh" in hot


def test_a_gpu_shows_its_own(viewer: Client, small: SmallFleet, node: Node, history: None) -> None:
    rows = rows_of(viewer, f"/gpus/{small.gpu(node.name, 1).pk}/")
    assert ["Xid 79" in rows[0], "hw_thermal" in rows[1]] == [True, True]
    assert len(rows) == 2


def test_the_range_says_how_far_back(viewer: Client, node: Node, history: None) -> None:
    assert len(rows_of(viewer, f"/nodes/{node.pk}/?range=15m")) == 2
    assert len(rows_of(viewer, f"/nodes/{node.pk}/?range=24h")) == 6


def test_where_nothing_happened_it_says_so(viewer: Client, small: SmallFleet) -> None:
    path = f"/nodes/{small.nodes['oslo-b03-n1'].pk}/"
    assert rows_of(viewer, path) == []
    assert "Nothing: no throttling, no Xid error, no memory error." in text_of(
        html_of(viewer.get(path))
    )


def test_a_line_of_a_log_is_text_and_no_markup(viewer: Client, node: Node) -> None:
    make_xid(node, None, 5, 13, "<img src=x> " + "n" * 400)
    html = html_of(viewer.get(f"/nodes/{node.pk}/"))
    assert "<img" not in html
    assert "&lt;img src=x&gt;" in html


def test_it_is_polled_while_the_range_is_live(viewer: Client, node: Node, history: None) -> None:
    html = html_of(viewer.get(f"/nodes/{node.pk}/?range=6h"))
    (path,) = re.findall(rf'hx-get="(/live/nodes/{node.pk}/events[^"]+)"', html)
    assert viewer.get(path.replace("&amp;", "&")).status_code == 204
    make_xid(node, None, 1, 119)
    assert "Xid 119" in html_of(viewer.get(path.replace("&amp;", "&")))
    past = html_of(viewer.get(f"/nodes/{node.pk}/?from=2026-01-01&to=2026-01-02"))
    assert 'id="happenings" aria-labelledby="happenings-title">' in past


@pytest.mark.parametrize("path", ["/live/nodes/1/events", "/live/gpus/1/events"])
def test_nobody_sees_it_without_logging_in(client: Client, path: str) -> None:
    assert client.get(path).status_code == 302


def test_it_costs_the_same_however_much_happened(
    viewer: Client, small: SmallFleet, node: Node, django_assert_max_num_queries: Any
) -> None:
    for index in range(4):
        for minute in range(1, 11):
            gpu = small.gpu(node.name, index)
            make_event(gpu, ThrottleCause.SW_THERMAL, 3 * minute + 2, 3 * minute + 1)
            make_xid(node, gpu, minute, 13)
    with django_assert_max_num_queries(9):
        viewer.get(f"/live/nodes/{node.pk}/events")
