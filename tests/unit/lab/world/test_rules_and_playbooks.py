"""Every built-in rule with a playbook, on the twin: it fires, is acted upon, and is let go.

What goes wrong lasts for 40 minutes and is over then. Nothing else holds budgets meanwhile: jobs
start wherever GPUs are free, and neither shrink nor end. Bars, set before the first run:

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

from admission.core.directives.restricting import CAP_OWNER
from lab.fleet import Fleet
from lab.twin import NO_FAILURES, Conditions
from lab.world import Headroom, Operators, Policy, World, builtin_rules
from policies.playbooks.machine import RunState
from policies.playbooks.pursuit import Way, decide
from policies.rules.document import OpenIncident
from tests.unit.lab.world.builders import make_arrival, tight_fleet

BEGINS_S, ENDS_S, OVER_S = 300.0, 2700.0, 6300.0
MOST_FIRINGS = 3
#: Worlds do not tell of GPUs that are worse than their peers, which takes days of readings, nor of
#: the inlets of racks. What holds of any rule is in ``test_pursuit_in_any_order.py``.
NOT_ON_THE_TWIN = {"lemon-gpus", "inlet-heat"}
LOOSE = Headroom(
    name="loose", enforces_budgets=False, controls=False, responds=False, sheds=False, moves=False
)
ROOMY: dict[str, Any] = {"power_share": 1.3, "feed_share": 1.3, "cooling_share": 1.3}

Conditioned = Callable[[Conditions], None]


@dataclass(frozen=True)
class Case:
    """What makes a rule fire, and the fleet on which it does."""

    rule: str
    wrong: Conditioned = lambda _: None
    fleet: dict[str, Any] = field(default_factory=dict)
    #: jobs draw all that they can while it lasts, and little before and after
    is_by_load: bool = False


def _set(name: str, value: float, rows: Any = slice(None)) -> Conditioned:
    def wrong(conditions: Conditions) -> None:
        getattr(conditions, name)[rows] = value

    return wrong


CASES = [
    Case("rack-power", fleet={"power_share": 0.6}, is_by_load=True),
    Case("feed-power", fleet={"feed_share": 0.4}, is_by_load=True),
    Case("cooling-capacity", fleet={"cooling_share": 0.6}, is_by_load=True),
    Case("throttling", _set("supply_offset_c", 26.0)),
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
        fleet = tight_fleet(gpus=32, **{**ROOMY, **case.fleet})
        self.world = World(
            fleet,
            _arrivals(fleet, case),
            Policy(approach=LOOSE),
            seed=3,
            conditions_at=self._conditions,
            operators=Operators(3, 300.0),
            failures=NO_FAILURES,
        )
        self.case = case
        self.fired: dict[tuple[str, Any], list[float]] = {}
        self.over: dict[tuple[str, Any], list[tuple[str, int]]] = {}
        self.policing = self.world._policing
        self._step = self.policing.step
        self._seen: set[int] = set()
        self.policing.step = self._watched  # type: ignore[method-assign]

    def _conditions(self, now_s: float, conditions: Conditions) -> None:
        if BEGINS_S <= now_s < ENDS_S and not self.case.is_by_load:
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
    """Return jobs on all GPUs: all the time, or while it lasts."""
    at_s, runs_s = (BEGINS_S, ENDS_S - BEGINS_S) if case.is_by_load else (0.0, 2 * OVER_S)
    return [
        make_arrival(
            f"j{n}", at_s=at_s, runs_s=runs_s, activity=0.95, gpus=8, checkpoint_interval_s=600.0
        )
        for n in range(fleet.gpu_count // 8)
    ]


def test_every_built_in_rule_with_a_playbook_has_a_case() -> None:
    wanted = {
        rule.name
        for rule in builtin_rules()
        for each in rule.effects
        if isinstance(each, OpenIncident) and each.playbook
    }
    assert wanted == {case.rule for case in CASES} | NOT_ON_THE_TWIN


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
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
