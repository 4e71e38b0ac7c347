"""The playbooks that come with Headroom."""

from __future__ import annotations

import pytest

from policies.playbooks import builtin
from policies.playbooks.document import Manual, Restrict
from policies.playbooks.parse import parse
from policies.rules import builtin as rules

TEXTS = builtin.texts()
WANTED = {
    "thermal-throttle",
    "cooling-cap",
    "power-cap",
    "feed-loss",
    "network-partition",
    "wan-degradation",
    "storage-slow",
    "stale-telemetry",
    "lemon-gpu",
}


def test_all_are_there() -> None:
    assert set(TEXTS) == WANTED


@pytest.mark.parametrize("name", TEXTS)
def test_each_is_sound_and_says_what_a_decision_needs(name: str) -> None:
    playbook = parse(TEXTS[name]).playbook
    assert playbook.name == name
    for text in (playbook.constraint, playbook.failure_mode, playbook.switching_cost):
        assert len(text.split()) > 8


@pytest.mark.parametrize("name", TEXTS)
def test_each_restricts_and_none_waits_for_a_person_before_it_has(name: str) -> None:
    kinds = [type(step.action) for step in parse(TEXTS[name]).steps]
    first_person = kinds.index(Manual) if Manual in kinds else len(kinds)
    assert kinds.index(Restrict) < first_person


@pytest.mark.parametrize("name", TEXTS)
def test_no_step_that_waits_is_a_dead_end(name: str) -> None:
    """What nobody does in time does not give back what protects the fleet."""
    for step in parse(TEXTS[name]).steps:
        if step.timeout_s is not None and step.kind != "approve":
            assert step.on_timeout == "continue", step.id


def test_the_built_in_rules_name_playbooks_that_are_there_and_take_their_scopes() -> None:
    from policies.rules import document

    for text in rules.texts().values():
        rule = document.read(text)
        for effect in rule.effects:
            name = getattr(effect, "playbook", "")
            if name:
                assert rule.scope in parse(TEXTS[name]).playbook.scopes, (rule.name, name)
