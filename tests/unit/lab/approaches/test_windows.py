"""The windows on which approaches are judged are those that the rule picks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from lab.approaches.comparison import LOADERS, Setup
from lab.approaches.windows import HOURS, WINDOWS, Window, more_gpus, setup_of
from lab.traces.trace import Builder, Job
from tests.data_sets import data_folder, data_set

needs_traces = pytest.mark.usefixtures("traces")


@pytest.fixture(scope="module")
def traces() -> None:
    for name in ("philly-jobs", "alibaba-openb-jobs", "helios-earth-vc-queue"):
        data_set(name)


@pytest.fixture(scope="module", autouse=True)
def traces_are_read_once() -> Iterator[None]:
    """Every window reads a whole trace twice, of up to a hundred thousand lines."""
    with pytest.MonkeyPatch.context() as patched:
        for form, load in LOADERS.items():
            patched.setitem(LOADERS, form, cache(load))
        yield


@cache
def _setup(window: Window) -> Setup:
    return setup_of(window, data_folder())


def test_there_are_eight_of_three_traces() -> None:
    assert len(WINDOWS) == 8
    assert {each.form for each in WINDOWS} == {"philly", "openb", "helios"}


@needs_traces
@pytest.mark.parametrize("window", WINDOWS, ids=lambda each: each.name)
def test_a_window_has_about_the_demand_that_its_kind_asks_for(window: Window) -> None:
    setup = _setup(window)
    own = setup.gpus * (1.0 - setup.others_share)

    # Few, large jobs cannot be thinned to any share.
    demand = setup.jobs().demand_gpus(0.0, HOURS * 3600.0) / own
    assert demand == pytest.approx(window.demand, rel=0.2)


@needs_traces
def test_no_window_overlaps_the_hours_that_the_controller_was_made_on() -> None:
    for window in WINDOWS:
        if window.form == "philly":
            from_h = _setup(window).from_h
            assert from_h + HOURS <= Setup.from_h or from_h >= Setup.from_h + Setup.hours


@needs_traces
def test_more_gpus_have_the_same_power() -> None:
    plenty, more = more_gpus(WINDOWS[0], data_folder())

    assert more.gpus == pytest.approx(1.3 * plenty.gpus, abs=8)
    watts = [sum(rack.budget_w for rack in each.fleet().racks) for each in (plenty, more)]
    assert watts[1] == pytest.approx(watts[0], rel=0.02)


def test_jobs_that_run_at_the_beginning_come_with_what_is_left_of_them() -> None:
    found = Builder(Path("made"))
    for line, (at_s, runs_s) in enumerate([(0.0, 50.0), (10.0, 200.0), (120.0, 10.0)], start=1):
        found.add(line, Job(submit_s=at_s, runs_s=runs_s, gpus=8, project="p"))
    part = found.trace().over(100.0, 200.0)

    assert part.submit_s.tolist() == [0.0, 20.0]
    assert part.runs_s.tolist() == [110.0, 10.0]
    assert part.demand_gpus(0.0, 100.0) == pytest.approx((8 * 100.0 + 8 * 10.0) / 100.0)


def test_a_faster_trace_has_the_same_demand() -> None:
    found = Builder(Path("made"))
    for line in range(1, 50):
        found.add(line, Job(submit_s=60.0 * line, runs_s=300.0, gpus=2, project="p"))
    trace = found.trace()

    slow, fast = trace.demand_gpus(0.0, 1200.0), trace.faster(12.0).demand_gpus(0.0, 100.0)
    assert fast == pytest.approx(slow)
    assert np.diff(trace.faster(12.0).submit_s) == pytest.approx(5.0)
