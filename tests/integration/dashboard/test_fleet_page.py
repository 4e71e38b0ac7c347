"""The Fleet page, and the data that keeps it live."""

from __future__ import annotations

import gzip
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
import zstandard
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from accounts.roles import Role
from admission.allocation import open_attempts
from dashboard import live, moments, sites, state
from dashboard.scale import OVER
from dashboard.tightest import Soonest
from fleet.models import CoolingZone, Rack, Site
from telemetry.directory import invalidate_scopes
from telemetry.models import Agent
from telemetry.summary import DIMENSIONS
from tests.builders.accounts import make_user
from tests.builders.agents import make_agent
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.policies import lower_budget
from tests.html import html_of

WORDS = (*DIMENSIONS, *live.SHARED)
PAGES = ["/", "/live/pulse", "/live/fleet", "/live/fleet/panel"]


def page(client: Client, url: str = "/") -> str:
    state.invalidate()
    response = client.get(url)
    assert response.status_code == 200
    return html_of(response)


def racks(client: Client, url: str = "/live/fleet") -> dict[str, list[Any]]:
    state.invalidate()
    body: dict[str, dict[str, list[Any]]] = client.get(url).json()
    return body["racks"]


def cell_of(html: str, rack: Rack) -> str:
    found = re.search(rf'<a class="[^"]*" href="/racks/{rack.pk}/".*?</a>', html)
    assert found is not None
    return found[0]


def answer_of(html: str) -> str:
    found = re.search(r'<h1 class="answer">(.*?)</h1>', html, re.DOTALL)
    assert found is not None
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", found[1])).strip()


def test_of_readings_that_are_old_it_says_not_that_nothing_throttles(
    viewer: Client, small: SmallFleet
) -> None:
    small.report(at=time.time() - 3600, throttle=0x24)
    html = page(viewer)
    assert "what throttles is not known" in answer_of(html)
    assert "nothing throttling" not in html
    rack = page(viewer, f"/racks/{small.racks['oslo/A01'].pk}/")
    assert "what throttles is not known" in answer_of(rack)
    assert "sw_power_cap" not in answer_of(rack)


@pytest.mark.parametrize("url", PAGES)
def test_nobody_sees_it_without_logging_in(client: Client, url: str) -> None:
    response = client.get(url)
    assert response.status_code == 302
    assert response["Location"].startswith("/login/")


@pytest.mark.parametrize("url", PAGES)
def test_a_user_who_was_switched_off_does_not_see_it(
    client: Client, small: SmallFleet, url: str
) -> None:
    user = make_user(Role.VIEWER)
    client.force_login(user)
    user.is_active = False
    user.save()
    assert client.get(url).status_code == 302


@pytest.mark.parametrize("url", PAGES)
def test_it_only_reads(viewer: Client, url: str) -> None:
    assert viewer.post(url).status_code == 405


def test_the_first_visit_says_what_it_shows_and_how_to_add_a_node(viewer: Client) -> None:
    html = page(viewer)
    assert "No racks yet" in html
    assert "manage.py fleet apply fleet.yaml" in html
    assert "headroom agent --server http://testserver" in html
    assert 'id="heatmap"' not in html


def test_racks_that_never_reported_are_unknown(viewer: Client, small: SmallFleet) -> None:
    html = page(viewer)
    assert html.count('class="cell unknown"') == len(small.racks)
    assert "no reading has come yet" in html
    assert set(racks(viewer)["level"]) == {13}


def test_the_answer_has_the_numbers_of_each_site(viewer: Client, small: SmallFleet) -> None:
    small.report(power_w=700.0)
    small.report(power_w=350.0, only=[n for n in small.nodes if n.startswith("bergen")])
    answer = answer_of(page(viewer))
    # 48 GPUs at 700 W and 12 hosts at their rated 2 kW.
    assert "oslo 57.6 kW of 72.0 (80 %)" in answer
    # Half the GPU power, and hosts half-way between idle and rated.
    assert "bergen 32.4 kW of 72.0 (45 %)" in answer
    assert "nothing throttling · no agent stale" in answer


def test_the_tightest_thing_is_named_whatever_its_dimension(
    viewer: Client, small: SmallFleet
) -> None:
    hot = small.nodes_of("oslo/A02")
    small.report(temp_c=lambda node, _: 91.0 if node in hot else 60.0)
    assert "tightest: rack A02, 4 °C over its slowdown limit" in answer_of(page(viewer))


