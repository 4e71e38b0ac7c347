"""What is read of a twin, and how what is wrong with sensors bends it."""

from __future__ import annotations

import numpy as np
import pytest

from lab.twin import NO_FAILURES, Twin
from lab.twin.network import Network
from lab.world.fleet_arrays import Rows, arrays_of
from lab.world.frame import MAX_FUTURE_S, Sensors, frame_of
from policies.headroom.evaluate import evaluate
from policies.scopes import ScopeKind
from tests.unit.lab.world.builders import tight_fleet

NOW = 1_000_000.0


@pytest.fixture
def sensors() -> Sensors:
    fleet = tight_fleet()
    twin = Twin(fleet, seed=1, failures=NO_FAILURES)
    twin.advance(60.0)
    arrays = arrays_of(fleet)
    return Sensors(twin, Network(twin, seed=1), arrays, Rows.of(fleet, arrays))


def test_without_faults_it_is_what_is_so(sensors: Sensors) -> None:
    twin, arrays, rows = sensors.twin, sensors.arrays, sensors.rows
    frame = sensors.read(NOW)
    gpus = frame.rows("gpu", arrays.gpus.ids)
    assert np.allclose(gpus["power_w"], twin.power_w[rows.gpu], rtol=1e-6)
    assert (gpus["ts"] == NOW).all()
    headroom = evaluate(arrays, frame, now=NOW)
    assert np.allclose(headroom.powers[ScopeKind.RACK].load_w, twin.rack_w[rows.rack], rtol=1e-3)
    assert not headroom.table(ScopeKind.LINK).columns["stale"].any()


def test_one_first_reading_is_the_same(sensors: Sensors) -> None:
    frame = frame_of(sensors.twin, sensors.network, sensors.arrays, sensors.rows, now=NOW)
    assert (frame.gpu["power_w"][1:] == sensors.read(NOW).gpu["power_w"][1:]).all()


def test_silent_nodes_keep_their_last_reading(sensors: Sensors) -> None:
    first = sensors.read(NOW)
    sensors.twin.conditions.node_silent[0] = True
    sensors.twin.advance(10.0)
    later = sensors.read(NOW + 10.0)
    node = int(np.flatnonzero(sensors.rows.node == 0)[0]) + 1
    assert later.host["ts"][node] == NOW
    assert later.host["power_w"][node] == first.host["power_w"][node]
    assert (np.delete(later.host["ts"], [0, node]) == NOW + 10.0).all()


def test_stuck_nodes_say_the_same_as_if_it_were_new(sensors: Sensors) -> None:
    first = sensors.read(NOW)
    sensors.twin.conditions.stuck[:] = True
    sensors.twin.advance(30.0)
    later = sensors.read(NOW + 30.0)
    assert (later.gpu["ts"][1:] == NOW + 30.0).all()
    assert (later.gpu["power_w"][1:] == first.gpu["power_w"][1:]).all()


def test_bias_and_skew_bend_what_nodes_say_and_not_what_meters_do(sensors: Sensors) -> None:
    twin, rows = sensors.twin, sensors.rows
    twin.conditions.power_bias[:] = 1.2
    twin.conditions.temp_bias_c[:] = -5.0
    twin.conditions.clock_skew_s[:] = 3.0
    frame = sensors.read(NOW)
    assert np.allclose(frame.gpu["power_w"][1:], 1.2 * twin.power_w[rows.gpu], rtol=1e-6)
    assert np.allclose(frame.gpu["temp_c"][1:], twin.temp_c[rows.gpu] - 5.0, atol=0.5)
    assert (frame.gpu["ts"][1:] == NOW + 3.0).all()
    assert (frame.meter["ts"][1:] == NOW).all()
    racks = sensors.arrays.meters.target_kind == 2
    read_w = frame.meter["power_w"][1:][racks]
    assert np.allclose(read_w, twin.rack_w[rows.meter[racks]], rtol=1e-6)


def test_readings_from_too_far_ahead_are_not_taken(sensors: Sensors) -> None:
    sensors.read(NOW)
    sensors.twin.conditions.clock_skew_s[:] = MAX_FUTURE_S + 1.0
    assert (sensors.read(NOW + 10.0).gpu["ts"][1:] == NOW).all()


def test_nothing_comes_from_a_site_that_is_cut_off(sensors: Sensors) -> None:
    sensors.read(NOW)
    sensors.twin.conditions.site_isolated[0] = True
    frame, arrays, rows = sensors.read(NOW + 10.0), sensors.arrays, sensors.rows
    gone = rows.site[arrays.racks.site[arrays.nodes.rack]] == 0
    assert (frame.host["ts"][1:][gone] == NOW).all()
    assert (frame.host["ts"][1:][~gone] == NOW + 10.0).all()
    assert (frame.meter["ts"][1:] == NOW).any()
    assert (frame.link["ts"][1:] == NOW).any()


def test_a_frame_stays_as_it_was_when_it_was_read(sensors: Sensors) -> None:
    frame = sensors.read(NOW)
    before = frame.gpu["power_w"].copy()
    sensors.twin.advance(60.0)
    sensors.read(NOW + 60.0)
    assert (frame.gpu["power_w"][1:] == before[1:]).all()
