"""The server and the worlds of the twin decide by the same functions, with the same constants."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings

from admission.core import holding as core
from admission.core.directives import restricting
from admission.core.directives import step as steps
from admission.cycle import holding
from admission.directives import step as server
from admission.policy.catalog import policy_in_force
from lab.twin import NO_FAILURES
from lab.world import Policy, World, agents, directing, policing
from policies import loop
from policies.caps import askers
from policies.leases import book as leases
from policies.playbooks import effects as playbook_effects
from policies.playbooks import runs, starting
from policies.restrictions import store
from policies.restrictions.book import RestrictionBook
from policies.rules import effects
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import cycle
from tests.integration.admission.directives.scenes import Clock
from tests.unit.lab.world.builders import make_arrival, tight_fleet

pytestmark = pytest.mark.django_db

REPOSITORY = Path(__file__).resolve().parents[4]
#: What a step is made of, and which of its arguments are constants of a policy.
DECISIONS = {
    (steps, "fall_back"): None,
    (restricting, "drain"): None,
    (restricting, "shrink"): None,
    (steps, "respond_now"): "tuning",
    (steps, "shed"): "after_s",
    (restricting, "hold_caps"): None,
}
Call = tuple[str, Any]


def heard(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Have all decisions of a step be written down; return where."""
    calls: list[Call] = []

    def spy(name: str, constant: str | None, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            value = args[2] if name == "fall_back" else kwargs.get(constant or "")
            calls.append((name, value))
            return act(*args, **kwargs)

        return call

    for (module, name), constant in DECISIONS.items():
        monkeypatch.setattr(module, name, spy(name, constant, getattr(module, name)))
    return calls


def test_a_step_makes_the_same_decisions_in_the_same_order(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, calls = Clock(fleet), heard(monkeypatch)
    clock.step()
    on_server = list(calls)
    calls.clear()
    World(tight_fleet(), [make_arrival()], seed=1, failures=NO_FAILURES).run(2.0)
    assert [name for name, _ in on_server] == [name for _, name in DECISIONS]
    assert calls == on_server


def test_rules_restrict_by_the_same_function(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    books: list[RestrictionBook[Any]] = []
    monkeypatch.setattr(effects, "keep", lambda book, episodes, now: books.append(book))
    loop.restrict(store.book(), datetime.now(UTC))
    World(tight_fleet(), [make_arrival()], seed=1, failures=NO_FAILURES).run(2.0)
    of_server, of_world = books
    for name in ("apply", "keep", "release", "expire", "approve", "refuse", "lift"):
        assert getattr(type(of_server), name) is getattr(type(of_world), name)


def test_playbooks_act_by_the_same_functions() -> None:
    world = vars(policing)
    assert world["perform_all"] is vars(runs)["perform_all"]
    assert world["hold"] is vars(playbook_effects)["hold"]
    assert world["release"] is vars(playbook_effects)["release"]
    assert world["MOST_RUNS"] is vars(starting)["MOST_RUNS"]
    assert world["pursuit"] is vars(starting)["pursuit"]


def test_neither_has_a_step_of_its_own() -> None:
    shared = {"parts", "fall_back", "restrict", "respond", "shed", "hold_caps"}
    for made in (server._Work, directing._Step):
        assert shared.isdisjoint(vars(made))


def test_what_a_policy_sets_is_what_the_server_has() -> None:
    policy, in_force = Policy(), policy_in_force()
    assert policy.manner == server.manner()
    assert policy.max_site_share == settings.POLICY_MAX_SITE_SHARE
    assert (policy.approach.controls, policy.unmanaged) == (in_force.controls, in_force.unmanaged)
    assert policy.control == holding.TUNING
    assert agents.LIMITS_VALID_FOR_S == settings.LIMITS_VALID_FOR_S


def test_the_controller_looks_at_running_load_by_the_same_function(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[set[str]] = []

    def look(*_: Any, **given: Any) -> None:
        looks.append(set(given))

    monkeypatch.setattr(core, "look", look)
    askers.note(fleet.agent.pk, time.time())
    fleet.report()
    cycle(time.time())
    World(tight_fleet(), [make_arrival()], seed=1, failures=NO_FAILURES).run(2.0)
    on_server, in_world = looks
    assert on_server == in_world


def test_no_other_file_says_when_a_lease_is_renewed() -> None:
    says = re.compile(r"^\w*RENEW_AT\w* =", re.MULTILINE)
    found = [
        path
        for room in ("policies", "admission", "lab")
        for path in sorted((REPOSITORY / room).rglob("*.py"))
        if says.search(path.read_text())
    ]
    assert [str(path) for path in found] == [leases.__file__]
