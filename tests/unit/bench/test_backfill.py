"""The plain scheduler beside which waits are held, and the windows that both are given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.backfill_waits import compare
from bench.backfill_windows import NODE_GPUS, Window, others, walltimes_s, windows
from bench.easy import PoolJob, easy_starts
from lab.traces import JobTrace
from tests.data_sets import data_folder, data_set


def _starts(*jobs: tuple[float, int, float, float]) -> list[float]:
    return easy_starts([PoolJob(*each) for each in jobs], 8, tick_s=1.0)


def test_jobs_start_in_the_order_in_which_they_came() -> None:
    assert _starts((0, 8, 100, 100), (1, 8, 50, 50), (2, 8, 5, 5)) == [0, 100, 150]


def test_a_job_goes_ahead_that_ends_before_the_first_has_its_gpus() -> None:
    assert _starts((0, 6, 100, 100), (1, 8, 50, 50), (2, 2, 98, 98)) == [0, 100, 2]


def test_a_job_does_not_go_ahead_that_says_it_may_end_later() -> None:
    assert _starts((0, 6, 100, 100), (1, 8, 50, 50), (2, 2, 10, 99)) == [0, 100, 150]


def test_a_job_goes_ahead_on_gpus_that_the_first_leaves_over_and_no_further() -> None:
    jobs = (0, 6, 100, 100), (1, 6, 50, 50), (2, 2, 500, 500), (3, 2, 5, 500)
    assert _starts(*jobs) == [0, 100, 2, 100 + 50]


def test_what_ends_early_is_taken_at_once() -> None:
    assert _starts((0, 8, 30, 1000), (1, 8, 50, 50)) == [0, 30]


def test_it_looks_at_whole_ticks() -> None:
    jobs = [PoolJob(0.5, 8, 30.0, 30.0), PoolJob(11.0, 8, 1.0, 1.0)]
    assert easy_starts(jobs, 8, tick_s=10.0) == [10.0, 40.0]


def test_jobs_start_in_another_order_where_one_is_given() -> None:
    jobs = [PoolJob(0.0, 8, 100.0, 100.0), PoolJob(1.0, 8, 50.0, 50.0), PoolJob(2.0, 8, 5.0, 5.0)]
    found = easy_starts(jobs, 8, tick_s=1.0, in_order=lambda waiting, *_: sorted(waiting)[::-1])
    assert found == [0.0, 105.0, 100.0]


def made_window(count: int = 60, gpus: int = 16) -> Window:
    rng = np.random.default_rng(4)
    nothing = np.full(count, np.nan)
    jobs = JobTrace(
        name="made", line=np.arange(count), submit_s=np.sort(rng.uniform(0.0, 3600.0, count)),
        runs_s=rng.exponential(600.0, count), gpus=rng.choice([1, 2, 4, 8], count),
        gpu_share=np.ones(count), walltime_s=nothing, wait_s=nothing, project=("a",) * count,
    )  # fmt: skip
    came = np.ones(count, dtype=np.bool_)
    return Window(name="made", jobs=jobs, came=came, gpus=gpus, past=jobs.take(np.arange(20)))


def test_with_one_project_the_cycle_waits_no_longer_than_the_plain_scheduler() -> None:
    for blind in (False, True):
        found = compare(made_window(), blind=blind)
        assert found["easy_wait_s"] > 60.0
        assert found["wait_s"] <= found["easy_wait_s"]


def test_where_projects_take_turns_easy_stands_beside_it_in_the_same_order() -> None:
    window = made_window()
    projects = tuple("ab"[at % 3 == 0] for at in range(60))
    window = replace(window, jobs=replace(window.jobs, project=projects))
    found = compare(window, shares=True)
    assert found["turns_wait_s"] != found["easy_wait_s"]
    # Both take turns: what is left between them is backfill.
    assert found["wait_s"] <= 1.1 * found["turns_wait_s"]


def test_blind_walltimes_tell_nothing() -> None:
    assert len(set(walltimes_s(made_window(), blind=True))) == 1
    stated = np.array(walltimes_s(made_window()))
    assert (stated >= 2.0 * made_window().jobs.runs_s).all()


def _first(window: Window) -> tuple[str, int]:
    """Return the trace of a window, and the first line of it that came."""
    trace = window.name.rpartition("-")[0] if "like" not in window.name else window.name
    return trace, int(window.jobs.line[window.came][0])


@pytest.mark.slow
def test_windows_are_as_the_rule_says() -> None:
    for name in (
        "philly-jobs", "alibaba-openb-jobs", "helios-earth-vc-queue", "acme-seren-distributions",
    ):  # fmt: skip
        data_set(name)
    found = list(windows(data_folder()))
    assert len(found) == 3 + 3 + 6 + 4
    assert len({each.name for each in found}) == len(found)
    # What parameters are chosen on came at other times, or with other seeds.
    came = {_first(each) for each in found}
    assert came.isdisjoint(map(_first, others(data_folder())))
    for each in found:
        assert each.gpus % NODE_GPUS == 0
        assert each.gpus >= each.jobs.gpus.max()
        assert each.jobs.submit_s[~each.came] == pytest.approx(0.0)
        assert each.came.sum() > 20
