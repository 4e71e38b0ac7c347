"""Every built-in rule with a playbook, on the twin: it fires, is acted upon, and is let go.

What goes wrong lasts for 40 minutes and is over then. All else is as on a server: admission keeps
budgets, the controller holds what runs, and jobs that agreed to it start low. What the controller
can hold no rule sees, so where a rule is about a budget, nodes are somebody else's and the policy
leaves their load alone: half of them, under a budget that falls a tenth below what the controller
was seen to hold. Zones and hot racks are on trial without a controller, and jobs start wherever
GPUs are free.
Bars, set before the first run:

- A run that succeeded did so while its rule was clear.
- While a rule fires, a run for it is under way, or people were told that the last one gave up.
- No swing: on one scope a rule fires at most thrice in the 40 minutes, and each further run holds
  for longer than the one before.
- An hour after what was wrong is over, nothing fires, runs or is in force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from admission.core.controlling import Unmanaged
from admission.core.directives.restricting import CAP_OWNER
from lab.fleet import Fleet
from lab.hardware import H100
from lab.twin import NO_FAILURES, Conditions
from lab.world import Headroom, Operators, Policy, World, builtin_rules
from policies.playbooks.machine import RunState
from policies.playbooks.pursuit import Way, decide
from policies.rules.document import OpenIncident
from tests.unit.lab.world.builders import make_arrival, tight_fleet

BEGINS_S, ENDS_S, OVER_S = 300.0, 2700.0, 6300.0
MOST_FIRINGS = 3
#: The others take a quarter of a minute of a processor each.
CHEAP = {"cooling-capacity"}
#: Half as often as on a server: the controller has to do with that, and the proof costs less.
STEP_S = 4.0
ROOMY: dict[str, Any] = {"power_share": 1.3, "feed_share": 1.0, "cooling_share": 1.3}

LEFT_ALONE = Policy(unmanaged=Unmanaged(is_capped=False))
LOOSE = Headroom(
    name="loose", enforces_budgets=False, controls=False, responds=False, sheds=False, moves=False
)

Conditioned = Callable[[Conditions], None]


@dataclass(frozen=True)
class Case:
    """What makes a rule fire, and the fleet on which it does."""

    rule: str
    wrong: Conditioned = lambda _: None
    #: the share of nodes with load of no known owner, which the controller may not touch
    others: float = 0.0
    fleet: dict[str, Any] = field(default_factory=dict)
    #: nobody holds budgets, and jobs draw all that they can while it lasts, and little otherwise
    is_loose: bool = False
    #: one job has all GPUs of a site: they are compared with each other
    is_gang: bool = False


def _set(name: str, value: float, rows: Any = slice(None)) -> Conditioned:
    def wrong(conditions: Conditions) -> None:
        getattr(conditions, name)[rows] = value

    return wrong


CASES = [
    Case("rack-power", _set("rack_budget_share", 0.41), others=0.5),
    Case("feed-power", _set("domain_budget_share", 0.24, 1), others=0.5),
    Case("cooling-capacity", fleet={"cooling_share": 0.6}, is_loose=True),
    Case("throttling", _set("gpu_resistance_factor", 2.0), is_loose=True),
    Case("inlet-heat", _set("supply_offset_c", 18.0)),
    Case("feed-loss", _set("domain_lost", 1.0, 1)),
    Case("site-silent", _set("site_isolated", 1.0, 0)),
    Case("wan-loss", _set("site_isolated", 1.0, 0)),
    Case("stale-telemetry", _set("node_silent", 1.0, slice(0, 2))),
    Case("storage-slow-reads", _set("storage_latency_s", 2.0)),
    Case("storage-slow-writes", _set("storage_latency_s", 2.0)),
    Case("wan-degraded", _set("link_extra_latency_s", 0.4)),
]


class Proof:
    """A world in which a case happens, watched after each round of its policies."""

    def __init__(self, case: Case) -> None:
        sites = 1 if case.is_gang else 2
        fleet = tight_fleet(gpus=32, sites=sites, **{**ROOMY, **case.fleet})
        self.world = World(
            fleet,
            _arrivals(fleet, case),
            Policy(approach=LOOSE) if case.is_loose else LEFT_ALONE,
            seed=3,
            conditions_at=self._conditions,
            operators=Operators(3, 300.0),
            failures=NO_FAILURES,
            others_share=case.others,
            step_s=STEP_S,
            rack_inlets=True,
            finds_lemons=case.is_gang,
        )
        self.case = case
        self.fired: dict[tuple[str, Any], list[float]] = {}
        self.over: dict[tuple[str, Any], list[tuple[str, int]]] = {}
        self.policing = self.world._policing
        self._step = self.policing.step
        self._seen: set[int] = set()
        self.policing.step = self._watched  # type: ignore[method-assign]

    def _conditions(self, now_s: float, conditions: Conditions) -> None:
        if BEGINS_S <= now_s < ENDS_S:
            self.case.wrong(conditions)

    def _watched(self, headroom: Any, now: datetime) -> None:
        known = set(self.policing.episodes)
        self._step(headroom, now)
        fires = {(each.rule, each.scope): each for each in self.policing.episodes.values()}
        for key in set(self.policing.episodes) - known:
            one = self.policing.episodes[key]
            self.fired.setdefault((one.rule, one.scope), []).append(now.timestamp())
        for (rule, scope, _), run in self.policing._last.items():
            if id(run) in self._seen:
                continue
            self._seen.add(id(run))
            self.over.setdefault((rule, scope), []).append((run.state, run.attempt))
            assert run.state is not RunState.SUCCEEDED or (rule, scope) not in fires, run.why
        for each in self.policing.episodes.values():
            if each.playbook:
                runs = self.policing._runs_of(each)
                assert decide(each.fired_at, runs, now).way is not Way.START or not runs

    def play(self) -> None:
        self.world.run(OVER_S)


def _arrivals(fleet: Fleet, case: Case) -> list[Any]:
    """Return jobs for all nodes that take any, all the time or while it lasts."""
    agreed = {"lowest_cap_w": 0.6 * H100.rated_w, "max_slowdown": 0.25}
    at_s, runs_s = (BEGINS_S, ENDS_S - BEGINS_S) if case.is_loose else (0.0, 2 * OVER_S)
    given = {"at_s": at_s, "runs_s": runs_s, "activity": 0.95, "checkpoint_interval_s": 600.0}
    if case.is_gang:
        return [make_arrival("gang", gpus=fleet.gpu_count, **given)]
    nodes = round((1.0 - case.others) * fleet.gpu_count / 8)
    return [
        make_arrival(f"j{n}", gpus=8, **given, **(agreed if n % 2 and not case.is_loose else {}))
        for n in range(nodes)
    ]


def test_every_built_in_rule_with_a_playbook_has_a_case() -> None:
    wanted = {
        rule.name
        for rule in builtin_rules()
        for each in rule.effects
        if isinstance(each, OpenIncident) and each.playbook
    }
    assert wanted == {case.rule for case in CASES} | {"lemon-gpus"}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.rule, marks=[] if case.rule in CHEAP else [pytest.mark.slow])
        for case in CASES
    ],
)
def test_its_exit_implies_clear_without_swing_and_it_is_undone_when_over(case: Case) -> None:
    proof = Proof(case)
    proof.play()
    about = {key: times for key, times in proof.fired.items() if key[0] == case.rule}
    assert about, "it never fired"
    for times in about.values():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert len(times) <= MOST_FIRINGS, gaps
        assert all(later > earlier for earlier, later in pairwise(gaps)), gaps
    ended = [each for key, found in proof.over.items() if key[0] == case.rule for each in found]
    assert ended
    assert {state for state, _ in ended} == {RunState.SUCCEEDED}
    assert not proof.policing.runs
    assert not proof.policing.episodes
    assert [row.owner for row in proof.policing.leases if row.owner != CAP_OWNER] == []


@pytest.mark.slow
def test_heat_that_the_controller_holds_is_left_to_it() -> None:
    proof = Proof(Case("throttling", _set("gpu_resistance_factor", 1.3)))
    proof.world.run(ENDS_S)
    assert "throttling" not in {rule for rule, _ in proof.fired}
    assert "clock_cap_mhz" not in {row.kind for row in proof.policing.leases}
    # It had something to do.
    twin = proof.world.twin
    assert (twin.cap_w < twin.parts.power_limit_w).mean() > 0.1


def test_a_bad_gpu_is_found_and_its_run_is_not_over_while_it_stays_bad() -> None:
    # The twin has one of its own, which nobody replaces: its test comes to an end, the rule not.
    proof = Proof(Case("lemon-gpus", is_gang=True))
    proof.world.run(2600.0)
    bad = int(proof.world.twin.parts.top_clock.argmin()) // 8
    node = f"node {proof.world.twin.fleet.nodes[bad]}"
    ((scope, times),) = [
        (str(scope), times) for (rule, scope), times in proof.fired.items() if rule == "lemon-gpus"
    ]
    assert (scope, len(times)) == (node, 1)
    (run,) = proof.policing.runs
    assert (run.playbook, run.state.state) == ("lemon-gpu", RunState.VERIFYING)
    held = [f"{row.kind} on {row.scope}" for row in proof.policing.leases]
    assert held == [f"prefer_away on {node}"]
