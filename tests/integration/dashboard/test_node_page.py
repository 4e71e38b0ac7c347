"""The Node page and its live panels."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from django.test import Client

from dashboard import units
from fleet.models import Meter, Node
from headroom.contracts import (
    HostColumns,
    MeterColumns,
    NodeReport,
    TelemetryBatch,
    ThrottleCause,
)
from tests.builders.fleet import SmallFleet, push
from tests.html import html_of


@pytest.fixture
def node(small: SmallFleet) -> Node:
    return small.nodes["oslo-a01-n1"]


@pytest.fixture
def bare(small: SmallFleet) -> Node:
    """A node without GPUs."""
    return Node.objects.create(name="build-host", rack=small.racks["oslo/A01"])


def text_of(html: str) -> str:
    return re.sub(r"\s+([,.])", r"\1", re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)))


def opened(viewer: Client, node: Node, query: str = "") -> str:
    response = viewer.get(f"/nodes/{node.pk}/{query}")
    assert response.status_code == 200
    return html_of(response)


def batch(small: SmallFleet, **blocks: object) -> None:
    now = time.time()
    small.seq += 1
    envelope = {"agent": small.agent.name, "boot_id": "boot-1", "seq": small.seq, "oldest_seq": 1}
    push(small.agent, TelemetryBatch(**envelope, sent_at=now, **blocks), received_at=now)  # type: ignore[arg-type]


def test_nobody_sees_it_without_logging_in(client: Client, node: Node) -> None:
    for path in (f"/nodes/{node.pk}/", f"/live/nodes/{node.pk}", f"/live/nodes/{node.pk}/range"):
        assert client.get(path).status_code == 302


def test_a_node_that_is_not_there_is_not_found(viewer: Client) -> None:
    for path in ("/nodes/999999/", "/live/nodes/999999", "/live/nodes/999999/range"):
        assert viewer.get(path).status_code == 404


def test_the_answer_has_the_numbers(viewer: Client, small: SmallFleet, node: Node) -> None:
    small.report(
        power_w=500.0,
        temp_c=lambda _, gpu: 60.0 + gpu,
        sm_mhz=990.0,
        throttle=lambda _, gpu: 4 * (gpu == 1),
    )
    text = text_of(opened(viewer, node))
    assert "oslo-a01-n1 · 2.0 kW of 4.8 enforced" in text
    assert "hottest GPU 3 63 °C, 24 °C to slowdown · clocks 50 % of max" in text
    assert re.search(r"1 of 4 GPUs throttling for \d s, 1 unexpectedly", text)


def test_throttling_under_a_lowered_limit_is_no_trouble(
    viewer: Client, small: SmallFleet, node: Node
) -> None:
    small.report(throttle=ThrottleCause.SW_POWER_CAP, power_limit_w=500.0)
    html = opened(viewer, node)
    assert "4 of 4 GPUs throttling" in text_of(html)
    assert "none unexpectedly" in text_of(html)
    assert 'class="open"' not in html


def test_each_gpu_has_a_line_and_leads_to_its_page(
    viewer: Client, small: SmallFleet, node: Node
) -> None:
    small.report()
    html = opened(viewer, node)
    for gpu in node.gpus.all():
        assert f'href="/gpus/{gpu.pk}/"' in html


def test_a_stale_node_says_so(viewer: Client, small: SmallFleet, node: Node) -> None:
    small.report(at=time.time() - 300)
    text = text_of(opened(viewer, node))
    assert "oslo-a01-n1 is stale: last heard 5 min ago" in text
    assert "rated load is counted against the budget" in text


def test_a_node_never_heard_from_says_how_to_mend_it(viewer: Client, node: Node) -> None:
    html = opened(viewer, node)
    assert "oslo-a01-n1 was never heard from" in text_of(html)
    assert f"--token-file TOKEN_FILE --node {node.name}" in html


def test_gpus_never_heard_show_no_zeros_once_a_later_one_reports(
    viewer: Client, small: SmallFleet
) -> None:
    first, last = small.nodes["bergen-a01-n1"], small.nodes["oslo-b03-n2"]
    small.report(only=[last.name])
    small.report(only=[first.name], power_w=_only(3, 400.0), power_limit_w=_only(3, 300.0))
    html = opened(viewer, first)
    # Of the GPUs that say no limit the rating counts: 3 x 700 W + 300 W, and the host.
    assert "of 4.4 enforced" in text_of(html)
    silent = small.nodes["bergen-a01-n2"]
    html = opened(viewer, silent)
    for row in re.findall(r'<th scope="row" class="nowrap"[^>]*>.*?</tr>', html, re.S):
        assert not re.search(r'class="num"[^>]*>\s*0', row)
        assert len(re.findall(rf'class="num"[^>]*>{units.DASH}', row)) == 8
        assert "never" in row


def _only(index: int, value: float) -> Callable[[str, int], float | None]:
    return lambda _, gpu: value if gpu == index else None


def test_a_node_without_gpus_shows_its_host(viewer: Client, small: SmallFleet, bare: Node) -> None:
    host = HostColumns(
        ts=[time.time()],
        cpu_util=[37.5],
        mem_used=[8 * 2**30],
        mem_total=[64 * 2**30],
        net_rx_bytes_per_s=[2.5e6],
        psi_io=[1.5],
    )
    batch(small, nodes=[NodeReport(node="build-host", host=host)])
    text = text_of(opened(viewer, bare))
    assert "build-host · CPU 38 % · memory 8.0 of 64.0 GiB" in text
    assert f"network in, out 20.0 Mbit/s, {units.DASH}" in text
    assert "CPU, % 37.5 37.5 37.5" in text
    assert "GPUs 0" not in text


def test_a_node_known_by_its_meter_alone_shows_its_power(
    viewer: Client, small: SmallFleet, bare: Node
) -> None:
    Meter.objects.create(name="m", node=bare)
    batch(small, meters=MeterColumns(ts=[time.time() - 120], meter=["m"], power_w=[4200.0]))
    batch(small, meters=MeterColumns(ts=[time.time()], meter=["m"], power_w=[4200.0]))
    text = text_of(opened(viewer, bare))
    assert "build-host · 4.2 kW" in text
    assert "Power of the node, kW 4.20 4.20 4.20" in text


def test_a_name_of_200_characters_is_shown_whole_on_demand(
    viewer: Client, small: SmallFleet
) -> None:
    node = Node.objects.create(name="<b>" + "n" * 197, rack=small.racks["oslo/A01"])
    html = opened(viewer, node)
    assert f'title="&lt;b&gt;{"n" * 197}"' in html
    assert "<b>nnn" not in html


def test_a_poll_of_what_is_shown_already_swaps_nothing(
    viewer: Client, small: SmallFleet, node: Node
) -> None:
    small.report(at=time.time() - 600)
    html = opened(viewer, node)
    paths = re.findall(r'hx-get="(/live/nodes/[^"]+)"', html)
    assert len(paths) == 3
    for path in paths:
        assert viewer.get(path.replace("&amp;", "&")).status_code == 204
