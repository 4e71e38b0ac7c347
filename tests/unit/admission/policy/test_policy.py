"""The admission policy as a document: what it says, what is refused, and what comes with us."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from admission.core import policy, snapshot
from admission.core.allocation import reservation
from admission.core.grants import Grants
from admission.core.policy import AdmissionPolicy, for_server, read
from admission.core.preempting import PreemptionPolicy
from admission.core.response import fallback, respond
from admission.core.sharing import Shares, Stated
from headroom.contracts import FieldError
from headroom.documents import DocumentError
from headroom.traffic import TrafficClass
from policies import traffic

WHOLE = """\
name: steady
about: Gives way sooner, comes back later.
admission:
  tuning: {wait_s_per_point: 300, depth: 50}
  reserve: {quantile: 0.95, margin: 0.15}
response: {sustain_s: 6, dwell_s: 300}
loop: {shed_after_s: 20}
fallback:
  dwell_s: 60
  ways:
    - {from: primary-site, to: local-only, for_s: 5, why: told to,
       when: [{fact: local_only, at_least: 1}]}
shares:
  half_life_s: 86400
  organizations: {research: {weight: 3}, products: {}}
open_classes: [nightly, trials]
projects:
  vision:
    classes: [low-power-experimentation, nightly]
    organization: research
    weight: 2
    users: {ada: 4}
    gpu_quota: 16
    cohort: lab
    may_borrow: 8
    may_lend: 4
  search: {granted: [urgent], disruptions_per_h: 2}
preemption:
  least_runtime_s: 60
  stops: {urgent: [trial]}
  reclaim_share_after_s: null