def test_a_cooling_zone_that_carries_off_too_much_is_the_tightest(
    viewer: Client, small: SmallFleet
) -> None:
    CoolingZone.objects.filter(site=small.sites["oslo"]).update(capacity_w=50_000.0)
    invalidate_scopes()
    small.report(power_w=700.0)
    assert "tightest: cooling of zone hall-1, 7.6 kW over" in answer_of(page(viewer))


def test_a_site_and_its_feeds_go_by_what_restrictions_leave(
    viewer: Client, small: SmallFleet
) -> None:
    small.report(power_w=700.0)
    lower_budget("site", "oslo", 48_000)
    lower_budget("power_domain", "oslo/feed-a1", 20_000)
    html = page(viewer)
    # All racks have two feeds: each carries half of the site.
    assert "oslo 57.6 kW of 48.0 (120 %) · tightest: feed-a1, 8.8 kW over" in answer_of(html)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))
    assert "a restriction leaves 48.0 kW" in text
    assert "28.8 of 20.0 kW 8.8 kW over" in text
    assert text.count("restriction leaves") == 1


def test_a_pair_that_one_half_could_not_carry_is_the_tightest(
    viewer: Client, small: SmallFleet
) -> None:
    small.report(power_w=700.0)
    lower_budget("power_domain", "oslo/feed-a1", 50_000)
    html = page(viewer)
    # Each half carries 28.8 kW, one alone 57.6.
    assert "tightest: feed-a1 if feed-b1 fails, 7.6 kW over" in answer_of(html)
    assert re.search(r'class="bad"\s*>7\.6 kW over', html)
    columns = racks(viewer, "/live/fleet?site=oslo")
    assert (set(columns["level"]), set(columns["tightest"])) == ({OVER}, {-15})
    assert {WORDS[code] for code in columns["dimension"]} == {"its feed if the other fails"}


def test_all_racks_of_a_zone_that_is_over_are_red(viewer: Client, small: SmallFleet) -> None:
    CoolingZone.objects.filter(site=small.sites["oslo"]).update(capacity_w=50_000.0)
    invalidate_scopes()
    small.report(power_w=700.0)
    columns = racks(viewer, "/live/fleet?site=oslo")
    assert (set(columns["level"]), set(columns["tightest"])) == ({OVER}, {-15})
    assert {WORDS[code] for code in columns["dimension"]} == {"its cooling zone"}
    assert OVER not in racks(viewer, "/live/fleet?site=bergen")["level"]


