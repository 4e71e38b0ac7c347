"""Built-in rules that cap what runs go by what is drawn, and not by what jobs have reserved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Reservations
from policies.rules import document
from policies.rules.builtin import texts
from policies.rules.engine import LiveRule, RuleState, step
from policies.rules.modes import Mode
from policies.rules.places import scopes_of
from policies.scopes import ScopeKind
from tests.builders.arrays import make_arrays
from tests.unit.policies.headroom.scenes import NOW, all_read, column, headroom_of

RACKS = 4
#: What a rack draws, and may; and the heat of all four that their zone carries off.
DRAWN_W, BUDGET_W = 12_857.0, 17_400.0
ZONE_W = RACKS * BUDGET_W


def headroom(*, reserved_w: float, zone_w: float = ZONE_W) -> Headroom:
    fleet = make_arrays(racks=RACKS, nodes=2, zone_w=zone_w, budget_w=BUDGET_W)
    reserved = replace(Reservations.none(fleet), rack_w=np.full(RACKS, reserved_w))
    return headroom_of(fleet, all_read(fleet), reservations=reserved)


def fires(name: str, found: Headroom) -> bool:
    """Say whether a built-in rule fires where all stays as it is for a minute."""
    live = LiveRule(1, 1, document.read(texts()[name]), Mode.ACTIVE)
    tables = scopes_of(found, {ScopeKind(live.rule.scope)})
    state: dict[int, RuleState] = {}
    fired = False
    for second in range(0, 62, 2):
        state, changes = step([live], tables, state, NOW + second)
        fired |= bool(changes.fired)
    return fired


def test_a_zone_is_told_what_it_carries_off_beside_what_is_reserved() -> None:
    found = headroom(reserved_w=BUDGET_W)
    zone = {
        name: column(found, ScopeKind.ZONE, f"cooling_{name}")
        for name in ("load_w", "drawn_w", "use", "drawn_use")
    }
    assert zone["load_w"] == [ZONE_W]
    assert zone["drawn_w"] == pytest.approx([RACKS * DRAWN_W], abs=5.0)
    assert zone["use"] == [1.0]
    assert zone["drawn_use"] == pytest.approx([DRAWN_W / BUDGET_W], abs=1e-3)


@pytest.mark.parametrize("name", ["cooling-capacity", "rack-power", "feed-power"])
def test_what_is_all_reserved_and_not_all_drawn_is_not_capped(name: str) -> None:
    assert not fires(name, headroom(reserved_w=BUDGET_W))


def test_a_zone_that_has_more_heat_than_it_carries_off_is() -> None:
    assert fires("cooling-capacity", headroom(reserved_w=0.0, zone_w=RACKS * DRAWN_W))
