"""Rules over time: when they fire, when they clear, and what unknown readings do to that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.rules import document, states
from policies.rules.arrays import Status
from policies.rules.engine import Changes, LiveRule, Mode, RuleState, Scopes, share_of, step
from policies.rules.machine import Phase
from policies.scopes import Scope, ScopeKind
from tests.unit.policies.rules.tables import make_scopes

NAN = float("nan")
NAMES = ("oslo/r1", "oslo/r2", "oslo/r3")
TEXT = """
name: rack-power
scope: rack
severity: warning
summary: "Rack {{name}} draws {{power_load_w}}, {{power_use:%}} of its budget"
when: {when}
for: {for_s}s
clear: {clear}
clear_for: {clear_for_s}s
"""


def make_rule(
    when: str = "power_use > 0.95",
    clear: str = "power_use < 0.9",
    for_s: float = 0,
    clear_for_s: float = 0,
    more: str = "",
) -> document.Rule:
    text = TEXT.format(when=when, clear=clear, for_s=for_s, clear_for_s=clear_for_s)
    return document.read(text + more)


class Fleet:
    """Rules on some racks, moved on by what their power use is."""

    def __init__(self, *rules: LiveRule, names: Sequence[str] = NAMES) -> None:
        self.rules = list(rules)
        self.state: dict[int, RuleState] = {}
        self.names = names
        self.now = 1_000.0

    def at(self, now: float, *use: float, **columns: Any) -> Changes:
        """Evaluate at ``now`` s after the start."""
        self.now = 1_000.0 + now
        scopes = make_scopes(names=self.names, power_use=list(use) or NAN, **columns)
        return self.see({ScopeKind.RACK: scopes})

    def see(self, tables: Mapping[ScopeKind, Scopes]) -> Changes:
        self.state, changes = step(self.rules, tables, self.state, self.now)
        return changes

    def phases(self, version: int = 1) -> list[Phase]:
        return [Phase(int(p)) for p in self.state[version].phases.phase]


def names_of(firings: Sequence[Any]) -> list[str]:
    return [firing.scope.name for firing in firings]


def one(rule: document.Rule, mode: Mode = Mode.ACTIVE, share: float = 0.0) -> LiveRule:
    return LiveRule(1, 1, rule, mode, share)


def test_it_fires_when_the_condition_has_held_for_long_enough() -> None:
    fleet = Fleet(one(make_rule(for_s=10)))
    assert not fleet.at(0, 0.96, 0.5, 0.96).fired
    assert fleet.phases() == [Phase.PENDING, Phase.IDLE, Phase.PENDING]
    assert not fleet.at(8, 0.96, 0.5, 0.5).fired
    assert names_of(fleet.at(10, 0.97, 0.5, 0.96).fired) == ["oslo/r1"]
    assert not fleet.at(12, 0.97, 0.5, 0.96).fired
    assert names_of(fleet.at(20, 0.97, 0.5, 0.96).fired) == ["oslo/r3"]


def test_without_for_it_fires_at_once() -> None:
    assert names_of(Fleet(one(make_rule())).at(0, 0.96, 0.5, 0.5).fired) == ["oslo/r1"]


def test_a_firing_says_what_a_person_wants_to_know() -> None:
    fleet = Fleet(one(make_rule(for_s=4)))
    fleet.at(0, 0.96, 0.5, 0.5, power_load_w=41_234.0)
    (firing,) = fleet.at(4, 0.96, 0.5, 0.5, power_load_w=41_234.0).fired
    assert firing.summary == "Rack oslo/r1 draws 41.2 kW, 96 % of its budget"
    assert firing.scope == Scope(ScopeKind.RACK, "oslo/r1")
    assert firing.values == {"power_load_w": 41_234.0, "power_use": 0.96}
    assert firing.labels == {"site": "oslo"}
    assert (firing.at - firing.since).total_seconds() == 4


def test_it_clears_when_the_other_condition_has_held_for_long_enough() -> None:
    fleet = Fleet(one(make_rule(clear_for_s=10)))
    fleet.at(0, 0.96, 0.96, 0.5)
    assert not fleet.at(2, 0.89, 0.92, 0.5).cleared
    assert fleet.phases() == [Phase.CLEARING, Phase.FIRING, Phase.IDLE]
    changes = fleet.at(12, 0.89, 0.92, 0.5)
    assert names_of(changes.cleared) == ["oslo/r1"]
    assert names_of(changes.held) == ["oslo/r2"]


def test_coming_back_while_it_clears_is_no_new_firing() -> None:
    fleet = Fleet(one(make_rule(clear_for_s=10)))
    fleet.at(0, 0.96, 0.5, 0.5)
    fleet.at(2, 0.85, 0.5, 0.5)
    changes = fleet.at(4, 0.96, 0.5, 0.5)
    assert not changes.fired
    assert names_of(changes.held) == ["oslo/r1"]
    assert not fleet.at(13, 0.85, 0.5, 0.5).cleared
    assert fleet.at(23, 0.85, 0.5, 0.5).cleared


def test_without_clear_it_clears_when_the_condition_is_known_not_to_hold() -> None:
    text = TEXT.format(when="power_use > 0.95", clear="", for_s=0, clear_for_s=10)
    fleet = Fleet(one(document.read(text.replace("clear: \n", ""))))
    fleet.at(0, 0.96, 0.96, 0.5)
    fleet.at(2, 0.95, NAN, 0.5)
    assert names_of(fleet.at(12, 0.95, NAN, 0.5).cleared) == ["oslo/r1"]


def test_unknown_neither_fires_nor_clears_and_its_time_does_not_count() -> None:
    fleet = Fleet(one(make_rule(for_s=10, clear_for_s=10)))
    fleet.at(0, 0.96, 0.5, 0.5)
    fleet.at(5, NAN, 0.5, 0.5)  # 5 s of which nobody knows
    assert not fleet.at(10, 0.96, 0.5, 0.5).fired
    assert fleet.at(15, 0.96, 0.5, 0.5).fired
    fleet.at(20, 0.85, 0.5, 0.5)
    fleet.at(25, NAN, 0.5, 0.5)
    assert not fleet.at(30, 0.85, 0.5, 0.5).cleared
    assert fleet.at(35, 0.85, 0.5, 0.5).cleared


def test_unknown_alone_holds_a_firing_for_ever() -> None:
    fleet = Fleet(one(make_rule(clear_for_s=10)))
    fleet.at(0, 0.96, 0.5, 0.5)
    for now in range(2, 600, 20):
        assert not fleet.at(now, NAN, NAN, NAN).cleared
    assert names_of(fleet.at(602, NAN, NAN, NAN).held) == ["oslo/r1"]


def test_time_in_which_nobody_looked_does_not_count() -> None:
    fleet = Fleet(one(make_rule(for_s=60)))
    fleet.at(0, 0.96, 0.5, 0.5)
    fleet.at(20, 0.96, 0.5, 0.5)
    assert not fleet.at(900, 0.96, 0.5, 0.5).fired  # the worker was away
    assert not fleet.at(920, 0.96, 0.5, 0.5).fired
    assert fleet.at(940, 0.96, 0.5, 0.5).fired


def test_a_clock_that_is_set_back_does_no_harm() -> None:
    fleet = Fleet(one(make_rule(for_s=10)))
    fleet.at(100, 0.96, 0.5, 0.5)
    assert not fleet.at(50, 0.96, 0.5, 0.5).fired
    assert not fleet.at(50, 0.5, 0.5, 0.5).held


def test_an_error_concerns_its_scope_and_its_rule_alone() -> None:
    divides = make_rule(
        when="power_load_w / power_budget_w > 0.9",
        clear="power_load_w / power_budget_w < 0.5",
        clear_for_s=1,
    )
    fleet = Fleet(one(divides), LiveRule(2, 1, make_rule(), Mode.ACTIVE))
    changes = fleet.at(
        0, 0.96, 0.5, 0.5, power_load_w=[9.0, 9.0, 99.0], power_budget_w=[10.0, 0.0, 100.0]
    )
    # One firing of the first rule, and one of the second.
    assert names_of(changes.fired) == ["oslo/r3", "oslo/r1"]
    (fault,) = changes.faults
    assert (fault.version_id, fault.status, fault.count, fault.names) == (
        1, Status.DIVIDED_BY_ZERO, 1, ("oslo/r2",),
    )  # fmt: skip


def test_conditions_that_contradict_each_other_at_run_time_are_shown_and_do_not_clear() -> None:
    # Labels may be anything, so that the check at load cannot see it.
    rule = make_rule(when="power_use > 0.95 && has(labels.a)", clear="has(labels.a)", clear_for_s=1)
    fleet = Fleet(one(rule))
    labels = [{"a": "1"}, {}, {}]
    for now in (0, 2, 4, 6):
        changes = fleet.at(now, 0.96, 0.5, 0.5, labels=labels)
        assert not changes.cleared
        assert changes.faults[0].status is Status.CONTRADICTION
    fleet.at(8, 0.5, 0.5, 0.5, labels=labels)
    assert fleet.at(10, 0.5, 0.5, 0.5, labels=labels).cleared


def test_a_scope_that_leaves_the_inventory_clears() -> None:
    fleet = Fleet(one(make_rule()))
    fleet.at(0, 0.96, 0.96, 0.5)
    fleet.names = ("oslo/r0", "oslo/r2", "oslo/r3", "oslo/r4")
    changes = fleet.at(2, 0.5, 0.96, 0.5, 0.5)
    assert names_of(changes.cleared) == ["oslo/r1"]
    assert not changes.fired
    assert names_of(changes.held) == ["oslo/r2"]


def test_a_state_goes_on_after_a_restart() -> None:
    fleet = Fleet(one(make_rule(for_s=10)))
    fleet.at(0, 0.96, 0.96, 0.5)
    fleet.at(10, 0.96, 0.5, 0.96)
    kept = states.packed(fleet.state[1])
    assert set(kept) == {"oslo/r1", "oslo/r3"}
    fleet.state = {1: states.unpacked(kept, fleet.state[1].at)}
    changes = fleet.at(20, 0.96, 0.5, 0.96)
    assert names_of(changes.fired) == ["oslo/r3"]
    assert names_of(changes.held) == ["oslo/r1", "oslo/r3"]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("{sites: [oslo]}", ["oslo/r1"]),
        ("{sites: [oslo, bergen]}", ["bergen/r9", "oslo/r1"]),
        ("{labels: {tier: prod}}", ["bergen/r9"]),
        ("{sites: [paris]}", []),
    ],
)
def test_a_selector_says_where_a_rule_looks(select: str, expected: list[str]) -> None:
    fleet = Fleet(one(make_rule(more=f"select: {select}")), names=("oslo/r1", "bergen/r9"))
    changes = fleet.at(0, 0.96, 0.96, labels=[{}, {"tier": "prod"}])
    assert sorted(names_of(changes.fired)) == expected


def test_kinds_of_power_domains_are_selected() -> None:
    text = TEXT.format(when="power_use > 0.95", clear="power_use < 0.9", for_s=0, clear_for_s=0)
    rule = document.read(text.replace("rack\n", "power_domain\nselect: {kinds: [feed]}\n", 1))
    scopes = make_scopes(
        ScopeKind.POWER_DOMAIN, ("oslo/f", "oslo/u"), kinds=["feed", "utility"], power_use=1.0
    )
    assert names_of(Fleet(one(rule)).see({ScopeKind.POWER_DOMAIN: scopes}).fired) == ["oslo/f"]


# --- Versions ------------------------------------------------------------------------------------

MANY = tuple(f"oslo/r{i}" for i in range(200))


def test_a_shadow_version_only_records() -> None:
    changes = Fleet(one(make_rule(), Mode.SHADOW)).at(0, 0.96, 0.5, 0.5)
    assert names_of(changes.shadow_fired) == ["oslo/r1"]
    assert not changes.fired
    assert not changes.held


def test_canary_and_active_version_share_the_racks() -> None:
    rule = make_rule()
    fleet = Fleet(
        LiveRule(1, 1, rule, Mode.ACTIVE, 0.2), LiveRule(2, 2, rule, Mode.CANARY, 0.2), names=MANY
    )
    changes = fleet.at(0, *[0.96] * 200)
    by_version: dict[int, set[str]] = {1: set(), 2: set()}
    for firing in changes.fired:
        by_version[firing.version].add(firing.scope.name)
    assert by_version[1] | by_version[2] == set(MANY)
    assert not by_version[1] & by_version[2]
    assert by_version[2] == {name for name in MANY if share_of("rack-power", name) < 0.2}
    assert 20 <= len(by_version[2]) <= 60


def test_a_larger_share_keeps_the_racks_of_a_smaller_one() -> None:
    small = {name for name in MANY if share_of("a-rule", name) < 0.1}
    assert small <= {name for name in MANY if share_of("a-rule", name) < 0.3}
    assert small != {name for name in MANY if share_of("another", name) < 0.1}


def test_a_version_that_takes_over_fires_nothing_twice() -> None:
    fleet = Fleet(LiveRule(1, 1, make_rule(), Mode.ACTIVE), names=MANY)
    fleet.at(0, *[0.96] * 200)
    kept = states.packed(fleet.state[1])
    # A canary beside it: it takes its racks over with what is under way on them.
    fleet.rules = [
        LiveRule(1, 1, make_rule(), Mode.ACTIVE, 0.3),
        LiveRule(2, 2, make_rule(), Mode.CANARY, 0.3),
    ]
    fleet.state[2] = states.unpacked(states.handed_over({}, kept, counted=False), fleet.now)
    changes = fleet.at(2, *[0.96] * 200)
    assert not changes.fired
    assert not changes.cleared
    assert len(changes.held) == 200
    # Then the canary becomes active.
    handed = states.handed_over(
        states.packed(fleet.state[2]), states.packed(fleet.state[1]), counted=True
    )
    fleet.rules = [LiveRule(2, 2, make_rule(), Mode.ACTIVE)]
    fleet.state = {2: states.unpacked(handed, fleet.now)}
    changes = fleet.at(4, *[0.96] * 200)
    assert not changes.fired
    assert not changes.cleared
    assert len(changes.held) == 200
    assert len(fleet.at(6, *[0.5] * 200).cleared) == 200


def test_what_a_shadow_has_seen_fire_fires_when_the_version_counts() -> None:
    fleet = Fleet(one(make_rule(for_s=10), Mode.SHADOW))
    fleet.at(0, 0.96, 0.5, 0.5)
    fleet.at(10, 0.96, 0.5, 0.5)
    kept = states.handed_over(states.packed(fleet.state[1]), {}, counted=False)
    fleet.rules = [one(make_rule(for_s=10))]
    fleet.state = {1: states.unpacked(kept, fleet.now)}
    assert names_of(fleet.at(12, 0.96, 0.5, 0.5).fired) == ["oslo/r1"]


# --- Against a loop in plain Python --------------------------------------------------------------

_SERIES = st.lists(
    st.tuples(
        st.sampled_from([2.0, 2.0, 5.0, 45.0]),
        st.lists(st.sampled_from([0.5, 0.92, 0.97, NAN]), min_size=2, max_size=2),
    ),
    min_size=1,
    max_size=40,
)


class Plain:
    """One rule on one scope, as one would write it down."""

    def __init__(self, for_s: float, clear_for_s: float) -> None:
        self.for_s, self.clear_for_s = for_s, clear_for_s
        self.held_s: float | None = None
        self.clear_s: float | None = None
        self.fires = False

    def see(self, passed_s: float, use: float) -> str:
        known, high, low = not np.isnan(use), use > 0.95, use < 0.9
        counts = passed_s if known and passed_s <= 30 else 0.0
        if not self.fires:
            if known and not high:
                self.held_s = None
            elif self.held_s is not None:
                self.held_s += counts
            elif high:
                self.held_s = 0.0
            if high and self.held_s is not None and self.held_s >= self.for_s:
                self.fires, self.held_s, self.clear_s = True, None, None
                return "fired"
            return ""
        if known and not low:
            self.clear_s = None
        elif self.clear_s is not None:
            self.clear_s += counts
        elif low:
            self.clear_s = 0.0
        if low and self.clear_s is not None and self.clear_s >= self.clear_for_s:
            self.fires, self.clear_s = False, None
            return "cleared"
        return ""


@settings(max_examples=60, deadline=None)
@given(_SERIES, st.sampled_from([0.0, 4.0, 10.0]), st.sampled_from([0.0, 4.0, 10.0]), st.data())
def test_arrays_do_what_a_loop_over_scopes_would(
    series: list[tuple[float, list[float]]], for_s: float, clear_for_s: float, data: Any
) -> None:
    names = ("oslo/r1", "oslo/r2")
    fleet = Fleet(one(make_rule(for_s=for_s, clear_for_s=clear_for_s)), names=names)
    plain = {name: Plain(for_s, clear_for_s) for name in names}
    now = 0.0
    for place, (passed_s, uses) in enumerate(series):
        now += passed_s
        if place and data.draw(st.booleans()):  # a worker that was started anew
            fleet.state = {1: states.unpacked(states.packed(fleet.state[1]), fleet.state[1].at)}
        changes = fleet.at(now, *uses)
        told = {
            name: plain[name].see(passed_s if place else 0.0, use)
            for name, use in zip(names, uses, strict=True)
        }
        assert names_of(changes.fired) == [n for n in names if told[n] == "fired"]
        assert names_of(changes.cleared) == [n for n in names if told[n] == "cleared"]
        assert names_of(changes.held) == [n for n in names if plain[n].fires]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.5, 1.1) | st.just(NAN), min_size=2, max_size=80),
    st.sampled_from([0.0, 6.0]),
    st.sampled_from([4.0, 10.0]),
)
def test_a_rule_does_not_swing_faster_than_its_hysteresis(
    uses: list[float], for_s: float, clear_for_s: float
) -> None:
    """Whatever readings do, also because of the rule's own effect (invariant 8)."""
    fleet = Fleet(one(make_rule(for_s=for_s, clear_for_s=clear_for_s)), names=("oslo/r1",))
    last: tuple[str, float] | None = None
    for place, use in enumerate(uses):
        changes = fleet.at(2.0 * place, use)
        assert len(changes.fired) + len(changes.cleared) <= 1
        for kind, found in (("fired", changes.fired), ("cleared", changes.cleared)):
            if not found:
                continue
            if last is None:
                assert kind == "fired"
            else:
                assert kind != last[0]
                least_s = clear_for_s if kind == "cleared" else for_s
                assert 2.0 * place - last[1] >= least_s
            last = (kind, 2.0 * place)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.91, 1.2), st.floats(0.0, 0.5), st.sampled_from([4.0, 10.0]))
def test_an_effect_that_ends_its_own_cause_is_kept_for_the_whole_of_the_hysteresis(
    load: float, saved: float, clear_for_s: float
) -> None:
    """A cap takes ``saved`` of the load away while the rule fires, and gives it back after."""
    fleet = Fleet(one(make_rule(clear_for_s=clear_for_s)), names=("oslo/r1",))
    capped, switches = False, []
    for place in range(60):
        use = load - saved if capped else load
        changes = fleet.at(2.0 * place, use)
        if changes.fired or changes.cleared:
            switches.append(2.0 * place)
            capped = bool(changes.fired)
    assert all(b - a >= clear_for_s for a, b in zip(switches[::2], switches[1::2], strict=False))
    if load <= 0.95 or load - saved >= 0.9:
        assert len(switches) <= 1