def test_a_budget_that_is_claimed_to_be_exceeded_is_told_in_red(
    viewer: Client, small: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.report()
    when = "between 14:20 and 14:50 UTC (8 of 10)"
    zone = Soonest("zone hall-1", "/places/zone/oslo/hall-1/", when)
    monkeypatch.setattr(sites, "soonest_at", lambda _view, row: zone if row else None)
    html = re.sub(r"\s+", " ", page(viewer))
    assert f"zone hall-1 would be over {when}" in answer_of(html)
    assert 'class="bad" href="/places/zone/oslo/hall-1/"' in html


def test_of_many_sites_the_tightest_place_of_all_is_told(viewer: Client, small: SmallFleet) -> None:
    for name in ("narvik", "tromso", "alta"):
        Site.objects.create(name=name)
    hot = small.nodes_of("oslo/A02")
    small.report(temp_c=lambda node, _: 91.0 if node in hot else 60.0)
    answer = answer_of(page(viewer))
    assert "5 sites" in answer
    assert "tightest: oslo, rack A02, 4 °C over its slowdown limit" in answer


def test_throttling_and_stale_agents_are_counted_by_site(viewer: Client, small: SmallFleet) -> None:
    small.report(throttle=lambda node, gpu: 0x4 if node == "oslo-a01-n1" and gpu < 2 else 0)
    heard = datetime.now(UTC) - timedelta(hours=1)
    silent, _ = make_agent("silent", nodes=[small.nodes["bergen-a01-n1"]])
    Agent.objects.filter(pk=silent.pk).update(last_seen_at=heard)
    revoked, _ = make_agent("revoked", sites=[small.sites["oslo"]])
    Agent.objects.filter(pk=revoked.pk).update(last_seen_at=heard, revoked_at=heard)
    answer = answer_of(page(viewer))
    assert re.search(r"bergen .* nothing throttling · 1 agent stale", answer)
    assert re.search(r"oslo .* 1 rack throttling, 1 unexpectedly · no agent stale", answer)


def test_what_a_lowered_limit_slows_is_told_as_expected(viewer: Client, small: SmallFleet) -> None:
    small.report(throttle=lambda node, gpu: 0x4 * (gpu < 2), power_limit_w=400.0)
    html = page(viewer)
    assert "6 racks throttling, none unexpectedly" in answer_of(html)
    assert "all expected" in html


def test_a_cell_has_the_level_of_its_rack_and_says_it(viewer: Client, small: SmallFleet) -> None:
    small.report(power_w=100.0, temp_c=60.0)
    over = small.nodes_of("oslo/A01")
    small.report(power_w=1400.0, only=over)
    html = page(viewer, "/?metric=power")
    cell = cell_of(html, small.racks["oslo/A01"])
    assert 'class="cell over"' in cell
    assert 'aria-label="A01 −3.2 kW of the budget left, over"' in cell  # noqa: RUF001
    assert 'class="cell m8"' in cell_of(html, small.racks["oslo/A02"])


def test_stale_racks_are_hatched_and_partly_stale_ones_marked(
    viewer: Client, small: SmallFleet
) -> None:
    small.report(at=time.time() - 600)
    small.report(only=["oslo-a01-n1", *small.nodes_of("oslo/A02")])
    html = page(viewer, "/?metric=heat")
    assert "part-stale" in cell_of(html, small.racks["oslo/A01"])
    assert "1 node stale" in cell_of(html, small.racks["oslo/A01"])
    assert "stale" not in cell_of(html, small.racks["oslo/A02"])
    assert 'class="cell stale"' in cell_of(html, small.racks["oslo/A03"])


@pytest.mark.parametrize(
    ("metric", "values", "level", "value"),
    [
        ("heat", {"temp_c": 77.0}, 2, 10),
        ("clocks", {"sm_mhz": 990.0}, 5, 50),
        ("throttle", {"throttle": 0x4}, 0, 8),
        ("power", {"power_w": 700.0}, 2, 2.4),
        ("tightest", {"temp_c": 82.0}, 1, 10),
    ],
)
def test_each_metric_colors_by_its_own_margin(
    viewer: Client,
    small: SmallFleet,
    metric: str,
    values: dict[str, Any],
    level: int,
    value: float,
) -> None:
    small.report(**values)
    columns = racks(viewer, f"/live/fleet?metric={metric}&site=oslo")
    assert set(columns["level"]) == {level}
    assert set(columns["value"]) == {value}


def test_links_show_the_busiest_of_the_rack(viewer: Client, small: SmallFleet) -> None:
    small.report(links={"oslo/A01/uplink": 7.5e10, "oslo/A02/uplink": 0.0})
    columns = racks(viewer, "/live/fleet?metric=links&site=oslo")
    assert columns["value"][:3] == [25, 100, None]


def test_age_goes_from_now_to_stale(viewer: Client, small: SmallFleet) -> None:
    small.report(at=time.time() - 15)
    columns = racks(viewer, "/live/fleet?metric=age")
    assert set(columns["level"]) <= {4, 5}
    assert 14.5 < columns["value"][0] < 20


def test_an_unknown_metric_is_the_default_and_an_unknown_site_is_not_found(
    viewer: Client, small: SmallFleet
) -> None:
    assert 'aria-current="true">Tightest' in page(viewer, "/?metric=nonsense")
    assert viewer.get("/?site=atlantis").status_code == 404
    assert viewer.get("/live/fleet?site=atlantis").status_code == 404


def test_a_site_that_has_just_come_is_found(viewer: Client, small: SmallFleet) -> None:
    assert viewer.get("/live/fleet").status_code == 200
    Site.objects.create(name="tromso")
    assert viewer.get("/live/fleet?site=tromso").status_code == 200


def test_the_site_filter_holds_for_everything_on_the_page(
    viewer: Client, small: SmallFleet
) -> None:
    html = page(viewer, "/?site=oslo")
    assert html.count('data-rack="') == 6
    assert "bergen" not in answer_of(html)
    assert 'aria-label="Site bergen"' not in html
    assert len(racks(viewer, "/live/fleet?site=oslo")["id"]) == 6


def test_the_poll_gives_what_the_page_showed(viewer: Client, small: SmallFleet) -> None:
    small.report()
    columns = racks(viewer)
    html = page(viewer)
    assert [int(i) for i in re.findall(r'data-rack="(\d+)"', html)] == columns["id"]
    assert {len(column) for column in columns.values()} == {len(small.racks)}


def test_the_poll_is_304_until_something_changes(viewer: Client, small: SmallFleet) -> None:
    small.report()
    state.invalidate()
    first = viewer.get("/live/fleet")
    same = viewer.get("/live/fleet", headers={"If-None-Match": first["ETag"]})
    assert same.status_code == 304
    assert same.content == b""
    small.report(temp_c=70.0)
    state.invalidate()
    changed = viewer.get("/live/fleet", headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert changed["ETag"] != first["ETag"]


def test_ages_advance_when_no_reading_comes(
    viewer: Client, small: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.report()
    now = time.time()
    monkeypatch.setattr("dashboard.state.time.time", lambda: now)
    first = viewer.get("/live/fleet?metric=age")
    monkeypatch.setattr("dashboard.state.time.time", lambda: now + 60)
    later = viewer.get("/live/fleet?metric=age", headers={"If-None-Match": first["ETag"]})
    assert later.status_code == 200
    assert set(later.json()["racks"]["level"]) == {12}


def test_the_inventory_has_its_say_in_the_version(viewer: Client, small: SmallFleet) -> None:
    from fleet import snapshot

    small.report()
    state.invalidate()
    first = viewer.get("/live/fleet")
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).delete()
    snapshot.invalidate()
    state.invalidate()
    after = viewer.get("/live/fleet", headers={"If-None-Match": first["ETag"]})
    assert after.status_code == 200
    assert after.json()["generation"] != first.json()["generation"]


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, br, zstd", "zstd"),
        ("gzip", "gzip"),
        ("br", ""),
        ("", ""),
        ("zstd;q=0, gzip", "gzip"),
    ],
)
def test_the_poll_is_compressed_as_the_client_likes(
    viewer: Client, small: SmallFleet, accepted: str, encoding: str
) -> None:
    small.report()
    state.invalidate()
    response = viewer.get("/live/fleet", headers={"Accept-Encoding": accepted})
    assert response.get("Content-Encoding", "") == encoding
    assert "Accept-Encoding" in response["Vary"]
    raw = response.content
    if encoding == "zstd":
        raw = zstandard.ZstdDecompressor().decompress(raw)
    elif encoding == "gzip":
        raw = gzip.decompress(raw)
    assert len(msgspec.json.decode(raw)["racks"]["id"]) == len(small.racks)


