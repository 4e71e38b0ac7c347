"""The rule by which events and jobs are chosen."""

from __future__ import annotations

import csv
import gzip
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from lab.approaches.comparison import Setup
from lab.curtailing.events import (
    WARM_S,
    Event,
    busy_jobs_of,
    jobs_of,
    long_event,
    random_events,
    spans_held,
)
from lab.traces import TraceError


def test_two_hundred_events_stand_in_ten_hours_one_after_the_other() -> None:
    events = random_events(1)
    assert len(events) == 200
    assert events[0].announced_s == WARM_S
    assert events[-1].end_s <= WARM_S + 36_000.0
    assert all(one.end_s < two.announced_s for one, two in pairwise(events))
    assert all(30.0 <= each.start_s - each.announced_s <= 60.0 for each in events)
    assert all(0.10 <= each.by_share <= 0.40 for each in events)
    assert random_events(1) == events
    assert random_events(2) != events


def test_the_long_one_takes_a_quarter_for_three_hours() -> None:
    event = long_event()
    assert (event.by_share, event.end_s - event.start_s) == (0.25, 10_800.0)


def test_no_baseline_is_made_of_what_is_drawn_under_an_event() -> None:
    assert spans_held([Event(0.0, 60.0, 120.0, 0.1)]) == [(30.0, 150.0)]


def write_trace(path: Path, hours: list[float]) -> Path:
    """Write jobs of twelve hours on eight GPUs that come at these hours."""
    with gzip.open(path / "jobs.csv.gz", "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["time", "duration_s", "num_gpus", "vc"])
        for at in hours:
            moment = datetime(2017, 10, 1, tzinfo=UTC) + timedelta(hours=at)
            rows.writerow([f"{moment:%Y-%m-%dT%H:%M:%S}", 43_200, 8, "team"])
    return path


def test_a_window_is_taken_that_always_has_work_and_that_nobody_has_tuned_on(
    tmp_path: Path,
) -> None:
    tuned_on = [Setup.from_h + 1.0] * 9
    late_but_many = [80.0] * 5
    trace = write_trace(tmp_path, [0.0, 36.5, 37.0, *late_but_many, *tuned_on, Setup.from_h + 60.0])
    chosen, jobs = jobs_of(trace, hours=10.0, gpus=96)
    assert (chosen, len(jobs)) == (36.0, 2)


def test_jobs_larger_than_the_fleet_are_left_out(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [0.0, 36.5, 37.0, 200.0])
    with pytest.raises(TraceError, match="no window"):
        jobs_of(trace, hours=10.0, gpus=4)


def test_the_long_one_has_busy_hours_in_which_jobs_run_from_the_start(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [float(hour) for hour in range(200)])
    chosen, jobs = busy_jobs_of(trace, hours=4.0, gpus=48)
    # Twelve run at any time, and half of a fleet of 96 GPUs would be theirs.
    assert chosen + 4.0 <= Setup.from_h
    assert jobs.demand_gpus(0.0, 4.0 * 3600.0) == pytest.approx(0.9 * 48.0, rel=0.25)
    assert (jobs.submit_s == 0.0).sum() > 2


def test_where_jobs_are_few_all_of_them_come(tmp_path: Path) -> None:
    trace = write_trace(tmp_path, [float(hour) for hour in range(200)])
    _, jobs = busy_jobs_of(trace, hours=4.0, gpus=1_000)
    assert len(jobs) == 15
    with pytest.raises(TraceError, match="no window"):
        busy_jobs_of(trace, hours=4.0, gpus=4)
