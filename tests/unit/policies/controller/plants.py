"""A fleet of GPUs that obey caps late, for tests of the controller."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fleet.tables import FleetArrays
from policies.controller.control import (
    Budgets,
    Controlled,
    Kind,
    Memory,
    Plant,
    Tuning,
    Units,
    control,
)
from policies.headroom.reach import Reach
from tests.builders.arrays import make_arrays

STATIC_W, DYNAMIC_W, RATED_W, EXPONENT = 250.0, 400.0, 700.0, 5.0
HOST_W = 2_000.0
STEP_S = 2.0


def make_fleet(**given: Any) -> FleetArrays:
    """Return one row of three racks with two nodes of eight GPUs each."""
    return make_arrays(**{"sites": 1, "racks": 3, "nodes": 2, "gpus": 8, **given})


def make_units(gpus: list[list[int]], **given: Any) -> Units:
    """Return units of these GPUs, all of them firm and running, if it is not said otherwise."""
    count = len(gpus)
    fields: dict[str, Any] = {
        "id": np.arange(1, count + 1),
        "kind": np.full(count, int(Kind.FIRM)),
        "lowest_speed": np.ones(count),
        "told_w": np.full(count, RATED_W),
        "lowest_cap_w": np.zeros(count),
        "is_starting": np.zeros(count, dtype=bool),
        "gpu": np.array([gpu for each in gpus for gpu in each], dtype=np.int64),
        "unit": np.repeat(np.arange(count), [len(each) for each in gpus]),
    }
    return Units(**{**fields, **{name: np.asarray(value) for name, value in given.items()}})


@dataclass
class Shop:
    """GPUs with work, in a fleet with budgets. ``work`` is each GPU's share of a full load."""

    fleet: FleetArrays
    budget_w: np.ndarray[Any, np.dtype[np.float64]]
    #: steps until a cap is in force
    delay: int = 2
    tuning: Tuning = field(default_factory=Tuning)
    at: float = 1_000.0
    #: what hosts are taken to draw for each W of their GPUs, and what they draw for each at work, W
    host_share: float = 0.0
    host_works_w: float = 0.0

    def __post_init__(self) -> None:
        count = len(self.fleet.gpus)
        self.reach = Reach.of(self.fleet)
        self.rack = self.fleet.nodes.rack[self.fleet.gpus.node]
        self.cap_w = np.full(count, np.inf)
        #: what agents were told last, and hear later
        self.ordered_w = np.full(count, np.inf)
        #: what somebody else has set
        self.own_limit_w = np.full(count, RATED_W)
        self.work = np.zeros(count)
        self.runs = np.zeros(count, dtype=bool)
        self.memory = Memory()
        self.heat_w = np.full(count, np.inf)
        self._orders: deque[Any] = deque()

    @property
    def limit_w(self) -> Any:
        return np.minimum(self.cap_w, self.own_limit_w)

    @property
    def clock(self) -> Any:
        room_w = np.maximum(self.limit_w - STATIC_W, 1e-9)
        wanted_w = np.maximum(DYNAMIC_W * self.work, 1e-9)
        return np.minimum(room_w / wanted_w, 1.0) ** (1.0 / EXPONENT)

    @property
    def drawn_w(self) -> Any:
        busy_w = STATIC_W + DYNAMIC_W * self.work * self.clock**EXPONENT
        return np.where(self.runs, busy_w, 70.0)

    @property
    def load_w(self) -> Any:
        """What each budget carries."""
        gpus_w = self.drawn_w + np.where(self.runs & (self.work > 0.5), self.host_works_w, 0.0)
        nodes = np.bincount(self.fleet.gpus.node, gpus_w, len(self.fleet.nodes)) + HOST_W
        racks = np.bincount(self.fleet.nodes.rack, nodes, len(self.fleet.racks))
        return self.reach.of_racks(racks.astype(np.float64))

    @property
    def over_w(self) -> float:
        return float(np.nanmax(self.load_w - self.budget_w))

    def plant(self) -> Plant:
        count = len(self.fleet.gpus)
        return Plant(
            rack=self.rack,
            drawn_w=self.drawn_w,
            limit_w=self.limit_w,
            ordered_w=self.ordered_w,
            is_held=self.runs & (self.clock < 1.0),
            clock_share=np.where(self.runs, self.clock, np.nan),
            host_share=np.full(count, self.host_share),
            static_w=np.full(count, STATIC_W),
            exponent=np.full(count, EXPONENT),
            linear_share=np.zeros(count),
            least_w=np.full(count, 0.25 * RATED_W),
            most_w=np.full(count, RATED_W),
            heat_w=self.heat_w,
        )

    def look(self, units: Units) -> Controlled:
        """Decide, without any time going by."""
        budgets = Budgets(self.reach, self.budget_w, self.load_w)
        found = control(self.plant(), units, budgets, self.memory, now=self.at, tuning=self.tuning)
        self.memory = found.memory
        return found

    def step(self, units: Units) -> Controlled:
        """Decide, and let a step go by: what was decided so many steps ago comes into force."""
        found = self.look(units)
        cap_w = np.full(len(self.cap_w), np.inf)
        cap_w[units.gpu] = found.cap_w[units.unit]
        self.ordered_w = cap_w
        self._orders.append(cap_w)
        if len(self._orders) > self.delay:
            self.cap_w = self._orders.popleft()
        self.at += STEP_S
        return found


def rack_budgets(reach: Reach, watts: float) -> Any:
    """Return budgets of which only those of racks are there."""
    budget_w = np.full(reach.count, np.nan)
    budget_w[: len(reach.fleet.racks)] = watts
    return budget_w
