"""The ways of those who use Headroom to their answers, with a stopwatch of clicks and seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings

from accounts.models import User
from accounts.roles import Role
from admission.cycle import holding
from admission.jobs.models import Job, Phase
from admission.outages.foreseeing import foresee
from dashboard import context, moments, outages, state, units
from fleet import snapshot
from fleet.models import CoolingZone
from policies import current, loop
from policies.incidents.models import Incident
from policies.restrictions.kinds import RestrictionKind
from policies.scopes import Scope, ScopeKind
from tests.browser.conftest import Visits
from tests.browser.stopwatch import Stopwatch, kilowatts_of
from tests.builders.begun import begin_anew
from tests.builders.fleet import HOST_IDLE_W, HOST_RATED_W, SmallFleet, small_fleet
from tests.builders.jobs import make_project
from tests.builders.policies import make_rule
from tests.integration.admission.cycle.scenes import cycle, idle, restrict, start
from tests.integration.admission.cycle.test_holding import Machines, ask

#: It asks for more GPUs than the two racks of its fleet have, and takes fewer.
_LARGE = """\
name: large
project: vision
class: low-power-experimentation
phases:
  - name: train
    gang: {gpus: 20}
    power: {expected_peak_w: 500}
    walltime_s: 3600
    command: [python, train.py]
