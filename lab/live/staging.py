"""A scenario as a demo plays it: its fleet under names of its own, and its faults by the clock.

The faults are conditions of a twin in this process, and are written anew before each of its steps,
from the scenario and the clock alone. So they end by the clock, and with the process.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from lab.demo import Stage, agent_specs
from lab.fleet import Fleet, inventory_yaml
from lab.matrix.scenario import FaultKind, Scenario
from lab.scenarios.faults import Faults, cannot_do
from lab.scenarios.play import fleet_of
from lab.twin import Twin

__all__ = ["Play", "cannot_do_live", "own_sites"]


def cannot_do_live(scenario: Scenario) -> str:
    """Return why a scenario cannot be run against a server; "": it can."""
    if any(fault.kind is FaultKind.POWER_BUDGET for fault in scenario.faults):
        return (
            "power_budget: budgets stand in the server's inventory, and one that is lowered there "
            "would stay lowered if this command were killed"
        )
    return cannot_do(scenario)


def own_sites(fleet: Fleet, prefix: str) -> Fleet:
    """Return the fleet with sites of other names, so that it disturbs no fleet of the server."""
    racks = tuple(replace(rack, site=f"{prefix}-{rack.site}") for rack in fleet.racks)
    return replace(fleet, racks=racks)


@dataclass
class Play:
    """A scenario that is played: see :attr:`stage`. Its time begins when the agents push."""

    scenario: Scenario
    seed: int
    twin: Twin = field(init=False)
    stage: Stage = field(init=False)
    _began_s: float | None = None

    def __post_init__(self) -> None:
        fleet = fleet_of(self.scenario.fleet)
        # Faults are on places as the scenario names them; arrays are the same under other names.
        self._faults = Faults(self.scenario, fleet, seed=self.seed)
        named = own_sites(fleet, self.scenario.name)
        every_node = np.ones(len(named.nodes), dtype=np.bool_)
        self.twin = Twin(named, seed=self.seed, queued=every_node)
        self.stage = Stage(
            self.twin,
            inventory_yaml(named),
            agent_specs(named),
            begin=self._begin,
            before_step=self._write_conditions,
        )

    @property
    def fleet(self) -> Fleet:
        return self.twin.fleet

    @property
    def now_s(self) -> float | None:
        """How far the scenario is; None: it has not begun."""
        return None if self._began_s is None else self.twin.now_s - self._began_s

    def _begin(self) -> None:
        self._began_s = self.twin.now_s

    def _write_conditions(self) -> None:
        now_s = self.now_s
        if now_s is not None:
            self._faults(now_s, self.twin.conditions)
