"""What if a part of the fleet fails: foreseen, held against what then happens, and told."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from accounts.visibility import ANOTHER
from admission.core.reliance import Use
from admission.core.response.fallback import Fallback
from admission.jobs.models import Attempt, Job, Phase
from admission.outages.foreseeing import foresee
from fleet import snapshot
from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    Link,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)
from policies import current
from policies.restrictions.models import Restriction
from policies.scopes import Scope, ScopeKind
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.checkpoints import make_fact
from tests.builders.fleet import SmallFleet, small_fleet
from tests.integration.admission.cycle.scenes import cycle, idle, queued, start
from tests.integration.admission.cycle.test_holding import Machines, ask, budget

FEED_A, ZONE = Scope(ScopeKind.POWER_DOMAIN, "oslo/feed-a1"), Scope(ScopeKind.ZONE, "oslo/hall-1")
SITE = Scope(ScopeKind.SITE, "oslo")


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


# --- Links, storage, and fallback ----------------------------------------------------------------

WAN = Scope(ScopeKind.LINK, "oslo-bergen")
STORE = Scope(ScopeKind.STORAGE, "oslo/nvme")


@pytest.fixture
def two_sites() -> SmallFleet:
    """Two sites, each with storage of its own, and the one link between them, which is heard."""
    made = small_fleet(racks_per_row=2, rows=("A",))
    for site in made.sites.values():
        StorageEndpoint.objects.create(site=site, name="nvme", capacity_bytes_per_s=1e10)
    oslo, bergen = made.sites["oslo"], made.sites["bergen"]
    Link.objects.create(
        name=WAN.name, kind="wan", site=oslo, peer_site=bergen, capacity_bits_per_s=1e10
    )
    made.agent.sites.set(Site.objects.all())
    snapshot.invalidate()
    idle(made)
    made.report(power_w=70.0, util=0.0, temp_c=30.0, links={WAN.name: 1e6})
    return made


def running(name: str, **asks: Any) -> str:
    """Have a job run at oslo; return the key of its attempt."""
    queued(name, gpus=4, asks={"sites": ("oslo",), **asks})
    assert cycle().admitted == 1
    start(name)
    return Attempt.objects.get(phase__job__name=name).key


def test_a_link_between_sites_names_whose_data_and_checkpoints_have_no_other_way(
    two_sites: SmallFleet,
) -> None:
    data = running("data", data_site="bergen", cross_site_bits_per_s=1e9)
    saves = running("saves", checkpoint_interval_s=600.0)
    make_fact("saves", two_sites.sites["bergen"], epoch=1, step=40)
    running("alone")
    found = foresee(WAN, time.time())
    assert (found.dark_racks, found.over, found.slowed) == (0, (), ())
    told = {each.key: each for each in found.relying}
    assert set(told) == {data, saves}
    assert told[data].uses == (Use.DATA,)
    assert told[data].reserved == 1e9
    assert told[saves].uses == (Use.CHECKPOINTS,)
    assert told[saves].elsewhere == (("bergen", 40),)
    assert not any(each.another_way for each in found.relying)


def test_a_second_way_by_a_third_site_is_another_way(two_sites: SmallFleet) -> None:
    data = running("data", data_site="bergen", cross_site_bits_per_s=1e9)
    third = Site.objects.create(name="tromso")
    for name, site in two_sites.sites.items():
        Link.objects.create(
            name=f"{name}-tromso", kind="wan", site=site, peer_site=third, capacity_bits_per_s=1e10
        )
    snapshot.invalidate()
    found = foresee(WAN, time.time())
    assert [(each.key, each.another_way) for each in found.relying] == [(data, True)]


def test_what_fallback_would_do_is_what_it_does_once_the_link_is_silent(
    two_sites: SmallFleet,
) -> None:
    running("alone")
    found = foresee(WAN, time.time())
    (moves,) = found.moves
    assert (moves.job, moves.state, moves.stopped) == ("alone", Fallback.LOCAL_ONLY, ())
    assert moves.after_s == 120.0
    assert "no way to others" in moves.why
    assert Job.objects.get().fallback_state == Fallback.PRIMARY_SITE
    # The link falls silent: nothing else is heard for as long as a reading counts.
    now = time.time() + 40.0
    for later_s in range(0, 135, 15):
        two_sites.report(power_w=70.0, util=0.0, temp_c=30.0, at=now + later_s)
        current.invalidate()
        cycle(now + later_s)
    assert Job.objects.get().fallback_state == moves.state


def test_a_site_without_power_has_its_jobs_go_on_elsewhere(two_sites: SmallFleet) -> None:
    key = running("moves", checkpoint_interval_s=600.0)
    make_fact("moves", two_sites.sites["bergen"], epoch=1, step=40)
    found = foresee(SITE, time.time())
    (moves,) = found.moves
    assert (moves.state, moves.stopped, moves.after_s) == (Fallback.REGIONAL, (key,), 60.0)


def test_storage_names_who_was_placed_on_it_and_says_what_is_not_known(
    two_sites: SmallFleet,
) -> None:
    key = running("reads", storage="oslo/nvme", storage_bytes_per_s=2e9)
    running("other")
    found = foresee(STORE, time.time())
    assert [(each.key, each.reserved) for each in found.relying] == [(key, 2e9)]
    code, told = get(Role.VIEWER, "?kind=storage&name=oslo/nvme")
    assert code == 200
    assert told["relying"][0]["unit"] == "byte/s"
    assert "no directive follows" in " ".join(told["not_known"])


def test_a_leaf_uplink_names_gangs_of_several_racks(plant: Machines) -> None:
    plant.wants_w = {}
    queued("wide", gpus=16)
    plant.steps(6)
    start("wide")
    uplink = min(plant.fleet.links)
    found = foresee(Scope(ScopeKind.LINK, uplink), plant.now)
    assert [(each.gpus, each.uses) for each in found.relying] == [(16, (Use.GANG,))]
    assert found.moves == ()


def test_nobody_reads_the_name_of_anothers_job_that_relies_on_a_link(
    two_sites: SmallFleet,
) -> None:
    running("secret", data_site="bergen", cross_site_bits_per_s=1e9)
    query = f"?kind=link&name={WAN.name}"
    _, hidden = get(Role.ML_USER, query)
    assert "secret" not in str(hidden)
    assert (hidden["relying_count"], hidden["moves_count"]) == (1, 1)
    client = Client()
    client.force_login(make_user(Role.ML_USER))
    page = client.get(f"/what-if/{query}").content.decode()
    assert "secret" not in page
    assert "1 job relies on it, 1 of them without another way" in page


# --- API and page --------------------------------------------------------------------------------


def get(role: Role, query: str) -> tuple[int, dict[str, Any]]:
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
        ("?kind=node&name=x", 400, "Give one of site"),
        ("?kind=link&name=x", 404, "there is no link"),
        ("?kind=storage&name=oslo/none", 404, "there is no storage"),
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
    assert 'href="/what-if/?kind=power_domain&amp;name=oslo%2Ffeed-a1"' in empty
    assert 'href="/what-if/?kind=link&amp;name=oslo%2FA01%2Fuplink"' in empty
    found = client.get("/what-if/", {"q": "FEED b"}).content.decode()
    assert "oslo/feed-b1" in found
    assert "feed-a1" not in found
    assert "is called so" in client.get("/what-if/", {"q": "nothing"}).content.decode()
    page = client.get("/what-if/", {"kind": "zone", "name": "oslo/hall-1"}).content.decode()
    assert "If zone oslo/hall-1 failed now, no rack would lose its power, and 1 budget" in page
    assert "The controller would cap 16 GPUs lower" in page
    assert "load of no known owner in rack oslo/A01" in page
    unknown = client.get("/what-if/", {"kind": "zone", "name": "oslo/<b>"}).content.decode()
    assert "There is no zone" in unknown
    assert "is called so" in unknown
    assert "<b>'" not in unknown
