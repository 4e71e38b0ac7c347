"""Fallback: which way a job takes by the built-in policy, and what its state leaves of it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.request import Locality
from admission.core.response.fallback import (
    FACTS,
    Fallback,
    FallbackStatus,
    Policy,
    Transition,
    first_way,
    next_state,
    read_policy,
    restricted,
)
from headroom.documents import DocumentError
from tests.builders.jobs import make_request

POLICY = read_policy(Path("admission/core/response/fallback.yaml").read_text())
CALM = {
    "site_silent_share": 0.0, "site_power_margin": 0.4, "site_draining": 0.0, "may_move": 1.0,
    "checkpoint_elsewhere": 1.0, "home_has_latest": 1.0, "other_site_open": 1.0, "wan_up": 1.0,
    "local_only": 0.0, "review": 0.0, "failures_in_hour": 0.0,
}  # fmt: skip


def run(
    status: FallbackStatus,
    facts: dict[str, float],
    *,
    first: float = 10_000.0,
    seconds: float = 900.0,
) -> tuple[FallbackStatus, list[Transition]]:
    """Look every 10 s; return where that ends, and what was gone through."""
    taken = []
    for step in range(int(seconds / 10) + 1):
        status, transition = next_state(status, facts, POLICY, now=first + 10 * step)
        taken += [transition] if transition else []
    return status, taken


def test_the_facts_of_the_tests_are_all_that_there_are() -> None:
    assert CALM.keys() == FACTS.keys()


@settings(max_examples=200)
@given(
    state=st.sampled_from(Fallback),
    facts=st.fixed_dictionaries({name: st.sampled_from([0.0, 0.5, 1.0, 3.0]) for name in CALM}),
    stayed_s=st.sampled_from([0.0, 100.0, 1000.0]),
)
def test_the_way_that_is_foreseen_is_the_one_that_is_taken(
    state: Fallback, facts: dict[str, float], stayed_s: float
) -> None:
    status = FallbackStatus(state, since=10_000.0 - stayed_s)
    foreseen = first_way(status, facts, POLICY, now=10_000.0)
    taken, at = None, 10_000.0
    while taken is None and at < 10_900.0:
        status, taken = next_state(status, facts, POLICY, now=at)
        at += 10.0
    assert (foreseen is None) == (taken is None)
    if foreseen is not None and taken is not None:
        assert foreseen[1].state is taken.state
        assert at - 20.0 <= foreseen[0] <= at


def test_a_silent_site_is_left_after_a_minute_on_evidence() -> None:
    facts = CALM | {"site_silent_share": 1.0}
    status, early = run(FallbackStatus(), facts, seconds=50)
    assert not early
    assert status.open_since
    status, (transition,) = run(status, facts, first=10_060, seconds=0)
    assert (transition.was, transition.state) == (Fallback.PRIMARY_SITE, Fallback.REGIONAL)
    assert transition.why == "nothing is heard from its site"
    assert transition.evidence["site_silent_share"] == 1.0
    assert transition.evidence["for_s"] == 60.0
    assert status == FallbackStatus(Fallback.REGIONAL, 10_060.0)


@pytest.mark.parametrize(
    "missing", ["may_move", "checkpoint_elsewhere", "other_site_open"], ids=str
)
def test_it_stays_where_it_cannot_go_on_elsewhere(missing: str) -> None:
    assert run(FallbackStatus(), CALM | {"site_silent_share": 1.0, missing: 0.0})[1] == []


def test_a_gap_starts_the_clock_again() -> None:
    silent = CALM | {"site_silent_share": 1.0}
    status, _ = run(FallbackStatus(), silent, seconds=50)
    status, _ = run(status, CALM, first=10_055, seconds=0)
    assert run(status, silent, first=10_060, seconds=50)[1] == []


def test_it_stays_away_while_another_site_has_a_later_checkpoint_than_its_own() -> None:
    away = FallbackStatus(Fallback.REGIONAL, 10_000.0)
    status, taken = run(away, CALM | {"home_has_latest": 0.0}, first=10_300, seconds=3600)
    assert taken == []
    assert run(status, CALM, first=14_000)[1][0].state is Fallback.PRIMARY_SITE


def test_it_comes_back_when_its_site_has_been_back_for_long() -> None:
    away = FallbackStatus(Fallback.REGIONAL, 10_000.0)
    status, taken = run(away, CALM, first=10_010, seconds=280)
    assert not taken
    status, taken = run(status, CALM, first=10_300, seconds=20)
    assert [each.state for each in taken] == [Fallback.PRIMARY_SITE]


def test_a_restriction_makes_it_local_at_once_and_its_end_lets_it_back() -> None:
    status, taken = run(FallbackStatus(), CALM | {"local_only": 1.0}, seconds=0)
    assert [each.state for each in taken] == [Fallback.LOCAL_ONLY]
    status, taken = run(status, CALM | {"local_only": 1.0}, seconds=5000)
    assert not taken
    assert run(status, CALM, first=20_000, seconds=400)[0].state is Fallback.PRIMARY_SITE


CUT_OFF = CALM | {"wan_up": 0.0, "site_silent_share": 0.4}


def test_a_job_that_was_cut_off_leaves_once_its_site_is_silent() -> None:
    status, (cut,) = run(FallbackStatus(), CUT_OFF, seconds=130)
    assert cut.state is Fallback.LOCAL_ONLY
    silent = CUT_OFF | {"site_silent_share": 1.0}
    status, taken = run(status, silent, first=10_200, seconds=600)
    assert [each.state for each in taken] == [Fallback.REGIONAL]
    assert taken[0].evidence["checkpoint_elsewhere"] == 1.0
    assert status.since - cut.evidence["for_s"] >= 10_000 + POLICY.dwell_s


@pytest.mark.parametrize(
    "bar",
    [
        {"local_only": 1.0},
        {"may_move": 0.0},
        {"checkpoint_elsewhere": 0.0},
        {"other_site_open": 0.0},
        {"site_silent_share": 0.8},
    ],
    ids=str,
)
def test_it_stays_at_a_silent_site_that_it_may_not_leave(bar: dict[str, float]) -> None:
    local = FallbackStatus(Fallback.LOCAL_ONLY, 10_000.0)
    assert run(local, CUT_OFF | {"site_silent_share": 1.0} | bar, seconds=5000)[1] == []


def test_what_is_not_known_takes_no_way() -> None:
    unknown = dict.fromkeys(FACTS, math.nan)
    for state in Fallback:
        assert run(FallbackStatus(state), unknown, seconds=5000)[1] == []
        assert run(FallbackStatus(state), {}, seconds=5000)[1] == []


facts = st.fixed_dictionaries(
    {
        "site_silent_share": st.floats(0, 1), "site_power_margin": st.floats(-1, 1),
        "failures_in_hour": st.integers(0, 6).map(float),
        **{name: st.sampled_from([0.0, 1.0]) for name, value in CALM.items()
           if name not in ("site_silent_share", "site_power_margin", "failures_in_hour")},
    }
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(facts, st.integers(1, 40)), min_size=1, max_size=12))
def test_from_wherever_it_got_it_comes_home_once_all_is_well(
    story: list[tuple[dict[str, float], int]],
) -> None:
    status, now = FallbackStatus(), 10_000.0
    for each, steps in story:
        status, _ = run(status, each, first=now, seconds=10.0 * steps)
        now += 10.0 * steps
    # Two ways at most, and the time that each has to be open.
    assert run(status, CALM, first=now, seconds=1500)[0].state is Fallback.PRIMARY_SITE


@settings(max_examples=60, deadline=None)
@given(st.lists(facts, min_size=5, max_size=60))
def test_however_facts_flicker_it_goes_back_no_sooner_than_its_dwell(
    story: list[dict[str, float]],
) -> None:
    status, now, since = FallbackStatus(since=0.0), 10_000.0, 0.0
    order = list(Fallback)
    for each in story:
        now += 30.0
        was = status.state
        status, transition = next_state(status, each, POLICY, now=now)
        if transition is None:
            continue
        assert transition.was is was
        assert any(w.from_ is was and w.to is transition.state for w in POLICY.ways)
        if order.index(transition.state) < order.index(was):
            assert now - since >= POLICY.dwell_s
        since = now


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("ways: []\nmore: 1", "more"),
        ("ways: [{from: primary-site, to: moon, when: [], for_s: 0, why: x}]", "ways[0].to"),
        ("ways: [{from: local-only, to: local-only, when: [], for_s: 0, why: x}]", "ways[0]"),
        ("ways: [{from: local-only, to: primary-site, when: [], for_s: 0, why: x}]", "when"),
        (
            "ways: [{from: local-only, to: primary-site, for_s: 0, why: x, "
            "when: [{fact: weather, at_least: 1}]}]",
            "ways[0].when[0].fact: 'weather'",
        ),
        (
            "ways: [{from: local-only, to: primary-site, for_s: 0, why: x, "
            "when: [{fact: wan_up}]}]",
            "give at_least or at_most",
        ),
        (
            "ways: [{from: local-only, to: primary-site, for_s: .nan, why: x, "
            "when: [{fact: wan_up, at_least: 1}]}]",
            "ways[0].for_s",
        ),
        ("[", "line 2, column 1"),
    ],
)
def test_a_policy_that_cannot_be_is_refused_and_says_where(text: str, where: str) -> None:
    with pytest.raises(DocumentError) as error:
        read_policy(text)
    assert where in str(error.value)


def test_of_several_open_ways_the_first_is_taken() -> None:
    both = CALM | {"local_only": 1.0, "review": 1.0, "failures_in_hour": 3.0}
    assert run(FallbackStatus(), both, seconds=0)[0].state is Fallback.HELD


# --- What a state leaves of a request -------------------------------------------------------------

SITES = ("berlin", "oslo", "turin")


def test_at_its_primary_site_it_asks_for_what_it_asked_for() -> None:
    request = make_request(sites=("oslo",))
    for state in (Fallback.PRIMARY_SITE, Fallback.HELD):
        assert restricted(request, state, home="oslo", all_sites=SITES) is request
    assert restricted(request, Fallback.REGIONAL, home="", all_sites=SITES) is request


def test_away_it_takes_the_others_that_it_asked_for_or_else_all_others() -> None:
    def away(*asked: str) -> tuple[str, ...]:
        request = make_request(sites=asked)
        return restricted(request, Fallback.REGIONAL, home="oslo", all_sites=SITES).sites

    assert away("oslo", "turin") == ("turin",)
    assert away("oslo") == ("berlin", "turin")
    assert away() == ("berlin", "turin")


def test_local_it_stands_at_home_and_nothing_crosses() -> None:
    request = make_request(
        required=Locality.FLEET, preferred=Locality.FLEET, cross_site_bits_per_s=1e9,
        cross_site_checkpoint=True,
    )  # fmt: skip
    local = restricted(request, Fallback.LOCAL_ONLY, home="oslo", all_sites=SITES)
    assert (local.sites, local.required, local.preferred) == (
        ("oslo",), Locality.SITE, Locality.SITE,
    )  # fmt: skip
    assert (local.cross_site_bits_per_s, local.cross_site_checkpoint) == (0.0, False)
    tight = restricted(
        make_request(required=Locality.RACK), Fallback.LOCAL_ONLY, home="oslo", all_sites=SITES
    )
    assert tight.required is Locality.RACK


def test_a_policy_of_ones_own_works() -> None:
    text = """
        dwell_s: 0
        ways:
          - {from: primary-site, to: local-only, for_s: 5, why: too little power,
             when: [{fact: site_power_margin, at_most: 0.1}]}
    """
    policy: Policy = read_policy(text)
    status, none = next_state(FallbackStatus(), {"site_power_margin": 0.05}, policy, now=100.0)
    assert none is None
    _, transition = next_state(status, {"site_power_margin": 0.05}, policy, now=105.0)
    assert transition is not None
    assert transition.state is Fallback.LOCAL_ONLY
