"""The controller on the server: from readings to the limits that agents are told, and back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from django.test import Client
from django.utils import timezone

from admission.cycle import holding
from admission.executors.models import Gang
from admission.jobs.models import Attempt, JobEvent, Phase
from admission.policy.models import AdmissionPolicyVersion
from fleet import snapshot
from fleet.models import Rack
from headroom.contracts import Limit, LimitSet
from policies import current
from policies.caps import askers, orders, status
from policies.controller.heat import MARGIN_C
from policies.documents.models import States
from policies.restrictions import limits
from policies.scopes import ScopeKind
from telemetry import stream
from telemetry.directory import invalidate_scopes
from telemetry.limits.models import LimitReport
from tests.builders.accounts import bearer
from tests.builders.agents import make_agent
from tests.builders.fleet import GPU_RATED_W, SLOWDOWN_C, SmallFleet
from tests.integration.admission.cycle.scenes import cycle, phase_of, queued

pytestmark = pytest.mark.django_db

BUDGET_W = 8_500.0
#: Of the GPUs of :class:`Machines`.
HEATS_C_PER_W = 0.05


@dataclass
class Machines:
    """The machines of a small fleet: they draw what they want, but no more than they are told."""

    fleet: SmallFleet
    #: by node, W per GPU
    wants_w: dict[str, float]
    now: float = field(default_factory=time.time)
    limit_w: dict[tuple[str, int], float] = field(default_factory=dict)
    asks: bool = True
    acts: bool = True
    #: by GPU, the air that it gets, °C
    air_c: dict[tuple[str, int], float] = field(default_factory=dict)

    def step(self, seconds: float = 2.0) -> None:
        """Go on for a round: read, decide, and hear."""
        self.now += seconds
        if self.asks:
            askers.note(self.fleet.agent.pk, self.now)
        self.fleet.report(
            at=self.now - 0.5,
            power_w=lambda node, gpu: self.drawn_w(node, gpu),
            power_limit_w=lambda node, gpu: self._limit_w(node, gpu),
            util=lambda node, _: 100.0 if self.wants_w.get(node, 70.0) > 100.0 else 0.0,
            throttle=lambda node, gpu: 4 if self._is_held(node, gpu) else 0,
            temp_c=lambda node, gpu: self.temp_c(node, gpu),
        )
        cycle(self.now)
        if self.acts:
            self.hear(ask(self.fleet))

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def hear(self, told: list[Limit]) -> None:
        self.limit_w = {}
        for each in told:
            indexes = range(self.fleet.gpus_per_node) if each.gpu is None else [each.gpu]
            for gpu in indexes:
                self.limit_w[each.node, gpu] = each.value

    def drawn_w(self, node: str, gpu: int) -> float:
        return min(self.wants_w.get(node, 70.0), self._limit_w(node, gpu))

    def temp_c(self, node: str, gpu: int) -> float:
        """Return how warm a GPU is, in whole degrees: heat settles at once."""
        air_c = self.air_c.get((node, gpu), 20.0)
        return float(round(air_c + HEATS_C_PER_W * self.drawn_w(node, gpu)))

    def rack_w(self, path: str) -> float:
        """Return the load of a rack by its last reading."""
        found = current.headroom(self.now)
        return float(found.summary.racks.load_w[found.fleet.racks.index_by_path[path]])

    def _limit_w(self, node: str, gpu: int) -> float:
        return self.limit_w.get((node, gpu), GPU_RATED_W)

    def _is_held(self, node: str, gpu: int) -> bool:
        return self.wants_w.get(node, 70.0) > self._limit_w(node, gpu)


def ask(fleet: SmallFleet) -> list[Limit]:
    """Return what the agent of a fleet is told."""
    limits.invalidate()
    answer = Client().get("/api/v1/limits", headers=bearer(fleet.token))
    assert answer.status_code == 200, answer.content
    return msgspec.json.decode(answer.content, type=LimitSet).limits


def budget(path: str, watts: float) -> None:
    name = path.split("/")[1]
    assert Rack.objects.filter(name=name).update(budget_w=watts) == 1
    snapshot.invalidate()


def busy(fleet: SmallFleet, path: str, watts: float = 690.0) -> Machines:
    """Have somebody else's load run on all nodes of a rack, whose agents act on limits."""
    ask(fleet)
    return Machines(fleet, dict.fromkeys(fleet.nodes_of(path), watts))