def test_the_panel_is_204_until_something_changes(viewer: Client, small: SmallFleet) -> None:
    small.report()
    html = page(viewer)
    found = re.search(r'hx-get="(/live/fleet/panel[^"]+)"', html)
    assert found is not None
    assert viewer.get(found[1]).status_code == 204
    small.report(power_w=100.0)
    state.invalidate()
    panel = viewer.get(found[1])
    assert panel.status_code == 200
    assert b'id="power-tree"' in panel.content
    assert b'hx-swap-oob="true"' in panel.content


def test_the_power_tree_says_what_one_side_carries_alone(viewer: Client, small: SmallFleet) -> None:
    small.report(power_w=700.0)
    html = page(viewer, "/?site=oslo")
    tree = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html[html.index('id="power-tree"') :]))
    # Each side carries half of 57.6 kW, of 72 kW derated by 0.8.
    assert "feed-a1 28.8 of 57.6 kW 28.8 kW left if feed-b1 fails: 57.6 kW here, 0.0 kW" in tree
    assert html.count("<ul") == html.count("</ul>")
    assert len(re.findall(r"<li\b", html)) == html.count("</li>")


def test_the_pulse_tells_the_newest_reading(viewer: Client, small: SmallFleet) -> None:
    assert viewer.get("/live/pulse").json()["newest"] is None
    at = time.time() - 3
    small.report(at=at)
    state.invalidate()
    body = viewer.get("/live/pulse").json()
    assert body["newest"] == pytest.approx(at, abs=0.01)
    assert body["now"] == pytest.approx(time.time(), abs=2)


def test_names_are_escaped(viewer: Client, small: SmallFleet) -> None:
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(name='<b title="x">' + "w" * 180)
    html = page(viewer)
    assert '<b title="x">' not in html
    assert "&lt;b title=&quot;x&quot;&gt;" in html


