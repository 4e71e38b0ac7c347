"""Agents of a world: who sets limits, and when one that hears nothing lets go."""

from __future__ import annotations

import numpy as np
import pytest

from lab.twin import NO_FAILURES, Twin
from lab.world.agents import LIMITS_VALID_FOR_S, Agents
from tests.unit.lab.world.builders import tight_fleet

FIRST = np.arange(8)


def make_agents(acts: bool = True) -> tuple[Agents, Twin]:
    fleet = tight_fleet()
    twin = Twin(fleet, seed=1, failures=NO_FAILURES)
    site_of_node = fleet.site_of_rack[fleet.rack_of_node]
    return Agents(twin, site_of_node, np.full(len(fleet.nodes), acts)), twin


def go_on(agents: Agents, twin: Twin, seconds: float) -> bool:
    """Go on; say whether any agent let go."""
    found = False
    for _ in range(round(seconds / 2.0)):
        twin.advance(2.0)
        found |= agents.step()
    return found


def test_the_lowest_of_what_restrictions_and_the_controller_say_is_set() -> None:
    agents, twin = make_agents()
    agents.hear_of_orders(FIRST, np.full(8, 500.0))
    none = np.full(len(twin.cap_w), np.inf)
    agents.hear_of_restrictions(np.where(np.arange(len(none)) < 4, 400.0, np.inf), none)
    assert twin.cap_w[:8].tolist() == [400.0] * 4 + [500.0] * 4
    agents.hear_of_restrictions(none, none)
    assert twin.cap_w[:8].tolist() == [500.0] * 8


def test_an_agent_that_only_reads_sets_nothing_of_restrictions() -> None:
    agents, twin = make_agents(acts=False)
    agents.hear_of_restrictions(np.full(len(twin.cap_w), 400.0), np.full(len(twin.cap_w), np.inf))
    assert np.isinf(twin.cap_w).all()


def test_who_is_cut_off_keeps_limits_for_as_long_as_the_last_answer_counts() -> None:
    agents, twin = make_agents()
    agents.hear_of_orders(FIRST, np.full(8, 500.0))
    twin.conditions.site_isolated[:] = True
    assert not go_on(agents, twin, LIMITS_VALID_FOR_S)
    assert (twin.cap_w[:8] == 500.0).all()
    assert go_on(agents, twin, 4.0)
    assert np.isinf(twin.cap_w).all()
    agents.hear_of_orders(FIRST, np.full(8, 500.0))
    assert np.isinf(twin.cap_w).all(), "it hears nothing"
    twin.conditions.site_isolated[:] = False
    agents.hear_of_orders(FIRST, np.full(8, 500.0))
    assert (twin.cap_w[:8] == 500.0).all()


@pytest.mark.parametrize("seconds", [LIMITS_VALID_FOR_S, 2 * LIMITS_VALID_FOR_S])
def test_one_that_is_dead_leaves_what_it_set(seconds: float) -> None:
    agents, twin = make_agents()
    agents.hear_of_orders(FIRST, np.full(8, 500.0))
    twin.conditions.node_silent[:] = True
    assert not go_on(agents, twin, seconds)
    assert (twin.cap_w[:8] == 500.0).all()
