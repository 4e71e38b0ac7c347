"""Lost GPUs, reloaded drivers, slow calls and Xids, through a stand-in library."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from headroom.agent.background import Background
from headroom.agent.nvml import NvmlSource
from tests.standin.nvml import StandIn
from tests.unit.headroom.builders import Clock


def gpus_read(source: NvmlSource) -> list[Any]:
    return [row["gpu"] for row in source.read()]


def xids_read(source: NvmlSource) -> dict[Any, Any]:
    return {row["gpu"]: row["xid"] for row in source.read() if row.get("xid") is not None}


# --- Loss -----------------------------------------------------------------------------------------


def test_a_lost_gpu_is_skipped_and_counted_and_the_other_goes_on(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    list(source.read())
    machine.gpu(0, lost=1)

    assert gpus_read(source) == [1]
    assert (source.lost, source.errors) == ([0], 1)
    assert "gpu0" in source.last_error

    machine.record_calls()
    for _ in range(5):  # it is left alone for a while
        clock.now += 1
        assert gpus_read(source) == [1]
    assert machine.calls("nvmlDeviceGetHandleByIndex_v2") == []

    clock.now += 60  # asked again, and still lost
    assert gpus_read(source) == [1]
    machine.gpu(0, lost=0)
    clock.now += 60
    assert gpus_read(source) == [0, 1]
    assert (source.lost, source.errors) == ([], 2)


def test_the_xid_of_a_gpu_that_fell_off_the_bus_is_told_although_it_has_no_readings(
    machine: StandIn, source: NvmlSource
) -> None:
    list(source.read())
    machine.xid(0, 79)
    machine.gpu(0, lost=1)
    rows = {row["gpu"]: row for row in source.read()}
    assert rows[0] == {"gpu": 0, "xid": 79}
    assert rows[1]["temp_c"] == 45


def test_a_gpu_that_comes_back_is_watched_for_xids_again(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(0, lost=1)
    list(source.read())
    machine.gpu(0, lost=0)
    clock.now += 60
    list(source.read())
    machine.xid(0, 31)
    assert xids_read(source) == {0: 31}


def test_an_xid_is_told_once(machine: StandIn, source: NvmlSource) -> None:
    list(source.read())
    machine.xid(1, 63)
    assert xids_read(source) == {1: 63}
    assert xids_read(source) == {}


def test_of_several_xids_at_once_none_is_lost(machine: StandIn, source: NvmlSource) -> None:
    list(source.read())
    for code in (79, 45, 45):
        machine.xid(0, code)
    machine.xid(1, 13)
    assert xids_read(source) == {0: 79, 1: 13}
    assert [xids_read(source) for _ in range(3)] == [{0: 45}, {0: 45}, {}]


def test_a_driver_without_events_is_read_all_the_same(
    machine: StandIn, open_source: Callable[..., NvmlSource], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", refuse)
    assert gpus_read(open_source()) == [0, 1]


# --- The driver -----------------------------------------------------------------------------------


def test_a_reloaded_driver_is_taken_up_again(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    machine.gpu(fan=None)
    list(source.read())
    machine.reload_driver()
    assert gpus_read(source) == []  # the handles are void
    assert "Uninitialized" in source.last_error

    clock.now += 6
    machine.gpu(fan=30)
    rows = list(source.read())
    assert [row["gpu"] for row in rows] == [0, 1]
    assert [row["fan"] for row in rows] == [30, 30]  # what was not supported is asked for anew
    machine.xid(1, 48)
    assert xids_read(source) == {1: 48}


def test_while_there_is_no_driver_it_is_asked_for_each_few_seconds(
    machine: StandIn, source: NvmlSource, clock: Clock
) -> None:
    list(source.read())
    machine.driver(loaded=0)
    for _ in range(12):
        assert gpus_read(source) == []
        clock.now += 1
    errors = source.errors
    for _ in range(60):
        list(source.read())
        clock.now += 1
    assert source.errors == errors  # one outage, not one for each look
    assert "Driver Not Loaded" in source.last_error
    machine.driver(loaded=1)
    clock.now += 6
    assert gpus_read(source) == [0, 1]


def test_a_driver_that_is_loaded_after_the_agent_started_is_found(
    machine: StandIn, open_source: Callable[..., NvmlSource], clock: Clock
) -> None:
    machine.driver(loaded=0)
    source = open_source()
    assert gpus_read(source) == []
    machine.driver(loaded=1, gpus=3)
    clock.now += 6
    assert gpus_read(source) == [0, 1, 2]


def test_an_upgraded_driver_says_what_to_do(
    source: NvmlSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert gpus_read(source) == []
    assert "restart the agent" in source.last_error


def test_a_machine_without_nvml_is_no_failure_and_is_looked_at_again(
    source: NvmlSource, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    with monkeypatch.context() as patch:
        patch.setattr(pynvml, "nvmlInit", refuse)
        for _ in range(3):
            assert gpus_read(source) == []
            clock.now += 1
    assert (source.errors, source.last_error) == (0, "")
    assert gpus_read(source) == []
    clock.now += 60
    assert gpus_read(source) == [0, 1]


# --- Slow calls -----------------------------------------------------------------------------------


def test_a_slow_gpu_gives_what_was_read_in_time_and_is_left_alone_for_a_while(
    machine: StandIn, nvml: Any
) -> None:
    now = 0.0
    source = NvmlSource(nvml, monotonic=lambda: now + time.monotonic())
    list(source.read())
    machine.gpu(0, slow="nvmlDeviceGetClockInfo:600")

    one, two = source.read()
    assert one["temp_c"] == 45
    assert "fan" not in one  # it comes after the clocks
    assert two["util"] == 90
    assert "gpu0 took 0.6 s" in source.last_error

    assert gpus_read(source) == [1]
    now += 3  # tried again, still slow: it rests for twice as long
    assert gpus_read(source) == [0, 1]
    now += 3
    assert gpus_read(source) == [1]
    machine.gpu(0, slow="")
    now += 3
    assert "fan" in next(iter(source.read()))
    assert source.errors == 2
    source.close()


def test_calls_that_hang_hold_up_neither_a_reading_nor_the_end(machine: StandIn, nvml: Any) -> None:
    background = Background(NvmlSource(nvml), wait_s=0.2, close_s=0.2)
    assert len(list(background.read())) == 2
    machine.driver(slow_ms=4000)

    began = time.monotonic()
    assert list(background.read()) == []
    assert list(background.read()) == []
    assert list(background.read()) == []
    assert time.monotonic() - began < 3.5
    assert background.errors == 2  # the two that found the first one still under way
    assert "has not answered for" in background.last_error

    began = time.monotonic()
    background.close()
    assert time.monotonic() - began < 3.5
    machine.driver(slow_ms=0)
    wait_for_thread("NvmlSource")


def test_what_comes_late_is_handed_out_with_its_own_time(machine: StandIn, nvml: Any) -> None:
    background = Background(NvmlSource(nvml), wait_s=0.1)
    list(background.read())
    machine.gpu(1, slow="nvmlDeviceGetPowerUsage:300")
    asked = time.time()
    assert [row["gpu"] for row in background.read()] == [0]
    time.sleep(0.6)
    machine.gpu(1, slow="")
    rows = list(background.read())
    late = next(row for row in rows if row["gpu"] == 1)
    assert 0.2 < float(late["ts"] or 0) - asked < 0.6
    background.close()


def wait_for_thread(name: str) -> None:
    deadline = time.monotonic() + 60
    while any(thread.name == name for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
