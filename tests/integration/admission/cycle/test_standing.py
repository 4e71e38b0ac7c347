"""A grid asks a site for less: who agreed to it stands still, in time, and goes on afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from accounts.roles import Role
from admission.allocation import open_attempts
from admission.directives.models import Directive
from admission.executors.models import Gang
from admission.jobs.models import Attempt, JobEvent
from policies import current
from policies.caps import status
from policies.restrictions.kinds import HELD_BEFORE
from policies.scopes import ScopeKind
from telemetry import stream
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import phase_of
from tests.integration.admission.cycle.test_holding import Machines, ask
from tests.integration.admission.directives.scenes import obey, running

pytestmark = pytest.mark.django_db

WORK_W, STILL_W = 650.0, 60.0
#: Less by so much than slowing by a tenth takes off, and more than is left without a pause.
LESS_W = 3_500.0
STEP_S = 4.0


@dataclass
class Plant(Machines):
    """Machines with a job that may be slowed by a tenth and pause, and one that agreed to nothing.

    Each has a rack of its own.
    """

    obeys: bool = True

    def __post_init__(self) -> None:
        ask(self.fleet)
        self.flexible = running(
            self.fleet, "llama", self.fleet.nodes_of("oslo/A01"), now=self.now,
            asks={"gpu_peak_w": WORK_W, "lowest_cap_w": 200.0, "max_slowdown": 0.1},
        )  # fmt: skip
        self.firm = running(
            self.fleet, "build", self.fleet.nodes_of("oslo/A02"), now=self.now,
            job_class="latency-sensitive-inference-build", asks={"gpu_peak_w": WORK_W},
        )  # fmt: skip

    def step(self, seconds: float = STEP_S) -> None:
        # What changes is seen by the transactions that wrote it, and a test is one transaction.
        open_attempts.invalidate()
        super().step(seconds)
        if self.obeys:
            last = self._told(self.flexible)
            if last in ("pause", "resume"):
                obey(self.flexible, state="paused" if last == "pause" else "running")
                watts = STILL_W if last == "pause" else WORK_W
                self.wants_w |= dict.fromkeys(self.fleet.nodes_of("oslo/A01"), watts)

    @staticmethod
    def _told(attempt: Attempt) -> str:
        signals = Gang.objects.get(key=attempt.key).signals
        return str(signals[-1]["kind"]) if signals else ""

    @property
    def site_w(self) -> float:
        return float(current.headroom(self.now).powers[ScopeKind.SITE].drawn_w[0])

    def firm_limit_w(self) -> float:
        return min(self._limit_w(node, 0) for node in self.fleet.nodes_of("oslo/A02"))

    def until(self, second: float) -> None:
        while self.now < second:
            self.step()


@pytest.fixture
def plant(fleet: SmallFleet) -> Plant:
    made = Plant(fleet, dict.fromkeys(fleet.nodes, WORK_W))
    # Long enough to know what both draw.
    made.now -= 80.0
    made.steps(20)
    return made


def curtail(plant: Plant, path: str = "", **given: Any) -> Any:
    asked = {
        "site": "oslo", "to_w": plant.site_w - LESS_W, "in_s": 60, "for_s": 60,
        "reason": "a cold morning", **given,
    }  # fmt: skip
    client: Client = api_client(Role.OPERATOR)
    answer = client.post(f"/api/v1/curtailments{path}", asked, content_type="application/json")
    assert answer.status_code in (200, 201), answer.content
    return answer.json()


def test_it_is_met_in_time_by_pauses_and_nobody_else_is_slowed(plant: Plant) -> None:
    cost = curtail(plant, "?dry_run=1")["estimate"]
    assert cost["is_possible"]
    (measure,) = cost["measures"]
    assert (measure["key"], measure["what"]) == ("llama/train/1", "pause")
    assert not Directive.objects.exists()

    row = curtail(plant)
    starts, ends = (
        datetime.fromisoformat(row[name]).timestamp() for name in ("starts_at", "ends_at")
    )
    plant.until(starts - HELD_BEFORE.total_seconds() - STEP_S)
    assert not Directive.objects.exists()
    while plant.now < ends - STEP_S:
        plant.step()
        assert plant.firm_limit_w() >= WORK_W, plant.now - starts
        if plant.now >= starts:
            assert plant.site_w <= row["target_w"]
    pause = Directive.objects.get()
    assert (pause.kind, pause.owner, pause.attempt) == ("pause", "controller", plant.flexible)
    until = datetime.fromtimestamp(ends, UTC)
    assert f"until {until:%Y-%m-%d %H:%M UTC} (a cold morning)" in pause.reason
    assert phase_of("llama").state == "paused"
    told = JobEvent.objects.get(kind="directive")
    assert told.text.startswith("asked to pause: site oslo may draw")
    said = status.read()
    assert said is not None
    assert said.paused == 1

    plant.until(ends + 20.0)
    pause.refresh_from_db()
    assert pause.ended_why == "there is room again"
    assert phase_of("llama").state == "running"
    assert plant.site_w == pytest.approx(row["target_w"] + LESS_W, rel=0.02)


def test_where_nobody_comes_to_rest_all_are_slowed_before_it_counts(plant: Plant) -> None:
    plant.obeys = False
    row = curtail(plant)
    starts = datetime.fromisoformat(row["starts_at"]).timestamp()
    plant.until(starts)
    assert Directive.objects.filter(kind="pause", owner="controller").exists()
    assert plant.firm_limit_w() < WORK_W
    assert plant.site_w <= row["target_w"]


def test_what_stands_still_goes_on_under_its_lowest_cap(plant: Plant) -> None:
    row = curtail(plant, for_s=600)
    starts = datetime.fromisoformat(row["starts_at"]).timestamp()
    plant.until(starts)
    told = {limit.node: limit.value for limit in ask(plant.fleet)}
    for node in plant.fleet.nodes_of("oslo/A01"):
        assert told[node] < 0.85 * WORK_W


def test_where_slowing_is_enough_nobody_stands_still(plant: Plant) -> None:
    row = curtail(plant, to_w=plant.site_w - 500.0)
    starts = datetime.fromisoformat(row["starts_at"]).timestamp()
    plant.until(starts + 10.0)
    assert plant.site_w <= row["target_w"]
    assert not Directive.objects.exists()


def test_a_lost_memory_ends_no_pause_that_is_still_needed_for_long(plant: Plant) -> None:
    row = curtail(plant, for_s=600)
    starts = datetime.fromisoformat(row["starts_at"]).timestamp()
    plant.until(starts)
    stream.connection().delete("controller:memory")
    plant.steps(10)
    assert phase_of("llama").state == "paused"
    assert plant.site_w <= row["target_w"]


def test_what_jobs_draw_that_stand_still_is_known_the_next_time(plant: Plant) -> None:
    first = curtail(plant, "?dry_run=1")["estimate"]
    row = curtail(plant)
    ends = datetime.fromisoformat(row["ends_at"]).timestamp()
    plant.until(ends + 40.0)
    assert phase_of("llama").state == "running"
    second = curtail(plant, "?dry_run=1")["estimate"]
    gpus = sum(map(len, plant.flexible.placement["gpus"].values()))
    assert second["least_target_w"] < first["least_target_w"] - 40.0 * gpus


def test_who_would_be_slowed_beyond_what_was_agreed_is_said_beforehand(plant: Plant) -> None:
    """By the controller, which slows them last, and then does."""
    asked: dict[str, Any] = {"to_w": plant.site_w - 2.2 * LESS_W, "even_if_short": True}
    cost = curtail(plant, "?dry_run=1", **asked)["estimate"]
    what = {each["key"]: each["what"] for each in cost["measures"]}
    assert what == {"llama/train/1": "pause", "build/train/1": "beyond"}
    assert (cost["beyond"], cost["is_possible"]) == (1, False)
    assert cost["sure"] < 0.1
    row = curtail(plant, **asked)
    plant.until(datetime.fromisoformat(row["starts_at"]).timestamp())
    assert plant.firm_limit_w() < WORK_W
