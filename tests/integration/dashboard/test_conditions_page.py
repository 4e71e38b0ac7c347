"""The Site conditions pages and their live panels."""

from __future__ import annotations

import re
from datetime import datetime
from html import unescape
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from dashboard import moments
from fleet import snapshot
from fleet.models import CoolingZone, Link, PowerDomain, Rack, Site
from policies.headroom.models import ForecastScore
from policies.headroom.scores import BINS
from tests.builders.accounts import client_of
from tests.builders.fleet import SmallFleet, small_fleet
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/conditions/"
OSLO = "/conditions/oslo/"


def opened(viewer: Client, path: str = OSLO) -> str:
    snapshot.invalidate()
    moments.invalidate()
    response = viewer.get(path)
    assert response.status_code == 200
    return html_of(response)


def this_hour() -> datetime:
    return timezone.now().replace(minute=0, second=0, microsecond=0)


def section(html: str, title: str) -> str:
    """Return the text of the panel that ``title`` (an id without "-title") is the heading of."""
    start = html.index(f'aria-labelledby="{title}-title"')
    return text_of("<" + html[start : html.index("</section>", start)])


@pytest.fixture
def busy(small: SmallFleet) -> SmallFleet:
    """Oslo's rack A01 draws more than its budget, and is hot; the rest is at work."""
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(budget_w=5000)
    small.report(
        power_w=lambda node, _: 650.0 if node.startswith("oslo-a01") else 400.0,
        temp_c=lambda node, gpu: 80.0 if (node, gpu) == ("oslo-a01-n1", 3) else 60.0,
        links={"oslo/A01/uplink": 9e10},
    )
    return small


@pytest.mark.parametrize("path", [URL, OSLO, "/live/conditions", "/live/conditions/oslo"])
def test_nobody_sees_it_without_logging_in(client: Client, small: SmallFleet, path: str) -> None:
    assert client.get(path).status_code == 302


def test_an_empty_inventory_says_how_to_fill_it(viewer: Client) -> None:
    text = text_of(opened(viewer, URL))
    assert "No site yet: the inventory is empty." in text
    assert "manage.py fleet apply fleet.yaml" in text


def test_each_site_has_its_sentence_and_its_line(viewer: Client, busy: SmallFleet) -> None:
    html = opened(viewer, URL)
    text = text_of(html)
    assert "bergen takes jobs of up to" in text
    assert "exceeded. It takes jobs of up to" in text
    assert re.findall(r'href="(/conditions/\w+/)" title="(?:bergen|oslo):', html) == [
        "/conditions/bergen/",
        "/conditions/oslo/",
    ]
    assert "RackPowerHeadroom" in text


def test_of_many_sites_one_sentence_tells(viewer: Client) -> None:
    small_fleet(sites=[f"site-{i:02}" for i in range(6)], rows=("A",), racks_per_row=1).report()
    text = text_of(opened(viewer, URL))
    assert re.search(r"6 sites [\d.]+ kW of [\d.]+ · no limit exceeded · fullest: site-\d\d", text)


def test_what_is_over_comes_first_with_its_numbers_and_way_out(
    viewer: Client, busy: SmallFleet
) -> None:
    html = opened(viewer)
    assert re.search(r'<h1 class="answer">At oslo \w+ limits? (is|are) exceeded', html)
    follows = section(html, "follows")
    assert "now Rack oslo/A01 carries" in follows
    assert "it is within it once GPUs there are capped at" in follows
    assert re.search(r"RackPowerHeadroom: needs [\d.]+ kW, has 5\.00 kW, short [\d.]+ kW", follows)


def test_a_way_out_leads_to_the_form_for_those_who_may(viewer: Client, busy: SmallFleet) -> None:
    assert "/restrictions/new/?kind" not in opened(viewer)
    html = opened(client_of(Role.OPERATOR))
    link = re.search(r'href="(/restrictions/new/\?kind=power_cap_w[^"]+)"', html)
    assert link is not None
    form = html_of(client_of(Role.OPERATOR).get(link[1].replace("&amp;", "&")))
    assert 'value="oslo/A01"' in form
    assert '<option value="power_cap_w" selected>' in form


def test_every_budget_has_three_readings_and_its_one_constraint(
    viewer: Client, busy: SmallFleet
) -> None:
    html = opened(viewer)
    power = section(html, "power")
    assert "committed, kW measured, kW enforced, kW budget, kW" in power
    for reading in ("load", "measured", "enforced"):
        assert f'class="bar-{reading}"' in html
    racks = section(html, "racks")
    # The tightest comes first, and says what binds it in a sentence.
    assert re.search(r"A01 .*?RackPowerHeadroom short Rack oslo/A01 carries [\d.]+ kW of", racks)
    assert "FeedRedundancy" in power


def test_the_failover_of_a_pair_is_said(viewer: Client, busy: SmallFleet) -> None:
    PowerDomain.objects.filter(site__name="oslo", kind="feed").update(capacity_w=20_000)
    power = section(opened(viewer), "power")
    assert re.search(
        r"If feed-\w1 fails, feed-\w1 carries [\d.]+ kW of 16\.0: [\d.]+ kW over", power
    )


def test_heat_cooling_and_links_are_told(viewer: Client, busy: SmallFleet) -> None:
    html = opened(viewer)
    assert "80.0" in section(html, "racks")
    assert "hall-1" in section(html, "cooling")
    assert "90 % 720 Gbit/s 800 Gbit/s" in section(html, "links")
    assert "link oslo/A01/uplink is used to 90 %" in section(html, "follows").replace("L", "l")


def test_before_the_first_reading_it_says_so(viewer: Client, small: SmallFleet) -> None:
    for path in (URL, OSLO):
        html = opened(viewer, path)
        assert "has come yet: loads" in text_of(html)
        assert "never heard" in text_of(html)


