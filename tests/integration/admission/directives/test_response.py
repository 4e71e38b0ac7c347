"""Jobs give way as their margins want it, are told so once, and go on when there is room again."""

from __future__ import annotations

import numpy as np
import pytest

from admission.directives.models import Control, Directive
from admission.directives.placed import placed_on
from admission.directives.step import step
from admission.jobs.models import JobEvent
from fleet import snapshot
from fleet.models import Rack
from policies import current
from policies.headroom.reach import Room, margins_by_rack, reach_of
from policies.restrictions.models import Restriction
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind
from tests.builders.fleet import SmallFleet
from tests.integration.admission.directives.scenes import (
    IDLE_W,
    RACK,
    WORK_W,
    Clock,
    control,
    end,
    lines,
    obey,
    only,
    running,
    signals,
)

pytestmark = pytest.mark.django_db
KIND, STATE = Directive.Kind, Directive.State


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    """All that stands in the first rack is at work."""
    made = Clock(fleet)
    made.power_w |= dict.fromkeys(fleet.nodes_of(RACK), WORK_W)
    return made


def budget(watts: float) -> None:
    Rack.objects.update(budget_w=watts)
    snapshot.invalidate()


def test_from_a_small_margin_to_the_verdict_and_back(fleet: SmallFleet, clock: Clock) -> None:
    nodes = fleet.nodes_of(RACK)
    attempt = running(fleet, "llama", nodes, now=clock.now)
    clock.run(60, until=Directive.objects.exists)
    row = only()
    assert (row.kind, row.value, row.owner) == (KIND.SET_BATCH_SCALE, 0.5, "response")
    assert row.evidence["scope"] == {"kind": "rack", "name": RACK}
    assert "of the tightest budget is left" in row.reason
    assert signals(attempt) == [("set_batch_scale", 0.5)]
    assert control(attempt).batch_scale == 0.5
    told = JobEvent.objects.get(kind="directive")
    assert told.text.startswith("asked 0.5 of the batch")

    obey(attempt)
    clock.step()
    applied_at = clock.now
    assert lines(only()) == ["issued", "acknowledged", "applied"]
    clock.power_w |= dict.fromkeys(nodes, 380.0)
    clock.temp_c = 57.0
    clock.rest(75)
    assert only().state == STATE.MEASURED
    for _ in range(3):
        clock.rest(45)
    row = only()
    assert (row.state, row.outcome) == (STATE.VERDICT, "holds")
    assert row.note.startswith("asked 0.5 of the batch: -2.2 kW in ")
    assert row.note.endswith("°C")
    verdict = row.events.get(kind="verdict")
    assert verdict.at.timestamp() == pytest.approx(applied_at + 180)
    assert signals(attempt) == [("set_batch_scale", 0.5)], "it was told once"

    budget(20_000.0)
    clock.run(60, until=lambda: only().ended_at is not None)
    assert only().ended_why == "there is room again"
    assert signals(attempt)[-1] == ("set_batch_scale", 1.0)
    obey(attempt)
    clock.step()
    assert lines(only())[-2:] == ["released", "undone"]
    assert only().is_closed
    assert control(attempt).batch_scale == 1.0
    assert clock.step().unfinished == 0


def test_with_room_enough_nothing_is_written(fleet: SmallFleet, clock: Clock) -> None:
    budget(20_000.0)
    running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    clock.run(30)
    assert not Directive.objects.exists()
    assert not Control.objects.exists()


def test_only_jobs_that_agree_to_something_are_told(fleet: SmallFleet, clock: Clock) -> None:
    running(
        fleet, "build", fleet.nodes_of(RACK), now=clock.now,
        job_class="latency-sensitive-inference-build",
    )  # fmt: skip
    clock.run(40)
    assert not Directive.objects.exists()


def test_one_that_cannot_shrink_is_capped_and_its_gpus_with_it(
    fleet: SmallFleet, clock: Clock
) -> None:
    nodes = fleet.nodes_of(RACK)
    attempt = running(
        fleet, "validate", nodes, now=clock.now, job_class="cross-site-validation",
        asks={"gpu_peak_w": 650.0, "lowest_cap_w": 400.0, "max_slowdown": 0.4},
    )  # fmt: skip
    clock.run(60, until=Directive.objects.exists)
    row = only()
    assert (row.kind, row.value) == (KIND.SET_POWER_CAP, 405.0)
    assert signals(attempt) == [("set_power_cap", 405.0)]
    caps = Restriction.objects.values_list("scope_name", "value", "state")
    assert set(caps) == {(node, 405.0, "in_force") for node in nodes}
    budget(20_000.0)
    clock.step()
    clock.rest(120)
    assert signals(attempt)[-1] == ("set_power_cap", None)
    assert set(Restriction.objects.values_list("state", flat=True)) == {"released"}


