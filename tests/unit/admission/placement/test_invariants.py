"""What must never happen, over random fleets, gangs, readings, silence and restrictions.

Plain loops count anew what gangs have reserved and everybody else draws, and know nothing of the
cluster's arrays.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from admission.core.placement.cluster import Cluster, beside_w
from admission.core.placement.place import fits_empty, place
from admission.core.request import Placement, Request
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.inputs import Reservations
from policies.restrictions.strictest import ActiveRestriction, InForce
from tests.builders.arrays import make_frame
from tests.unit.admission.placement.fleets import any_fleet, any_request
from tests.unit.admission.placement.scenes import NOW, Loads, make_restriction, with_resistance

seeds = st.integers(0, 2**32 - 1)


class FleetUnderLoad(RuleBasedStateMachine):
    """A fleet on which gangs come and go while the rest of the world does as it likes."""

    @initialize(seed=seeds)
    def begin(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.fleet = any_fleet(rng)
        count = len(self.fleet.gpus)
        self.past = with_resistance(self.fleet, rng.uniform(0.06, 0.12, count))
        self.gangs: dict[str, tuple[Request, Placement]] = {}
        self.refused: list[Request] = []
        self.restrictions: list[ActiveRestriction] = []
        self.silent = np.zeros(len(self.fleet.nodes), dtype=bool)
        self.busy = np.zeros(count, dtype=bool)
        self.idle_w = np.full(count, 70.0)
        self.number = 0
        self.cycle()

    # --- What happens -----------------------------------------------------------------------------

    @rule(seed=seeds, count=st.integers(1, 8))
    def jobs_come(self, seed: int, count: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(count):
            self.number += 1
            self.a_job_comes(any_request(rng, self.number))

    def a_job_comes(self, request: Request) -> None:
        found = place(self.cluster, request)
        assert place(self.cluster, request) == found
        if not isinstance(found, Placement):
            assert found.reasons
            assert all(each.sentence and each.short >= 0.0 for each in found.reasons)
            self.refused.append(request)
            return
        assert self.cluster.admits(found, request)
        self.check_whole(found, request)
        self.check_allowed(found)
        self.cluster.allocate(found, request)
        self.gangs[request.key] = (request, found)
        self.check_limits(found)

    @precondition(lambda self: self.gangs)
    @rule(choice=st.integers(0, 100))
    def a_job_ends(self, choice: int) -> None:
        key = sorted(self.gangs)[choice % len(self.gangs)]
        request, placement = self.gangs.pop(key)
        self.cluster.free(placement, request)
        # Until somebody reads them again, they are taken to idle as they are rated.
        self.idle_w[list(placement.gpus)] = self.gpu_w[list(placement.gpus)] = 70.0

    @rule(seed=seeds)
    def readings_move(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.idle_w = rng.uniform(50.0, 110.0, len(self.fleet.gpus))
        self.busy = rng.random(len(self.fleet.gpus)) < rng.choice([0.0, 0.1, 0.4])
        self.busy &= ~self.held()
        self.cycle()

    @rule(seed=seeds)
    def nodes_fall_silent(self, seed: int) -> None:
        """Silence frees nothing: no limit has more left, and no GPU more is free."""
        self.cycle()
        before = self.cluster
        rng = np.random.default_rng(seed)
        self.silent |= rng.random(len(self.silent)) < 0.3
        self.cycle()
        assert (self.cluster.room_w <= before.room_w + 0.01).all()
        assert not (self.cluster.gpu_free & ~before.gpu_free).any()

    @rule()
    def all_speak_again(self) -> None:
        self.silent[:] = False
        self.cycle()

    @rule(kind=st.sampled_from(["no_new_launches", "drain", "power_cap_w", "prefer_away"]),
          choice=st.integers(0, 100))  # fmt: skip
    def a_restriction_comes(self, kind: str, choice: int) -> None:
        path = self.fleet.racks.paths[choice % len(self.fleet.racks)]
        value = 400.0 if kind == "power_cap_w" else None
        self.restrictions.append(make_restriction(kind, f"rack {path}", value))
        self.cycle()

    @rule()
    def restrictions_end(self) -> None:
        self.restrictions.clear()
        self.cycle()

    def cycle(self) -> None:
        """Make the cluster anew of what is read and reserved, as the next cycle does."""
        self.headroom = self.evaluated()
        self.gpu_w = self.headroom.summary.gpus.load_w.copy()
        reserved_w, held = np.zeros(len(self.fleet.nodes)), self.held()
        for _, placement in self.gangs.values():
            reserved_w[list(placement.nodes)] += placement.peak_w
        reserved_w += np.where(reserved_w > 0, beside_w(self.headroom, held), 0.0)
        reserved = replace(Reservations.none(self.fleet), node_w=reserved_w)
        in_force = InForce(datetime.fromtimestamp(NOW, UTC), tuple(self.restrictions))
        self.cluster = Cluster.of(
            replace(self.headroom, reservations=reserved), in_force, held | self.busy, now=NOW
        )

    def held(self) -> np.ndarray:
        held = np.zeros(len(self.fleet.gpus), dtype=bool)
        for _, placement in self.gangs.values():
            held[list(placement.gpus)] = True
        return held

    def evaluated(self) -> Headroom:
        power_w = np.where(self.busy, 600.0, self.idle_w)
        for _, placement in self.gangs.values():
            # Less than what was reserved: it has not warmed up yet.
            power_w[list(placement.gpus)] = 150.0
        ts = np.where(self.silent[self.fleet.gpus.node], NOW - 600.0, NOW)
        gpu = {"power_w": power_w, "temp_c": 40.0, "ts": ts}
        frame = make_frame(self.fleet, now=NOW, gpu=gpu)
        return evaluate(self.fleet, frame, now=NOW, past=self.past)

    # --- What must hold ---------------------------------------------------------------------------

    def check_whole(self, found: Placement, request: Request) -> None:
        """A gang is whole or absent, on free GPUs, and as close together as it has to be."""
        assert request.min_gpus <= len(found.gpus) <= request.gpus
        assert len(set(found.gpus)) == len(found.gpus)
        taken = self.held()[list(found.gpus)] | self.busy[list(found.gpus)]
        assert not taken.any()
        assert not self.silent[list(found.nodes)].any()
        assert found.locality <= request.required
        if request.gpus_per_node:
            per_node = np.bincount(self.fleet.gpus.node[list(found.gpus)])[list(found.nodes)]
            assert (per_node == request.gpus_per_node).all()
        lost = 1.0 - len(found.gpus) / request.gpus
        if found.power_cap_w is None:
            assert found.slowdown == pytest.approx(lost)
        else:
            assert request.lowest_cap_w is not None
            assert found.power_cap_w >= request.lowest_cap_w
            kept = (1.0 - found.slowdown) * request.gpus / len(found.gpus)
            assert 1.0 - kept <= request.max_slowdown + 1e-6

    def check_allowed(self, found: Placement) -> None:
        """No restriction in force keeps it from where it stands, nor heat from what it draws."""
        for each in self.restrictions:
            if each.scope.name not in found.racks:
                continue
            assert each.kind.value in ("power_cap_w", "prefer_away")
            if each.kind.value == "power_cap_w":
                assert self.draw_w(found) <= 400.0
        fits, gpus = self.past.thermal, list(found.gpus)
        settled_c = fits.ambient_c[gpus] + fits.resistance_c_per_w[gpus] * self.draw_w(found)
        assert (settled_c <= self.fleet.gpus.slowdown_c[gpus] + 1e-6).all()

    def draw_w(self, found: Placement) -> float:
        """Return what each GPU of a gang draws, W: the rest of its peak is that of hosts."""
        node = found.nodes[0]
        gpus = int((self.fleet.gpus.node[list(found.gpus)] == node).sum())
        host_w = self.fleet.nodes.host_idle_w[node] * gpus / 4
        factor = 1.0 + (
            self.fleet.nodes.host_rated_w[node] - self.fleet.nodes.host_idle_w[node]
        ) / (4 * 700.0)
        return float((found.peak_w[0] - host_w) / factor / gpus) - 0.01

    def check_limits(self, found: Placement) -> None:
        """What is reserved and what others draw is within all that the gang draws on."""
        gangs = [placement for _, placement in self.gangs.values()]
        loads = Loads.of(self.fleet, self.gpu_w, gangs)
        racks = self.fleet.nodes.rack[list(found.nodes)].tolist()
        assert loads.excess_w(racks) == {}

    def teardown(self) -> None:
        """Whatever would fit an empty fleet starts once all others have gone: nothing is lost."""
        if not hasattr(self, "gangs"):
            return
        for request, placement in self.gangs.values():
            self.cluster.free(placement, request)
        self.gangs.clear()
        self.restrictions.clear()
        self.silent[:] = self.busy[:] = False
        self.idle_w[:] = 70.0
        self.cycle()
        for request in self.refused[-5:]:
            could, can = fits_empty(self.cluster, request), place(self.cluster, request)
            assert isinstance(could, Placement) == isinstance(can, Placement)


TestFleetUnderLoad = FleetUnderLoad.TestCase
TestFleetUnderLoad.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)


class LongLoad(FleetUnderLoad):
    """The same for longer."""


TestLongLoad = pytest.mark.slow(LongLoad.TestCase)
TestLongLoad.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)