"""


@pytest.fixture
def racks(transactional_db: None) -> Iterator[SmallFleet]:
    """Two racks of two nodes of four GPUs, on one pair of feeds and one cooling zone."""

    def forget() -> None:
        current.invalidate()
        begin_anew()
        holding.forget()

    forget()
    yield small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))
    forget()


@pytest.fixture
def idle_racks(racks: SmallFleet) -> SmallFleet:
    """The racks, idle; every machine runs jobs."""
    idle(racks)
    make_project("vision")
    return racks


# --- The ML engineer -----------------------------------------------------------------------------


def test_an_ml_engineer_submits_a_job_learns_why_it_waits_mends_it_and_sees_it_run(
    visits: Visits, idle_racks: SmallFleet
) -> None:
    watch = Stopwatch("from sign-on to the timeline of a job that waited", clicks=1)
    visitor = visits(Role.ML_USER)
    make_project("vision").members.add(User.objects.get(role=Role.ML_USER))
    page = visitor.page
    watch.click(page.get_by_role("link", name="Queue", exact=True))
    watch.click(page.get_by_role("link", name="submit a job"))
    page.get_by_label("The specification").fill(_LARGE.replace("gpus: 20", "gpu: 20"))
    problem = page.locator("#problems")
    expect(problem).to_contain_text("do you mean `gpus`?")
    expect(problem).to_contain_text("line 6")
    page.get_by_label("The specification").fill(_LARGE)
    expect(problem).to_contain_text("It can be submitted to vision")
    watch.click(page.get_by_role("button", name="Dry run"))
    expect(page.locator("#dry-run")).to_contain_text("It would wait")
    assert not Job.objects.exists()
    visitor.check_accessible()
    watch.click(page.get_by_role("button", name="Submit"))
    expect(page.get_by_text("large is submitted")).to_be_visible()
    assert cycle().admitted == 0
    page.reload()
    phase = Phase.objects.get()
    expect(page.locator("#job-why")).to_contain_text(phase.reason)
    watch.click(page.get_by_role("radio").first)
    watch.click(page.get_by_role("button", name="Apply"))
    expect(page.get_by_text("large/train is amended")).to_be_visible()
    assert cycle().admitted == 1
    start("large")
    page.reload()
    phase.refresh_from_db()
    expect(page.locator("h1")).to_contain_text(f"large runs on {phase.gpus} GPUs in oslo")
    expect(page.get_by_role("heading", name="Timeline of attempt 1")).to_be_visible()
    watch.stop(most=7)


# --- The operator --------------------------------------------------------------------------------

_FEED, _ZONE = Scope(ScopeKind.POWER_DOMAIN, "oslo/feed-a1"), Scope(ScopeKind.ZONE, "oslo/hall-1")


@pytest.fixture
def rising(racks: SmallFleet) -> SmallFleet:
    """The racks, of which the load has gone up for three minutes: their zone has the least left."""
    CoolingZone.objects.update(capacity_w=17_000.0)
    snapshot.invalidate()
    for round_ in range(10):
        at = time.time() - 20.0 * (9 - round_)
        racks.report(at=at, power_w=300.0 + 12.0 * round_, util=95.0)
        assert loop.evaluate_once(at) is not None
    restrict(RestrictionKind.NO_NEW_LAUNCHES, Scope(ScopeKind.RACK, "oslo/A01"))
    current.invalidate()
    return racks


def test_an_operator_learns_what_runs_out_first_and_when(
    visits: Visits, rising: SmallFleet
) -> None:
    page = visits(Role.OPERATOR).page
    watch = Stopwatch("which rack or zone runs out first, and when")
    expect(page.locator("h1")).to_contain_text("tightest: cooling of zone hall-1")
    watch.click(page.get_by_role("link", name="cooling of zone hall-1"))
    head = page.locator("h1")
    expect(head).to_contain_text("zone oslo/hall-1")
    found = current.headroom(time.time())
    load_w, budget_w = float(found.zone_load_w[0]), float(found.zone_capacity_w[0])
    assert kilowatts_of(head.inner_text(), "oslo/hall-1 ·") == pytest.approx(load_w / 1e3, rel=0.01)
    assert kilowatts_of(head.inner_text(), ":") == pytest.approx(
        (budget_w - load_w) / 1e3, rel=0.02
    )
    row = found.table(ScopeKind.ZONE).columns
    assert 0.0 < row["cooling_exhausted_in_s"][0] < 3600.0
    when = page.locator("dt", has_text="full, at today's slope").locator("xpath=following::dd[1]")
    expect(when).to_have_text(re.compile(r"^\s*\d+ min"))
    minutes = float(re.findall(r"\d+", when.inner_text())[0])
    assert minutes * 60.0 == pytest.approx(row["cooling_exhausted_in_s"][0], rel=0.2, abs=60.0)
    watch.stop(most=3)


def test_an_operator_learns_what_follows_if_feed_a_fails(
    visits: Visits, rising: SmallFleet
) -> None:
    visitor = visits(Role.OPERATOR)
    page = visitor.page
    watch = Stopwatch("what if feed A fails")
    watch.click(page.get_by_role("link", name="what if a part fails"))
    watch.click(page.get_by_role("link", name="oslo/feed-a1"))
    expected = outages.answer(foresee(_FEED, time.time()))
    expect(page.locator("h1")).to_have_text(expected)
    visitor.check_accessible()
    watch.stop(most=3)
    # The same is one click away from the page of the feed, which is one away from the front page.
    watch = Stopwatch("what if feed A fails, from its own page")
    page.goto(page.url.split("/what-if/")[0] + "/")
    watch.click(page.locator("#power-tree").get_by_role("link", name="feed-a1"))
    watch.click(page.get_by_role("link", name="what if it fails"))
    expect(page.locator("h1")).to_have_text(expected)
    watch.stop(most=3)


def test_an_operator_learns_what_is_restricted_and_why(visits: Visits, rising: SmallFleet) -> None:
    page = visits(Role.OPERATOR).page
    watch = Stopwatch("what is restricted, and why")
    watch.click(page.get_by_role("link", name="restrictions in force (1)"))
    panel = page.locator("#restrictions-panel")
    expect(panel).to_contain_text("no_new_launches")
    expect(panel).to_contain_text("oslo/A01")
    expect(panel).to_contain_text("a test")
    watch.stop(most=3)


# --- The responder -------------------------------------------------------------------------------

_OVER = """\
name: zone-over
description: Says when a cooling zone has more heat than it carries off.
scope: zone
severity: critical
summary: "Zone {name} has {cooling_load_w} of heat"
when: cooling_use > 1.0
for: 0s
clear: cooling_use <= 1.0
clear_for: 2s
effects:
  - incident: {}
