"""How much of its walltime a job runs for, drawn from others like it."""

from __future__ import annotations

import numpy as np
import pytest

from admission.core.cycle.ends import Like, Ran, RunRecord, size_class

LIKE = Like("vision", "ada", 1, 3600.0)
OTHER_USER = Like("vision", "ben", 1, 3600.0)
ELSEWHERE = Like("speech", "eva", 8, 86_400.0)


def _drawn(
    record: RunRecord, like: Like = LIKE, ran: float = 0.0, draws: int = 4_000
) -> np.ndarray:
    found = record.draw([like], np.array([ran]), np.random.default_rng(1), draws)
    assert found.shape == (draws, 1)
    assert ((found >= ran) & (found <= 1.0)).all()
    return found[:, 0]


def test_where_nothing_is_known_any_share_is_as_likely() -> None:
    drawn = _drawn(RunRecord([]))
    assert np.quantile(drawn, [0.1, 0.5, 0.9]) == pytest.approx([0.1, 0.5, 0.9], abs=0.02)
    assert np.quantile(_drawn(RunRecord([]), ran=0.5), 0.5) == pytest.approx(0.75, abs=0.02)


def test_what_others_like_it_ran_for_is_drawn() -> None:
    record = RunRecord([Ran(LIKE, 0.2)] * 60 + [Ran(LIKE, 0.4)] * 40)
    drawn = _drawn(record)
    assert (drawn == 0.2).mean() == pytest.approx(0.6, abs=0.05)
    assert (drawn == 0.4).mean() == pytest.approx(0.4, abs=0.05)


def test_those_that_are_close_count_more_than_others_of_the_project() -> None:
    record = RunRecord([Ran(LIKE, 0.9)] * 8 + [Ran(OTHER_USER, 0.1)] * 200)
    drawn = _drawn(record)
    assert (drawn == 0.9).mean() > 0.6
    assert (drawn == 0.1).mean() > 0.2


def test_other_walltimes_of_other_projects_say_nothing() -> None:
    drawn = _drawn(RunRecord([Ran(ELSEWHERE, 0.01)] * 500))
    assert np.median(drawn) == pytest.approx(0.5, abs=0.02)


def test_one_that_ran_for_so_long_runs_for_longer_than_those_that_ended_before() -> None:
    record = RunRecord([Ran(LIKE, 0.1)] * 500 + [Ran(LIKE, 0.8)] * 50)
    drawn = _drawn(record, ran=0.3)
    assert (drawn == 0.8).mean() > 0.85


def test_those_that_still_run_count_with_how_long_they_have() -> None:
    ended = [Ran(LIKE, 0.1)] * 20 + [Ran(LIKE, 0.5)] * 10 + [Ran(LIKE, 0.9)] * 10
    running = [Ran(LIKE, 0.3, is_over=False)] * 60
    before, after = (_drawn(RunRecord(each)) for each in (ended, ended + running))
    assert (before == 0.1).mean() == pytest.approx(0.5, abs=0.1)
    # Of the 80 that ran for longer half ended in the middle, as far as is known, and half late.
    assert [(after == share).mean() for share in (0.1, 0.5, 0.9)] == pytest.approx(
        [0.2, 0.4, 0.4], abs=0.05
    )


def test_sizes_count_by_class() -> None:
    assert [size_class(gpus) for gpus in (1, 2, 7, 8, 15, 16, 512)] == [0, 1, 1, 2, 2, 3, 3]