def test_one_that_pauses_is_to_go_on_as_a_smaller_one(fleet: SmallFleet, clock: Clock) -> None:
    attempt = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    budget(4_000.0)
    clock.run(60, until=Directive.objects.exists)
    assert set(Directive.objects.values_list("kind", flat=True)) == {"set_batch_scale", "pause"}
    assert signals(attempt) == [("set_batch_scale", 0.5), ("pause", None)]


def test_what_a_step_that_died_has_not_told_the_next_one_tells(
    fleet: SmallFleet, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    with monkeypatch.context() as broken:
        broken.setattr("admission.directives.step.deliver", _dies)
        while not Directive.objects.exists():
            clock.now += 15
            clock.read()
            step(clock.now)
    assert only().signal_seq is None
    assert signals(attempt) == []
    clock.step()
    clock.step()
    assert signals(attempt) == [("set_batch_scale", 0.5)]
    assert Directive.objects.count() == 1


def _dies(*args: object, **kwargs: object) -> int:
    raise RuntimeError("killed")


def test_after_a_long_silence_of_the_server_leases_are_over_and_jobs_as_before(
    fleet: SmallFleet, clock: Clock
) -> None:
    attempt = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    clock.obedient = [attempt]
    clock.run(60, until=Directive.objects.exists)
    clock.step()
    clock.now += 600
    budget(20_000.0)
    clock.step()
    row = only()
    assert row.ended_why == "its lease ran out"
    assert row.ended_at == row.expires_at
    assert signals(attempt)[-1] == ("set_batch_scale", 1.0)
    clock.step()
    assert only().is_closed


def test_a_lease_that_ran_out_while_the_cause_goes_on_leaves_the_job_as_it_is(
    fleet: SmallFleet, clock: Clock
) -> None:
    attempt = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    clock.obedient = [attempt]
    clock.run(60, until=Directive.objects.exists)
    clock.step()
    told = signals(attempt)
    clock.now += 600
    clock.step()
    assert Directive.objects.count() == 2
    assert Directive.objects.live().get().value == 0.5
    assert signals(attempt) == told, "nothing has changed for the job"


def test_when_the_job_ends_its_directives_are_over(fleet: SmallFleet, clock: Clock) -> None:
    attempt = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    clock.obedient = [attempt]
    clock.run(60, until=Directive.objects.exists)
    clock.run(20)
    end(attempt, clock.now, "succeeded")
    clock.power_w |= dict.fromkeys(fleet.nodes_of(RACK), IDLE_W)
    clock.run(30)
    row = only()
    assert row.is_closed
    assert row.undone_at is not None
    assert "verdict" in lines(row)


def test_rows_are_read_of_those_jobs_alone_that_something_is_wanted_of(
    fleet: SmallFleet, clock: Clock
) -> None:
    low = running(fleet, "low", fleet.nodes_of(RACK), now=clock.now)
    calm = running(fleet, "calm", fleet.nodes_of("oslo/A02"), now=clock.now)
    never = running(
        fleet, "never", fleet.nodes_of(RACK)[:1], now=clock.now,
        placement={"gpus": {}, "nodes": []}, job_class="latency-sensitive-inference-build",
    )  # fmt: skip
    clock.read()
    headroom = current.headroom(clock.now)
    placed = placed_on(headroom.fleet)
    margins = margins_by_rack(Room.of(headroom), reach_of(headroom.fleet))
    below = dict(zip(placed.ids.tolist(), placed.below().tolist(), strict=True))
    assert (below[low.pk], below[calm.pk]) == (0.10, 0.10)
    asked = placed.ids[placed.least(margins) < placed.below()].tolist()
    assert asked == [low.pk]
    # One that holds nothing stands nowhere.
    assert np.isinf(placed.least(margins)[placed.ids == never.pk]).all()
    site = Scope(ScopeKind.SITE, "oslo")
    assert set(placed.in_scope(site, InForce(clock.at)).tolist()) == {low.pk, calm.pk}
    job = Scope(ScopeKind.JOB, "calm")
    assert placed.in_scope(job, InForce(clock.at)).tolist() == [calm.pk]


def test_margins_are_those_of_the_tightest_budget(fleet: SmallFleet, clock: Clock) -> None:
    clock.read()
    headroom = current.headroom(clock.now)
    reach = reach_of(headroom.fleet)
    margins = margins_by_rack(Room.of(headroom), reach)
    by_rack = dict(zip(headroom.fleet.racks.paths.tolist(), margins.tolist(), strict=True))
    assert by_rack[RACK] < 0.05 < by_rack["oslo/A02"]
