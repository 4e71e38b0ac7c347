"""What if a part of the fleet fails: foreseen, held against what then happens, and told."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from django.test import Client

from accounts.roles import Role
from accounts.visibility import ANOTHER
from admission.cycle import holding
from admission.jobs.models import Attempt, Phase
from admission.outages.foreseeing import foresee
from fleet import snapshot
from fleet.models import CoolingZone, Gpu, HardwareModel, PowerDomain, Rack
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import queued, start
from tests.integration.admission.cycle.test_holding import Machines, ask, budget

FEED_A, ZONE = Scope(ScopeKind.POWER_DOMAIN, "oslo/feed-a1"), Scope(ScopeKind.ZONE, "oslo/hall-1")
SITE = Scope(ScopeKind.SITE, "oslo")


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    holding.forget()
    yield
    holding.forget()


@pytest.fixture
def plant(fleet: SmallFleet) -> Machines:
    """Somebody else's load on all nodes, whose agents act on limits."""
    ask(fleet)
    return Machines(fleet, dict.fromkeys(fleet.nodes, 690.0))


def caps(plant: Machines) -> set[float]:
    """Return the limits that agents were told last, W."""
    return {round(each.value, 1) for each in ask(plant.fleet)}


def test_a_pair_of_which_the_controller_holds_each_half_has_nothing_more_to_give(
    plant: Machines,
) -> None:
    PowerDomain.objects.filter(name__startswith="feed-").update(capacity_w=17_500.0, derating=0.9)
    snapshot.invalidate()
    plant.steps(8)
    assert caps(plant)
    found = foresee(FEED_A, plant.now)
    assert (found.dark_racks, found.over, found.stopped) == (0, (), ())
    assert found.slowed_w == pytest.approx(0.0, abs=1.0)


def test_the_caps_that_are_foreseen_are_those_that_come(plant: Machines) -> None:
    Rack.objects.filter(name="A01").update(feed_b=None)
    budget("oslo/A02", 11_000.0)
    plant.steps(6)
    found = foresee(ZONE, plant.now)
    assert found.is_held
    assert [str(each.scope) for each in found.over] == ["zone oslo/hall-1"]
    assert found.over[0].budget_w == 0.0
    assert found.over[0].short_w > 0.0
    assert sum(each.gpus for each in found.slowed) == 16
    CoolingZone.objects.update(capacity_w=1.0)  # next to nothing: 0 is none
    snapshot.invalidate()
    plant.steps(4)
    told = {round(each.cap_w) for each in found.slowed}
    assert {round(cap_w) for cap_w in caps(plant)} == told


def test_who_has_no_power_is_named_and_nothing_is_done(plant: Machines) -> None:
    Rack.objects.filter(name="A01").update(feed_b=None)
    snapshot.invalidate()
    plant.wants_w = {}
    queued("llama", gpus=4)
    plant.steps(6)
    start("llama")
    attempt = Attempt.objects.get()
    (node,) = attempt.placement["gpus"]
    rack = plant.fleet.nodes[node].rack
    dark = Rack.objects.get(pk=rack.pk)
    Rack.objects.update(feed_b=PowerDomain.objects.get(name="feed-b1"))
    Rack.objects.filter(pk=dark.pk).update(feed_b=None)
    snapshot.invalidate()
    plant.steps(2)
    before = (Attempt.objects.get().state, Phase.objects.get().state, ask(plant.fleet))
    found = foresee(FEED_A, plant.now)
    assert (found.dark_racks, found.dark_gpus) == (1, 8)
    assert found.dark_w > 0.0
    assert [(each.key, each.gpus, each.dark) for each in found.hit] == [(attempt.key, 4, 4)]
    assert attempt.key not in {each.key for each in found.slowed}
    after = (Attempt.objects.get().state, Phase.objects.get().state, ask(plant.fleet))
    assert after == before
    assert not Restriction.objects.exists()