def test_what_the_inventory_lacks_is_said(viewer: Client, small: SmallFleet) -> None:
    Rack.objects.update(feed_a=None, feed_b=None, cooling_zone=None)
    PowerDomain.objects.filter(parent__isnull=False).delete()
    for model in (PowerDomain, CoolingZone, Link):
        model.objects.all().delete()
    text = text_of(opened(viewer))
    for words in ("No power domains", "No cooling zones", "No links in the inventory"):
        assert words in text


def test_a_site_without_racks_says_so(viewer: Client, small: SmallFleet) -> None:
    Site.objects.create(name="empty")
    text = text_of(opened(viewer, "/conditions/empty/"))
    assert "No racks at this site" in text
    assert "empty takes no job" in text


def test_the_forecast_says_how_far_such_forecasts_were_off(
    viewer: Client, busy: SmallFleet
) -> None:
    assert "No forecast has been compared" in section(opened(viewer), "forecast")
    histogram = [0] * BINS
    histogram[34] = 40
    for kind, horizon_s in (("site", 300), ("rack", 300)):
        ForecastScore.objects.create(
            kind=kind, horizon_s=horizon_s, hour=this_hour(), count=40,
            error_sum_w=400.0, load_sum_w=4e6, histogram=histogram,
        )  # fmt: skip
    forecast = section(opened(viewer), "forecast")
    assert re.search(
        r"in 5 min [\d.]+ [\d.]+ 0\.13 half were off by at most 0\.13 kW, of 40", forecast
    )
    assert "rack 5 40 0.13 0.13 0 % 0.01" in forecast


def test_lists_are_whole_on_request_and_in_the_url(viewer: Client) -> None:
    small_fleet(sites=("oslo",), rows=("A", "B"), racks_per_row=60, nodes_per_rack=1)
    html = opened(viewer)
    assert "the 12 tightest of 120" in text_of(html)
    assert 'href="?show=racks"' in html
    whole = opened(viewer, f"{OSLO}?show=racks")
    assert len(re.findall(r'id="rack-\d+"', whole)) == 100
    assert 'aria-labelledby="links-title"' not in whole
    assert len(re.findall(r'id="rack-\d+"', opened(viewer, f"{OSLO}?show=racks&page=2"))) == 20
    (poll,) = re.findall(r'hx-get="([^"]+)"', whole)
    assert poll.endswith("&amp;show=racks&amp;page=1")


@pytest.mark.parametrize("name", ["rows", "domains", "racks", "zones", "links"])
def test_each_list_is_shown_by_itself(viewer: Client, busy: SmallFleet, name: str) -> None:
    html = opened(viewer, f"{OSLO}?show={name}")
    assert len(re.findall(r'<section class="panel"', html)) == 1
    assert 'id="show-few" href="/conditions/oslo/"' in html


@pytest.mark.parametrize("query", ["?show=gremlins", "?show=racks&page=%FE", "?page=99999999999"])
def test_odd_queries_show_the_page(viewer: Client, busy: SmallFleet, query: str) -> None:
    opened(viewer, OSLO + query)


@pytest.mark.parametrize("path", ["/conditions/nowhere/", "/live/conditions/%3Cb%3E"])
def test_a_site_that_is_none_is_not_found(viewer: Client, small: SmallFleet, path: str) -> None:
    assert viewer.get(path).status_code == 404


def test_names_are_escaped_and_long_ones_are_fine(viewer: Client, small: SmallFleet) -> None:
    name = '<b title="x">?&#' + "w" * 180
    Site.objects.filter(name="oslo").update(name=name)
    Rack.objects.filter(pk=small.racks["oslo/A01"].pk).update(name=name)
    html = opened(viewer, URL)
    (path,) = re.findall(r'id="site-1" href="([^"]+)"', html)
    html += opened(viewer, unescape(path))
    assert '<b title="x">' not in html
    assert "&lt;b title=&quot;x&quot;&gt;" in html


@pytest.mark.parametrize("path", ["/live/conditions", "/live/conditions/oslo"])
def test_a_poll_answers_with_nothing_while_nothing_changed(
    viewer: Client, busy: SmallFleet, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moments, "_SERVES_S", 1e10)
    moments.invalidate()
    html = html_of(viewer.get(path))
    (poll,) = re.findall(r'hx-get="([^"]+)"', html)
    assert viewer.get(poll.replace("&amp;", "&")).status_code == 204
    assert viewer.get(path + "?v=1-2").status_code == 200


def test_many_viewers_cost_no_more_queries(
    viewer: Client,
    busy: SmallFleet,
    django_assert_max_num_queries: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moments, "_SERVES_S", 1e10)
    opened(viewer)
    with django_assert_max_num_queries(3):  # session, user, generation of the inventory
        viewer.get("/live/conditions/oslo")


def test_caps_in_force_count(viewer: Client, busy: SmallFleet) -> None:
    operator = client_of(Role.OPERATOR)
    given = {"kind": "power_cap_w", "scope_kind": "site", "scope": "bergen", "value": "400",
             "lasts": "3600", "reason": "hot day"}  # fmt: skip
    assert takes_kw(opened(viewer, "/conditions/bergen/"), "A") > 2
    assert operator.post("/restrictions/new/", given).status_code == 302
    # GPUs that draw what they may take no more.
    assert takes_kw(opened(viewer, "/conditions/bergen/"), "A") == 0


def takes_kw(html: str, row: str) -> float:
    """Return the largest job of a row, which comes after its racks and GPUs."""
    found = re.search(rf" {row} \d+ \d+ ([\d.]+) ", section(html, "rows"))
    assert found is not None
    return float(found[1])
