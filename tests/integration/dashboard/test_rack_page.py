"""The Rack page and its live panel."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from django.test import Client

from dashboard import state
from fleet import snapshot
from fleet.models import CoolingZone, HardwareModel, Node, Rack
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.builders.policies import lower_budget
from tests.html import html_of

Opened = Callable[..., str]


@pytest.fixture
def opened(viewer: Client, small: SmallFleet) -> Opened:
    """Opens the page of a rack and returns its HTML."""

    def open_page(path: str = "oslo/A01", query: str = "") -> str:
        state.invalidate()
        response = viewer.get(f"/racks/{small.racks[path].pk}/{query}")
        assert response.status_code == 200
        return html_of(response)

    return open_page


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_nobody_sees_it_without_logging_in(client: Client, small: SmallFleet) -> None:
    pk = small.racks["oslo/A01"].pk
    assert client.get(f"/racks/{pk}/").status_code == 302
    assert client.get(f"/live/racks/{pk}").status_code == 302


def test_a_rack_that_is_not_there_is_not_found(viewer: Client) -> None:
    assert viewer.get("/racks/999999/").status_code == 404
    assert viewer.get("/live/racks/999999").status_code == 404


def test_the_answer_has_the_numbers(opened: Opened, small: SmallFleet) -> None:
    small.report(
        power_w=700.0, temp_c=lambda _, gpu: 70.0 + gpu, throttle=lambda _, gpu: 0x4 * (gpu == 3)
    )
    text = text_of(opened())
    # Two nodes of four GPUs at 700 W with hosts of 2 kW.
    assert "rack A01 · 9.6 of 12.0 kW · 2.4 kW left" in text
    assert re.search(r"2 of 8 GPUs throttling, 2 unexpectedly \(\s?sw_power_cap\s?\)", text)
    assert "hottest 73 °C , 14 °C to slowdown" in text.replace("°C,", "°C ,")


def test_its_budget_is_what_a_restriction_leaves(opened: Opened, small: SmallFleet) -> None:
    small.report(power_w=700.0)
    assert "leaves" not in text_of(opened())
    lower_budget("rack", "oslo/A01", 9_000)
    html = opened()
    assert "rack A01 · 9.6 of 9.0 kW · 0.6 kW over" in text_of(html)
    assert "a restriction leaves 9.0 of 12.0 kW" in text_of(html)
    assert 'data-budget-w="9000.0"' in html


def test_what_a_feed_carries_alone_is_what_headroom_says(opened: Opened, small: SmallFleet) -> None:
    # It hangs on one feed: what it draws moves nowhere.
    small.racks["oslo/A02"].feed_b = None
    small.racks["oslo/A02"].save()
    small.report(power_w=700.0)
    text = text_of(opened())
    rows = api_client().get("/api/v1/headroom?kind=power_domain").json()["rows"]
    for row in (each for each in rows if each["name"] in ("oslo/feed-a1", "oslo/feed-b1")):
        assert f"if the other side fails: {row['failover_load_w'] / 1000:.1f} kW here" in text


def test_the_elevation_links_every_node_and_gpu(opened: Opened, small: SmallFleet) -> None:
    small.report()
    html = opened()
    for name in small.nodes_of("oslo/A01"):
        node = small.nodes[name]
        assert f'id="node-{node.pk}" href="/nodes/{node.pk}/"' in html
        for gpu in node.gpus.all():
            assert f'href="/gpus/{gpu.pk}/"' in html


def test_gpus_are_colored_by_the_metric_of_the_url(opened: Opened, small: SmallFleet) -> None:
    small.report(temp_c=90.0, power_w=350.0, sm_mhz=990.0)
    assert 'class="gpu-box over"' in opened()
    assert 'class="gpu-box m5"' in opened(query="?metric=power")
    assert 'class="gpu-box m5"' in opened(query="?metric=clocks")
    assert 'class="gpu-box over"' in opened(query="?metric=nonsense")


def test_an_old_reading_over_the_limit_is_stale_and_not_over(
    opened: Opened, small: SmallFleet
) -> None:
    small.report(temp_c=95.0, at=time.time() - 300)
    html = opened()
    assert 'class="gpu-box stale"' in html
    assert 'class="gpu-box over"' not in html
    assert "2 nodes stale" in html


def test_a_rack_never_heard_from_says_so(opened: Opened, small: SmallFleet) -> None:
    assert "never heard from, rated load assumed" in opened()
    assert "rack A01 · 9.6 of 12.0 kW" in text_of(opened())


def test_feeds_say_what_they_carry_alone(opened: Opened, small: SmallFleet) -> None:
    small.report(power_w=700.0)
    text = text_of(opened())
    assert "A feed-a1" in text
    assert "if the other side fails:" in text


def test_open_throttle_events_are_listed_and_closed_ones_not(
    opened: Opened, small: SmallFleet
) -> None:
    now = time.time()
    small.report(at=now - 90, throttle=lambda n, g: 0x20 if n == "oslo-a01-n1" and g < 2 else 0)
    for age in (50, 10):
        small.report(
            at=now - age, throttle=lambda n, g: 0x20 if n == "oslo-a01-n1" and g < 1 else 0
        )
    html = opened()
    events = html[html.index('id="events-title"') :]
    assert events.count("cause-sw_thermal") == 1
    assert "oslo-a01-n1/gpu0" in events
    assert "No open throttle event" in opened("oslo/A02")


def test_a_rack_without_nodes_says_how_to_add_them(opened: Opened, small: SmallFleet) -> None:
    Node.objects.filter(rack=small.racks["oslo/A01"]).delete()
    assert "No nodes in this rack yet" in opened()


def test_the_panel_is_204_until_a_reading_comes(
    viewer: Client, opened: Opened, small: SmallFleet
) -> None:
    small.report()
    found = re.search(r'hx-get="(/live/racks/[^"]+)"', opened())
    assert found is not None
    url = found[1].replace("&amp;", "&")
    assert viewer.get(url).status_code == 204
    small.report(power_w=100.0)
    state.invalidate()
    response = viewer.get(url)
    assert response.status_code == 200
    for part in ("rack-panel", "rack-elevation", "rack-power", "rack-tables"):
        assert f'id="{part}"'.encode() in response.content


def test_a_rack_too_dense_for_its_cooling_says_by_how_much(
    opened: Opened, small: SmallFleet
) -> None:
    assert "Too dense" not in opened()
    CoolingZone.objects.update(kind="air")
    Rack.objects.update(budget_w=60_000.0)
    HardwareModel.objects.filter(kind="node").update(rated_w=20_000.0)
    snapshot.invalidate()
    text = text_of(opened())
    assert "Too dense: may give off 45.6 kW, and air cooling carries 30.0 kW" in text


def test_names_are_escaped_everywhere(opened: Opened, small: SmallFleet) -> None:
    bad = '"><img src=x>' + "n" * 150
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(name=bad)
    Node.objects.filter(name="oslo-a01-n1").update(name=bad)
    assert "<img" not in opened()