def test_gpus_that_are_split_are_counted_once_and_draw_what_they_draw(plant: Machines) -> None:
    split = plant.fleet.gpu(min(plant.fleet.nodes))
    HardwareModel.objects.filter(pk=split.model_id).update(name="NVIDIA H100 80GB HBM3")
    Gpu.objects.filter(pk=split.pk).update(slices=["3g.40gb", "3g.40gb"])
    snapshot.invalidate()
    plant.steps(2)
    before_w = sum(plant.rack_w(path) for path in plant.fleet.racks)
    whole, cooling = (foresee(scope, plant.now) for scope in (SITE, ZONE))
    assert (whole.dark_racks, whole.dark_gpus) == (2, 16)
    assert whole.dark_w == pytest.approx(before_w)
    assert cooling.over[0].load_w == pytest.approx(before_w)
    # A cap is of a GPU as a whole: the split one is left alone.
    assert sum(each.gpus for each in cooling.slowed) == 15


def test_without_agents_that_act_nothing_is_said_to_be_slowed(fleet: SmallFleet) -> None:
    fleet.report(power_w=690.0, util=100.0, temp_c=50.0)
    found = foresee(ZONE, time.time())
    assert (found.is_held, found.slowed, found.slowed_w) == (False, (), 0.0)
    assert found.short_w == pytest.approx(found.over[0].load_w)


# --- API and page --------------------------------------------------------------------------------


def get(role: Role, query: str) -> tuple[int, dict[str, object]]:
    token = make_token(make_user(role))
    answer = Client().get(f"/api/v1/what-if{query}", headers=bearer(token))
    return answer.status_code, answer.json()


def test_the_api_says_what_follows(plant: Machines) -> None:
    plant.steps(2)
    code, found = get(Role.VIEWER, "?kind=zone&name=oslo/hall-1")
    assert code == 200
    assert found["scope"] == {"kind": "zone", "name": "oslo/hall-1"}
    assert found["dark"] == {"racks": 0, "gpus": 0, "w": 0.0}
    assert found["slowed_gpus"] == 16
    assert found["controller_acts"] is True


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("?kind=link&name=x", 400, "Give one of site"),
        ("?kind=zone", 400, "Give its name"),
        ("?kind=zone&name=oslo/none", 404, "there is no zone"),
        ("?kind=zone&nam=x", 400, "Did you mean name"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_way_out(
    fleet: SmallFleet, query: str, code: int, words: str
) -> None:
    found, body = get(Role.VIEWER, query)
    assert found == code
    assert words in str(body)


def test_nobody_asks_without_a_token(fleet: SmallFleet) -> None:
    assert Client().get("/api/v1/what-if?kind=zone&name=oslo/hall-1").status_code == 401


def test_an_ml_user_reads_no_name_of_another_project(plant: Machines) -> None:
    plant.wants_w = {}
    queued("secret", gpus=4)
    plant.steps(6)
    start("secret")
    query = "?kind=site&name=oslo"
    _, seen = get(Role.OPERATOR, query)
    assert "secret/train/1" in str(seen["jobs_hit"])
    _, hidden = get(Role.ML_USER, query)
    assert "secret" not in str(hidden)
    assert ANOTHER in str(hidden["jobs_hit"])
    assert hidden["jobs_hit_count"] == seen["jobs_hit_count"] == 1


def test_the_page_answers_first_and_offers_what_may_fail(plant: Machines) -> None:
    plant.steps(2)
    client = Client()
    client.force_login(make_user(Role.VIEWER))
    empty = client.get("/what-if/").content.decode()
    assert 'value="oslo/feed-a1"' in empty
    page = client.get("/what-if/", {"kind": "zone", "name": "oslo/hall-1"}).content.decode()
    assert "If zone oslo/hall-1 failed now, no rack would lose its power, and 1 budget" in page
    assert "The controller would cap 16 GPUs lower" in page
    assert "load of no known owner in rack oslo/A01" in page
    unknown = client.get("/what-if/", {"kind": "zone", "name": "oslo/<b>"}).content.decode()
    assert "There is no zone" in unknown
    assert "<b>'" not in unknown
