"""The energy of an attempt is what its GPUs used between its start and its end."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from admission.jobs.models import Attempt
from admission.learned import energy
from fleet import snapshot
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import make_attempt, make_job

pytestmark = pytest.mark.django_db

NODE = "bergen-a01-n1"
#: Seconds since the attempt began, at which its GPUs are read.
EVERY_S, RAN_S = 5.0, 100.0


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    made = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=1)
    snapshot.fresh()
    return made


@pytest.fixture
def began() -> float:
    return float(int(time.time()) - 500)


def ended(began: float, ran_s: float = RAN_S) -> Attempt:
    phase = make_job("llama", gpus=2, state="succeeded").phases.get()
    start = datetime.fromtimestamp(began, UTC)
    return make_attempt(
        phase, {NODE: [0, 1]}, state="ended", outcome="succeeded", dispatched_at=start,
        started_at=start, ended_at=start + timedelta(seconds=ran_s),
    )  # fmt: skip


def read(fleet: SmallFleet, began: float, from_s: float, to_s: float) -> None:
    """Have GPUs be read every 5 s, at 300 W and 500 W, the others of the node at 700 W."""
    watts, at = {0: 300.0, 1: 500.0}, from_s
    while at <= to_s:
        fleet.report(at=began + at, only=[NODE], power_w=lambda _, gpu: watts.get(gpu, 700.0))
        at += EVERY_S


def test_it_is_of_its_own_gpus_and_of_its_own_time(fleet: SmallFleet, began: float) -> None:
    attempt = ended(began + 2.0)
    read(fleet, began, -50.0, 150.0)
    assert energy.measure(time.time()) == 1
    attempt.refresh_from_db()
    assert attempt.energy_j == pytest.approx(800.0 * RAN_S, rel=1e-3)
    assert attempt.energy_share == pytest.approx(1.0, abs=0.01)
    # Once is enough.
    assert energy.measure(time.time()) == 0


def test_what_was_not_read_is_bridged_and_told(fleet: SmallFleet, began: float) -> None:
    attempt = ended(began, ran_s=300.0)
    read(fleet, began, -10.0, 30.0)
    read(fleet, began, 230.0, 320.0)
    assert energy.measure(time.time()) == 0, "readings may come yet"
    found = energy.of_attempt(attempt, snapshot.current(), time.time())
    assert found.used_j == pytest.approx(800.0 * 300.0, rel=0.02)
    assert 0.25 < found.share < 0.45
    assert energy.measure(time.time() + 700.0) == 1


def test_nothing_is_made_up_where_nothing_was_read(fleet: SmallFleet, began: float) -> None:
    attempt = ended(began)
    assert energy.measure(time.time() + 700.0) == 1
    attempt.refresh_from_db()
    assert (attempt.energy_j, attempt.energy_share) == (None, 0.0)


def test_what_has_just_ended_or_never_began_is_left(fleet: SmallFleet, began: float) -> None:
    attempt = ended(time.time() - 5.0, ran_s=1.0)
    read(fleet, began, 0.0, 10.0)
    assert energy.measure(time.time()) == 0
    Attempt.objects.filter(pk=attempt.pk).update(started_at=None)
    assert energy.measure(time.time() + 700.0) == 0


# --- Of slices ------------------------------------------------------------------------------------

HALVES = ["3g.40gb", "3g.40gb"]


def on_slice(name: str, place: int, from_s: float, to_s: float, began: float) -> Attempt:
    """Return an attempt that had a half of the first GPU of the node."""
    phase = make_job(name, gpus=1, state="succeeded").phases.get()
    start, end = (datetime.fromtimestamp(began + at, UTC) for at in (from_s, to_s))
    attempt = make_attempt(
        phase, {NODE: [0]}, state="ended", outcome="succeeded", dispatched_at=start,
        started_at=start, ended_at=end,
    )  # fmt: skip
    attempt.placement["slices"] = {NODE: [{"profile": "3g.40gb", "place": place}]}
    attempt.save()
    return attempt


def test_what_two_slices_used_is_what_their_gpu_used(fleet: SmallFleet, began: float) -> None:
    gpu = fleet.gpu(NODE)
    gpu.model.name, gpu.model.idle_w = "NVIDIA H100 80GB HBM3", 100.0
    gpu.model.save()
    gpu.slices = HALVES
    gpu.save()
    read(fleet, began, -50.0, 150.0)
    whole = on_slice("first", 0, 0.0, 100.0, began)
    half = on_slice("second", 1, 50.0, 100.0, began)
    inventory = snapshot.fresh()
    used = [energy.of_attempt(each, inventory, time.time()).used_j for each in (whole, half)]
    # Alone a slice has half of what the GPU rests at, and all that it draws above that.
    assert used[0] == pytest.approx((50.0 + 200.0) * 50.0 + 150.0 * 50.0, rel=0.06)
    assert used[1] == pytest.approx(150.0 * 50.0, rel=0.06)