def policy(text: str) -> None:
    now = timezone.now()
    AdmissionPolicyVersion.objects.create(
        name="own", text=f"name: own\n{text}", state=States.ACTIVE, number=1,
        author="ada", reviewer="grace", created_at=now, changed_at=now,
    )  # fmt: skip


def test_load_of_no_known_owner_is_brought_back_under_its_budget_and_stays(
    fleet: SmallFleet,
) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    plant.step()
    assert plant.rack_w("oslo/A01") > BUDGET_W
    plant.steps(2)
    for _ in range(10):
        plant.step()
        assert plant.rack_w("oslo/A01") <= BUDGET_W
    # No more is taken than has to be.
    assert plant.rack_w("oslo/A01") > 0.97 * BUDGET_W
    said = status.read()
    assert said is not None
    assert (said.capped, said.acting, said.gpus) == (8, 16, 16)
    (held,) = said.budgets
    assert (held.scope, held.gpus, held.short_w) == ("rack oslo/A01", 8, 0.0)
    assert (held.gives_way, held.is_over, held.left_alone) == ("unmanaged", False, 0)
    assert held.taken_w == pytest.approx(said.taken_w)
    assert held.taken_w > 100.0


def test_where_the_policy_says_so_load_of_no_known_owner_is_left_alone(fleet: SmallFleet) -> None:
    policy("unmanaged: {capped: false}")
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    plant.steps(4)
    assert ask(fleet) == []
    said = status.read()
    assert said is not None
    assert not said.unmanaged_capped
    (told,) = said.budgets
    assert (told.scope, told.gpus, told.left_alone) == ("rack oslo/A01", 0, 8)
    assert told.left_alone_w == pytest.approx(8 * 690.0)
    assert told.is_unkept
    # By how much it is over is what headroom says, too.
    rack = current.headroom(plant.now).table(ScopeKind.RACK).row("oslo/A01")
    assert told.over_w == pytest.approx(rack["power_drawn_w"] - rack["power_budget_w"])


def test_a_policy_without_a_controller_takes_back_all_caps(fleet: SmallFleet) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    plant.steps(3)
    assert ask(fleet)
    policy("controller: off")
    plant.step()
    assert ask(fleet) == []
    assert status.read() is None


def test_caps_that_stand_are_its_own_also_for_a_controller_that_lost_its_memory(
    fleet: SmallFleet,
) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    plant.steps(6)
    stream.connection().delete("controller:memory")
    for _ in range(20):
        plant.step()
        left = holding.remembered(snapshot.current(), plant.now)
        assert (left.ordered_w < GPU_RATED_W).sum() == 8
        assert np.isinf(left.units.own_limit_w).all()


def test_a_job_starts_once_its_first_cap_shows_and_room_was_made(fleet: SmallFleet) -> None:
    plant = busy(fleet, "oslo/A01", 70.0)
    queued("slow", gpus=8, asks={"lowest_cap_w": 300.0, "max_slowdown": 0.1})
    plant.step()
    attempt = Attempt.objects.get()
    assert attempt.room_by is not None
    assert attempt.placement["power_cap_w"] is None
    assert not Gang.objects.exists()
    plant.steps(4)
    attempt.refresh_from_db()
    assert attempt.room_by is None
    assert Gang.objects.get().key == "slow/train/1"


def test_a_job_for_which_no_room_is_made_waits_again_and_says_why(fleet: SmallFleet) -> None:
    plant = busy(fleet, "oslo/A01", 70.0)
    plant.step()
    for path in fleet.racks:
        # Room for the job as slow as it may be made, and hardly more.
        budget(path, plant.rack_w(path) + 8 * 1.5 * 390.0)
    queued("slow", gpus=8, asks={"lowest_cap_w": 300.0, "max_slowdown": 0.2})
    plant.step()
    assert Attempt.objects.get().room_by is not None
    # Its agents are told its cap and never set it.
    plant.acts = False
    for _ in range(8):
        plant.step(8.0)
    first = Attempt.objects.get(number=1)
    assert (first.state, first.outcome, first.why) == ("ended", "withdrawn", holding.NO_ROOM)
    assert not Gang.objects.exists()
    assert JobEvent.objects.filter(kind="requeued", text__contains="no room").exists()


def test_a_job_that_is_cancelled_while_room_is_made_ends(fleet: SmallFleet) -> None:
    plant = busy(fleet, "oslo/A01", 70.0)
    queued("slow", gpus=8, asks={"lowest_cap_w": 300.0, "max_slowdown": 0.1})
    plant.step()
    Attempt.objects.update(outcome="cancelled")
    plant.steps(2)
    assert phase_of("slow").state == Phase.State.CANCELLED
    assert not Gang.objects.exists()


