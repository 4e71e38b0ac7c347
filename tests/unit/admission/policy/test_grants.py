"""Grants: which class a project may use, by what is open, granted and confined."""

from __future__ import annotations

import pytest

from admission.core.grants import Grants
from admission.core.snapshot import ClassRules
from admission.jobs import classes

PLAIN, URGENT = ClassRules("plain", priority=90), ClassRules("urgent", preempts=True)


def test_all_but_those_that_have_others_give_way_are_open_where_nobody_says() -> None:
    grants = Grants()
    assert grants.allows("anybody", PLAIN)
    assert not grants.allows("anybody", URGENT)


def test_of_the_classes_that_come_with_us_one_has_to_be_granted() -> None:
    built_in = classes.built_in()
    allowed = Grants().allowed("anybody", built_in.values())
    assert set(built_in) - allowed == {"latency-sensitive-inference-build"}


def test_a_grant_is_beside_what_is_open_and_for_its_project_alone() -> None:
    grants = Grants(granted={"search": frozenset({"urgent"})})
    assert grants.allowed("search", (PLAIN, URGENT)) == {"plain", "urgent"}
    assert grants.allowed("vision", (PLAIN, URGENT)) == {"plain"}


@pytest.mark.parametrize("open_classes", [None, frozenset({"plain", "urgent"})])
def test_a_project_that_is_confined_has_its_list_alone(open_classes: frozenset[str] | None) -> None:
    grants = Grants(open_classes=open_classes, confined={"vision": frozenset({"urgent"})})
    assert grants.allowed("vision", (PLAIN, URGENT)) == {"urgent"}


def test_what_is_open_can_be_told_by_name() -> None:
    grants = Grants(open_classes=frozenset({"urgent"}))
    assert grants.allowed("anybody", (PLAIN, URGENT)) == {"urgent"}
