"""Lines of the condition pages, and what they say in words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dashboard import conditions
from dashboard.templatetags import headroom_words as words
from policies.headroom.evaluate import Headroom
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays
from tests.unit.policies.headroom.scenes import all_read, headroom_of

RACK, DOMAIN = ScopeKind.RACK, ScopeKind.POWER_DOMAIN


@pytest.fixture
def headroom() -> Headroom:
    """Two sites of four racks; the last rack of the first site draws most."""
    fleet = make_arrays(sites=2, racks=4)
    power_w = np.where(np.arange(len(fleet.gpus)) // 16 == 3, 690.0, 300.0)
    return headroom_of(fleet, all_read(fleet, power_w=power_w))


def test_a_line_has_its_columns_what_binds_it_and_three_readings(headroom: Headroom) -> None:
    (line,) = conditions.lines(headroom, RACK, [3])
    assert line["bound"].token == line["binding"]
    assert line["power_load_w"] >= line["power_measured_w"] > 0
    assert line["enforced_w"] > 0
    assert line["power_headroom_w"] == line["power_budget_w"] - line["power_load_w"]


def test_the_tightest_rack_comes_first(headroom: Headroom) -> None:
    site = str(headroom.fleet.sites.names[0])
    rows = conditions.of_site(headroom, RACK, site)
    left = headroom.table(RACK).columns["tightest"][conditions.tightest_first(headroom, RACK, rows)]
    assert left.tolist() == sorted(left.tolist())
    assert len(rows) == 4


def test_domains_are_a_tree_with_their_mates(headroom: Headroom) -> None:
    site = str(headroom.fleet.sites.names[0])
    placed = conditions.domain_tree(headroom, site)
    assert placed[0][1] == 0
    assert {row for row, _ in placed} == set(conditions.of_site(headroom, DOMAIN, site).tolist())
    worst = conditions.worst_failover(headroom, site)
    assert worst is not None
    lines = conditions.domain_lines(headroom, placed)
    assert worst["mate"] in [line["short_name"] for line in lines if line["depth"] > 0]


def test_limits_that_are_exceeded_are_counted(headroom: Headroom) -> None:
    sites = [str(name) for name in headroom.fleet.sites.names]
    cool = [conditions.over_count(headroom, site) for site in sites]
    over = headroom.what_if(np.full(len(headroom.fleet.gpus), 5000.0))
    assert all(
        conditions.over_count(over, s) > before for s, before in zip(sites, cool, strict=True)
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "\N{EN DASH}"), (math.nan, "\N{EN DASH}"), (math.inf, "\N{EN DASH}"), (-1, "now"),
        (0, "now"), (50, "50 s"), (1320, "22 min"), (86_399, "23 h 59 min"), (1e9, "over a day"),
    ],
)  # fmt: skip
def test_when_something_is_used_up_is_said(seconds: float | None, said: str) -> None:
    assert words.full_in(seconds) == said


def test_quantities_are_said_as_people_do() -> None:
    assert words.bits(12.5e9) == "12.5 Gbit/s"
    assert words.amount(math.nan, "W") == "\N{EN DASH}"
    assert words.kw_off(130) == "0.13"
    assert words.kw_off(23_700) == "23.7"
    assert words.per_minute(-5) == "\N{MINUS SIGN}300 W"