def test_caps_are_given_back_when_the_load_ends(fleet: SmallFleet) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    plant.steps(5)
    assert ask(fleet)
    plant.wants_w = {}
    plant.steps(5)
    assert ask(fleet) == []


def test_where_agents_do_not_ask_for_limits_nobody_is_told_any(fleet: SmallFleet) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = Machines(
        fleet, dict.fromkeys(fleet.nodes_of("oslo/A01"), 690.0), asks=False, acts=False
    )
    plant.steps(3)
    assert len(orders.current(plant.now)) == 0
    assert status.read() is None


def test_a_gpu_that_loses_its_air_is_held_below_its_slowdown_and_let_go_when_it_is_cool(
    fleet: SmallFleet,
) -> None:
    plant = busy(fleet, "oslo/A01")
    one, _ = fleet.nodes_of("oslo/A01")
    plant.steps(3)
    assert ask(fleet) == []
    for air_c in range(20, 60, 2):
        plant.air_c[one, 2] = float(air_c)
        plant.step()
        assert plant.temp_c(one, 2) < SLOWDOWN_C
    plant.steps(10)
    assert plant.temp_c(one, 2) == pytest.approx(SLOWDOWN_C - MARGIN_C, abs=1.0)
    # Nobody knows whose load that is, so the GPUs of the node are one.
    assert {(limit.node, limit.gpu) for limit in ask(fleet)} == {(one, None)}
    said = status.read()
    assert said is not None
    (hot,) = said.heated
    assert (hot.gpu, hot.gpus, hot.racks) == (f"{one}/2", 4, ("oslo/A01",))
    assert (hot.temp_c, hot.slowdown_c) == (plant.temp_c(one, 2), SLOWDOWN_C)
    assert hot.cap_w == plant.limit_w[one, 2] < 600.0
    # What is lost is learned anew, from the safe side.
    stream.connection().delete("controller:memory")
    for _ in range(5):
        plant.step()
        assert plant.temp_c(one, 2) < SLOWDOWN_C
    plant.air_c = {}
    for _ in range(20):
        plant.step(10.0)
    assert ask(fleet) == []
    said = status.read()
    assert said is not None
    assert said.heated == ()


def test_caps_outlive_a_store_that_was_emptied(fleet: SmallFleet) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    plant.steps(5)
    before = ask(fleet)
    stream.connection().delete("controller:orders", "controller:orders:version")
    time.sleep(0.6)
    assert ask(fleet) == before


def test_load_whose_agents_begin_to_act_does_not_count_twice(fleet: SmallFleet) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    one, other = fleet.nodes_of("oslo/A01")
    # The agent of a node acts from the first, that of the other one from later on.
    first, _ = make_agent("first", nodes=[fleet.nodes[one]])
    invalidate_scopes()
    stream.connection().flushdb()
    holding.forget()
    plant.asks = plant.acts = False
    for _ in range(3):
        askers.note(first.pk, plant.now + 2.0)
        plant.step()
    told = orders.by_node(orders.current(plant.now), snapshot.current())
    assert {limit.node for _, limit in told} == {one}
    plant.asks = plant.acts = True
    plant.steps(8)
    assert {limit.node for limit in ask(fleet)} == {one, other}
    assert plant.rack_w("oslo/A01") > 0.97 * BUDGET_W


def test_a_node_whose_agent_could_not_set_a_cap_is_not_counted_on(fleet: SmallFleet) -> None:
    budget("oslo/A01", BUDGET_W)
    plant = busy(fleet, "oslo/A01")
    one, other = fleet.nodes_of("oslo/A01")
    at = datetime.fromtimestamp(plant.now, UTC)
    LimitReport.objects.create(
        agent=fleet.agent, node=fleet.nodes[one], gpu_index=2, kind="power_cap_w", state="refused",
        limit="controller-node-1", at=at, received_at=at, asked=400.0, boot_id="b", seq=1,
        error="no permission",
    )  # fmt: skip
    plant.steps(3)
    said = status.read()
    assert said is not None
    assert said.acting == 15
    # The other GPUs of that node are held, and that one is not.
    assert {limit.gpu for limit in ask(fleet) if limit.node == one} == {0, 1, 3}
    assert {limit.gpu for limit in ask(fleet) if limit.node == other} == {None}