def test_many_viewers_cost_no_more_queries(
    viewer: Client,
    small: SmallFleet,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    small.report()
    page(viewer)
    with django_assert_max_num_queries(3):  # session, user, generation of the inventory
        viewer.get("/live/fleet")
    with django_assert_max_num_queries(3):
        viewer.get("/live/fleet?metric=heat")


def test_a_rack_carries_what_admitted_jobs_have_reserved(viewer: Client, small: SmallFleet) -> None:
    small.report()
    rack = Rack.objects.get(site__name="oslo", name="A01")
    place = list(Rack.objects.order_by("site__name", "row", "position", "name")).index(rack)
    before_kw = racks(viewer)["load_kw"][place]
    node = rack.nodes.order_by("name")[0].name
    phase = make_job(state="running").phases.get()
    make_attempt(phase, {node: range(4)}, racks=["oslo/A01"], placement={"peak_w": {node: 4500.0}})
    moments.invalidate()
    open_attempts.invalidate()
    # Of two nodes that draw 3 kW each.
    assert (before_kw, racks(viewer)["load_kw"][place]) == (6.0, 7.5)


def test_a_rack_is_over_its_budget_by_what_it_draws_alone(
    viewer: Client, small: SmallFleet
) -> None:
    small.report()
    rack = Rack.objects.get(site__name="oslo", name="A01")
    place = list(Rack.objects.order_by("site__name", "row", "position", "name")).index(rack)
    node = rack.nodes.order_by("name")[0].name
    phase = make_job(state="running").phases.get()
    make_attempt(phase, {node: range(4)}, racks=["oslo/A01"], placement={"peak_w": {node: 9500.0}})
    moments.invalidate()
    open_attempts.invalidate()
    assert racks(viewer)["load_kw"][place] == 12.0


def order_of(html: str) -> list[int]:
    return [int(i) for i in re.findall(r'data-rack="(\d+)"', html)]


def test_the_worst_racks_come_first_on_request_and_their_rows_and_sites_with_them(
    viewer: Client, small: SmallFleet
) -> None:
    degrees = {"oslo/B02": 84.0, "oslo/B01": 80.0, "oslo/A03": 79.0}
    temps = {n: t for rack, t in degrees.items() for n in small.nodes_of(rack)}
    small.report(temp_c=lambda node, _: temps.get(node, 60.0))
    html = page(viewer, "/?metric=heat&order=worst")
    first = [small.racks[each].pk for each in ("oslo/B02", "oslo/B01", "oslo/B03", "oslo/A03")]
    assert order_of(html)[:4] == first
    assert sorted(order_of(html)) == sorted(order_of(page(viewer, "/?metric=heat")))
    assert "In the order of" in html
    assert "?metric=power&amp;order=worst" in html
    assert order_of(page(viewer, "/?order=nonsense")) == racks(viewer)["id"]


def test_racks_of_which_nothing_is_known_come_last(viewer: Client, small: SmallFleet) -> None:
    small.report(only=small.nodes_of("oslo/B03"))
    html = page(viewer, "/?metric=heat&order=worst&site=oslo")
    assert order_of(html)[0] == small.racks["oslo/B03"].pk


def test_each_row_tells_its_load_and_what_its_tightest_rack_has_left(
    viewer: Client, small: SmallFleet
) -> None:
    hot = small.nodes_of("oslo/A02")
    small.report(power_w=400.0, temp_c=lambda node, _: 91.0 if node in hot else 60.0)
    html = page(viewer, "/?site=oslo")
    # Three racks of 6 kW, of 12 each.
    assert re.findall(r'<p class="row-sum">([^<]+)</p>', html) == [
        "18.0 of 36.0 kW · tightest 8 % over",
        "18.0 of 36.0 kW · tightest 38 % left",
    ]


def test_a_site_tells_the_cooling_zones_with_the_least_left(
    viewer: Client, small: SmallFleet
) -> None:
    site = small.sites["oslo"]
    CoolingZone.objects.filter(site=site).update(capacity_w=30_000.0)
    for number in range(4):
        CoolingZone.objects.create(site=site, name=f"spare-{number}", capacity_w=1e6)
    invalidate_scopes()
    small.report(power_w=400.0)
    html = page(viewer, "/?site=oslo")
    told = re.findall(r'id="tile-\d+-zone-\d"\s+href="([^"]+)"', html)
    assert told[0] == "/places/zone/oslo/hall-1/"
    assert len(told) == 3
    assert re.search(r'nowrap bad"\s*>6\.0 kW over', html)
    assert '?show=zones"' in html


def test_a_large_power_tree_is_collapsed_below_what_feeds_a_site(
    viewer: Client, small: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.report(power_w=700.0)
    lower_budget("power_domain", "oslo/feed-b1", 20_000)
    monkeypatch.setattr(sites, "MOST_DOMAINS", 5)
    html = page(viewer)
    tree = re.sub(r"\s+", " ", html[html.index('id="power-tree"') :])
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", tree))
    assert "3 power domains" not in words
    assert "2 power domains below, tightest: feed-b1 , 8.8 kW over" in words
    assert 'href="/places/power_domain/oslo/feed-b1/"' in tree
    assert "feed-a1 28.8 of" not in words
    # One site alone is small enough.
    alone = page(viewer, "/?site=oslo")
    assert "power domains below" not in alone