"""


def faults(text: str, *, on_server: bool = False) -> list[FieldError]:
    with pytest.raises(DocumentError) as caught:
        (for_server if on_server else read)(text)
    return caught.value.problems


def test_a_policy_is_read() -> None:
    found = for_server(WHOLE)
    assert found.tuning == snapshot.Tuning(wait_s_per_point=300.0, depth=50)
    assert isinstance(found.tuning.depth, int)
    assert found.reserve == reservation.Rules(quantile=0.95, margin=0.15)
    assert found.response == respond.Tuning(sustain_s=6.0, dwell_s=300.0)
    assert found.shed_after_s == 20.0
    assert (found.fallback.dwell_s, len(found.fallback.ways)) == (60.0, 1)
    allowed = frozenset({"low-power-experimentation", "nightly"})
    assert found.grants == Grants(
        open_classes=frozenset({"nightly", "trials"}),
        granted={"search": frozenset({"urgent"})},
        confined={"vision": allowed},
    )
    assert found.shares == Shares(
        half_life_s=86_400.0,
        organizations={"research": 3.0, "products": 1.0},
        projects={
            "vision": Stated(
                organization="research", weight=2.0, users={"ada": 4.0},
                gpu_quota=16, cohort="lab", may_borrow=8, may_lend=4,
            )
        },
    )  # fmt: skip
    assert found.preemption == PreemptionPolicy(
        least_runtime_s=60.0,
        disruptions_of={"search": 2},
        stops={"urgent": frozenset({"trial"})},
        reclaim_share_after_s=None,
    )


def test_a_number_of_an_earlier_release_is_taken_and_counts_nothing() -> None:
    found = for_server("name: a\nadmission: {tuning: {fair_share_points: 5, depth: 7}}\n")
    assert found.tuning == snapshot.Tuning(depth=7)


def test_jobs_do_not_give_back_what_they_would_grow_by() -> None:
    found = read("name: a\nmoving: {least_yield: 0.3, undone_below: 0.2, packs: false}\n").moving
    assert (found.least_yield, found.undone_below, found.packs) == (0.3, 0.2, False)
    (fault,) = faults("name: a\nmoving: {least_yield: 0.3, undone_below: 0.3}\n")
    assert fault.field == "moving.undone_below"
    assert "would swing" in fault.message
    (fault,) = faults("name: a\nmoving: {least_margin: 1.5}\n")
    assert fault.field == "moving.least_margin"


def test_what_it_leaves_out_is_as_it_comes_with_us() -> None:
    assert replace(for_server("name: headroom"), played=AdmissionPolicy().played) == (
        AdmissionPolicy()
    )


def test_the_text_that_comes_with_us_says_every_number_that_there_is() -> None:
    text = policy.built_in_text()
    found = for_server(text)
    assert replace(found, about="", played=AdmissionPolicy().played) == AdmissionPolicy()
    assert found.fallback == fallback.built_in()
    numbers = asdict(snapshot.Tuning()) | asdict(reservation.Rules()) | asdict(respond.Tuning())
    for name, value in numbers.items():
        assert f" {name}: {value}\n" in text, name


def test_what_comes_with_us_is_what_the_server_did_before_there_were_policies() -> None:
    found = AdmissionPolicy()
    assert (found.reserve.quantile, found.reserve.margin) == (0.99, 0.1)
    assert (found.reserve.warm_up_s, found.reserve.halves_in_s) == (300.0, 120.0)
    assert (found.reserve.forgets_in_s, found.reserve.ramp_s) == (7200.0, 60.0)
    assert asdict(found.response) == {
        "sustain_s": 10.0, "settle_s": 40.0, "dwell_s": 120.0, "longest_dwell_s": 3600.0,
        "band": 0.05,
    }  # fmt: skip
    assert (found.shed_after_s, found.fallback.dwell_s) == (30.0, 300.0)
    assert (found.tuning.depth, found.tuning.reservations) == (10_000, 4)
    assert found.grants == Grants()


@pytest.mark.parametrize(
    ("text", "place", "field", "word"),
    [
        ("name: a\nresponse: {sustain: 1}\n", (2, 21), "response.sustain", "there is no sustain"),
        ("name: a\nresponse: {band: 1.5}\n", (2, 18), "response.band", "more than all"),
        ("name: a\nresponse: {dwell_s: -1}\n", (2, 21), "response.dwell_s", "too small"),
        ("name: a\nresponse: {dwell_s: soon}\n", (2, 21), "response", "got `str`"),
        ("name: a\nadmission: {reserve: {quantile: 0}}\n", (2, 33), "admission.reserve.quantile",
         "too small"),
        ("name: a\nadmission: {tuning: {depth: 2.5}}\n", (2, 29), "admission.tuning.depth",
         "no whole number"),
        ("name: a\nloop: {shed_after_s: -1}\n", (2, 22), "loop.shed_after_s", ">= 0"),
        ("name: a\nprojects: {vision: {classes: []}}\n", (2, 30), "projects.classes", "length"),
        ("name: a\nfallback: {ways: [{from: local-only, to: local-only, for_s: 0, why: x, "
         "when: [{fact: wan_up, at_least: 1}]}]}\n", (2, 19), "fallback.ways[0]", "the same"),
        ("name: A b\n", (1, 7), "name", "small letters"),
        ("name: a\nprojects: {vision: {weight: 0}}\n", (2, 29), "projects.weight", "> 0"),
        ("name: a\nshares: {half_life_s: 0}\n", (2, 23), "shares.half_life_s", ">= 60"),
        ("name: a\nshares: {organizations: {research: {}}}\n"
         "projects: {vision: {organization: reserch}}\n", (3, 36),
         "projects.vision.organization", "there is no organization reserch"),
        ("name: a\nprojects: {vision: {cohort: lab}}\n", (2, 29), "projects.vision.cohort",
         "no quota to lend"),
        ("name: a\nprojects: {vision: {gpu_quota: 4, may_lend: 2}}\n", (2, 45),
         "projects.vision.may_lend", "in no cohort"),
        ("name: a\npreemption: {least_runtime_s: -1}\n", (2, 31),
         "preemption.least_runtime_s", ">= 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(
    text: str, place: tuple[int, int], field: str, word: str
) -> None:
    (problem,) = faults(text)
    assert (problem.field, word in problem.message) == (field, True), problem
    if "[...]" not in problem.field and problem.field in ("response.band", "name"):
        assert (problem.line, problem.column) == place


def test_all_that_is_wrong_is_told_at_once() -> None:
    text = "name: a\nresponse: {sustain: 1, band: 2}\nadmission: {reserve: {margin: -1}}\n"
    assert [each.field for each in faults(text)] == [
        "admission.reserve.margin", "response.sustain", "response.band",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        "admission: {enforces_budgets: false}",
        "admission: {fill_share: 1.1}",
        "rules: {builtin: false}",
        "playbooks: {without: [power-cap]}",
        "loop: {stale_after_s: 60}",
    ],
)
def test_what_only_the_twin_plays_is_refused_on_a_server(given: str) -> None:
    text = f"name: a\n{given}\n"
    assert read(text).name == "a"
    (problem,) = faults(text, on_server=True)
    assert (problem.line, "the twin alone" in problem.message) == (2, True)


def test_it_says_whether_running_load_is_held_and_how_far_that_slows_whose_owner_nobody_knows() -> (
    None
):
    given = for_server(
        "name: own\ncontroller: off\nunmanaged: {capped: false, lowest_speed: 0.8}\n"
    )
    assert not given.controls
    assert (given.unmanaged.is_capped, given.unmanaged.lowest_speed) == (False, 0.8)
    default = for_server("name: own\n")
    assert default.controls
    assert (default.unmanaged.is_capped, default.unmanaged.lowest_speed) == (True, 0.9)


@pytest.mark.parametrize("speed", [0.2, 1.1])
def test_nothing_is_made_slower_than_the_controller_can(speed: float) -> None:
    with pytest.raises(DocumentError, match="lowest_speed"):
        for_server(f"name: own\nunmanaged: {{lowest_speed: {speed}}}\n")


# --- Traffic --------------------------------------------------------------------------------------


def test_shares_of_links_are_read_over_those_that_come_with_headroom() -> None:
    found = read(
        "name: a\ntraffic:\n  kinds: {wan: {checkpoint: {guaranteed: 0.3, most: 0.6}}}\n"
    ).traffic
    assert found.classes == traffic.BUILT_IN
    assert found.kinds == {"wan": {TrafficClass.CHECKPOINT: traffic.Share(0.3, 0.6)}}


@pytest.mark.parametrize(
    ("stated", "field", "said"),
    [
        ("{classes: {gossip: {guaranteed: 0, most: 1}}}", "traffic.classes", "gossip"),
        ("{kinds: {moon: {}}}", "traffic.kinds", "moon"),
        ("{classes: {log: {guaranteed: 0.1}}}", "traffic.classes", "most"),
        ("{classes: {log: {guaranteed: 0.5, most: 0.2}}}", "traffic.classes.log.most", "below"),
        ("{links: {a: {log: {guaranteed: 0.9, most: 1}}}}", "traffic.links.a", "guaranteed"),
    ],
)
def test_shares_that_cannot_be_are_told(stated: str, field: str, said: str) -> None:
    (first, *_) = faults(f"name: a\ntraffic: {stated}\n")
    assert first.field.startswith(field)
    assert said in f"{first.field} {first.message}"