"""
#: Of the zone in the story: the GPUs may draw 9 kW beside their four hosts, or 562 W each.
_CAPACITY_W = 17_000.0


@pytest.fixture
def plant(racks: SmallFleet) -> Machines:
    """Load of no known owner on all nodes, whose agents obey; its zone has room for it."""
    CoolingZone.objects.update(capacity_w=_CAPACITY_W)
    snapshot.invalidate()
    make_rule(text=_OVER)
    ask(racks)
    made = Machines(racks, dict.fromkeys(racks.nodes, 400.0))
    go_on(made, 3)
    return made


def go_on(plant: Machines, rounds: int = 1) -> float:
    """Have the plant be read by the real intake, rules look, and the controller act.

    Return what its GPUs drew when they were read last, W: it has heard of new caps since.
    """
    read_w = 0.0
    for _ in range(rounds):
        read_w = drawn_w(plant)
        plant.step(1.0)
        assert loop.evaluate_once(plant.now) is not None
    return read_w


def drawn_w(plant: Machines) -> float:
    """Return what the GPUs of the plant draw, by itself."""
    return sum(plant.drawn_w(node, gpu) for node in plant.fleet.nodes for gpu in range(4))


def capped(plant: Machines) -> int:
    """Return how many GPUs of the plant are held below what they want, by itself."""
    return sum(plant._is_held(node, gpu) for node in plant.fleet.nodes for gpu in range(4))


def heat_kw(page: Page, gpus_w: float) -> float:
    """Return the heat of the zone by its page, held against what its GPUs drew.

    What its four hosts give off besides is not read: it is from their idle power to their rating.
    """
    kw = kilowatts_of(page.locator("h1").inner_text(), "oslo/hall-1 ·")
    assert 4 * HOST_IDLE_W <= 1e3 * kw - gpus_w <= 4 * HOST_RATED_W + 50.0  # of rounding
    return kw


def test_a_responder_sees_a_surprise_through_until_it_is_contained(
    visits: Visits, plant: Machines, settings: Settings
) -> None:
    settings.INCIDENT_QUIET_S = 0.0  # two minutes else
    visitor = visits(Role.RESPONDER)
    page = visitor.page
    watch = Stopwatch("from a surprise to contained")
    expect(page.locator("#criticals")).to_be_hidden()
    assert capped(plant) == 0
    # Load of no known owner goes up everywhere in the zone, on drivers that were set back and have
    # lost the caps by which the controller would have been ahead of it.
    calm_w = drawn_w(plant)
    plant.wants_w = dict.fromkeys(plant.fleet.nodes, 690.0)
    plant.limit_w, plant.acts = {}, False
    surge_w = go_on(plant)
    for each in (context, moments, state):  # what pages keep for some seconds
        each.invalidate()
    assert surge_w == 16 * 690.0 > calm_w
    page.reload()
    expect(page.locator("#criticals")).to_contain_text("1")
    watch.click(page.locator("#criticals"))
    incident = Incident.objects.get()
    watch.click(page.get_by_role("link", name=incident.number).first)
    expect(page.locator("h1")).to_contain_text("Zone oslo/hall-1 has")
    watch.click(page.get_by_role("link", name="zone oslo/hall-1").first)
    expect(page.locator("h1")).to_contain_text("short")
    over_kw = heat_kw(page, surge_w)
    assert over_kw > _CAPACITY_W / 1e3
    # Its chart marks it, too, once that is there.
    expect(page.locator("#hub").get_by_role("link", name=incident.number)).to_be_visible()
    # The agents hear of the caps.
    plant.acts = True
    held_w = go_on(plant, 6)
    for each in (context, moments, state):  # what pages keep for some seconds
        each.invalidate()
    assert capped(plant) == 16
    page.reload()
    held_kw = heat_kw(page, held_w)
    assert held_kw <= _CAPACITY_W / 1e3
    assert 1e3 * (over_kw - held_kw) >= surge_w - held_w - 100.0  # of rounding
    expect(page.locator("h1")).to_contain_text("left")
    expect(page.locator("#hub")).to_contain_text("none open")
    expect(page.locator("#hub")).to_contain_text(f"{incident.number} resolved")
    watch.click(page.locator("#hub").get_by_role("link", name=incident.number))
    expect(page.locator("h1")).to_contain_text("resolved")
    visitor.check_accessible()
    page.goto(visitor.server + "/")
    expect(page.locator("#criticals")).to_be_hidden()
    told = page.locator("[data-controller]").first
    expect(told).to_contain_text(f"{units.count(capped(plant), 'GPU')} capped")
    watch.stop(most=4)
