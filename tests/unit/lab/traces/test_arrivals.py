from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from admission.core.request import Locality
from admission.core.response.respond import Throttling
from lab.hardware import H100
from lab.traces import JobTrace
from lab.traces.arrivals import TIERS, Flexibility, Manner, arrivals


def made(
    runs_s: Sequence[float] = (3600.0,), gpus: int = 1, walltime_s: float = np.nan
) -> JobTrace:
    count = len(runs_s)
    return JobTrace(
        name="made",
        line=np.arange(count) + 2,
        submit_s=np.arange(count, dtype=np.float64) * 60.0,
        runs_s=np.array(runs_s),
        gpus=np.full(count, gpus),
        gpu_share=np.ones(count),
        walltime_s=np.full(count, walltime_s),
        wait_s=np.full(count, np.nan),
        project=("vc",) * count,
    )


MANY = made([1800.0] * 400)


def test_what_the_trace_says_is_kept() -> None:
    first, second = arrivals(made([600.0, 50.0], gpus=4, walltime_s=700.0), seed=1)
    assert (first.at_s, second.at_s) == (0.0, 60.0)
    assert (first.runs_s, second.runs_s) == (600.0, 50.0)
    assert first.request.key == "j2/train"
    assert (first.request.gpus, first.request.min_gpus) == (4, 4)
    assert first.request.project == "vc"
    assert first.request.walltime_s == 700.0


def test_an_empty_part_of_a_trace_brings_no_jobs() -> None:
    assert arrivals(MANY.between(1e6, 2e6), seed=1) == []


def test_the_same_job_comes_of_any_part_of_a_trace() -> None:
    whole = {each.request.key: each for each in arrivals(MANY, seed=3)}
    part = arrivals(MANY.between(600.0, 1200.0), seed=3)
    assert len(part) == 10
    for each in part:
        assert each == replace(whole[each.request.key], at_s=each.at_s)


def test_another_seed_draws_other_jobs() -> None:
    drawn = [[each.activity for each in arrivals(MANY, seed=seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_gpus_draw_what_is_given_and_jobs_declare_no_less() -> None:
    came = arrivals(MANY, Manner(peak_share=(0.6, 0.9), declare=0.5), seed=1)
    peaks_w = np.array([H100.awake_w + H100.dynamic_w * (each.activity or 0.0) for each in came])
    assert peaks_w.min() >= 0.6 * H100.rated_w - 1e-9
    assert peaks_w.max() <= 0.9 * H100.rated_w + 1e-9
    assert peaks_w.mean() == pytest.approx(0.75 * H100.rated_w, rel=0.02)
    declared = [(each.request.gpu_peak_w, w) for each, w in zip(came, peaks_w, strict=True)]
    said = [(peak_w, w) for peak_w, w in declared if peak_w is not None]
    assert len(said) == pytest.approx(200, abs=40)
    assert all(w <= peak_w < w + 25.0 for peak_w, w in said)


def test_tiers_have_their_shares_and_what_they_give_up() -> None:
    came = arrivals(MANY, seed=1)
    for tier in TIERS:
        of_it = [each for each in came if each.request.max_slowdown == tier.max_slowdown]
        assert len(of_it) == pytest.approx(tier.share * len(came), abs=40)
        for each in of_it:
            assert (each.request.lowest_cap_w is None) == (tier.max_slowdown == 0.0)
    rigid = next(each for each in came if each.request.max_slowdown == 0.0)
    assert rigid.throttling == Throttling()
    half = next(each for each in came if each.request.max_slowdown == 0.5)
    assert half.throttling == Throttling(shrink_below=0.05, pause_below=0.01, batch_scale=0.5)
    tenth = next(each for each in came if each.request.max_slowdown == 0.1)
    assert tenth.throttling.pause_below is None


def test_shares_of_tiers_need_not_add_up_to_one() -> None:
    manner = Manner(tiers=(Flexibility(1.0, 0.0), Flexibility(3.0, 0.25)))
    gives = [each.request.max_slowdown for each in arrivals(MANY, manner, seed=1)]
    assert gives.count(0.25) == pytest.approx(300, abs=40)


@pytest.mark.parametrize(
    ("gpus", "required"), [(1, Locality.NODE), (8, Locality.NODE), (16, Locality.SITE)]
)
def test_what_fits_a_node_stands_on_one(gpus: int, required: Locality) -> None:
    (one,) = arrivals(made(gpus=gpus), seed=1)
    assert one.request.required is required


@pytest.mark.parametrize(
    ("runs_s", "walltime_s"), [(600.0, 1800.0), (3600.0, 7200.0), (1e8, 2e8), (0.0, 1800.0)]
)
def test_users_ask_for_the_next_walltime_that_is_twice_as_long(
    runs_s: float, walltime_s: float
) -> None:
    (one,) = arrivals(made([runs_s]), seed=1)
    assert one.request.walltime_s == walltime_s
    assert one.runs_s == max(runs_s, 1.0)


def test_jobs_that_move_have_checkpoints_elsewhere() -> None:
    came = arrivals(MANY, Manner(move=0.25), seed=1)
    assert sum(each.moves for each in came) == pytest.approx(100, abs=30)
    assert all(each.moves == each.request.cross_site_checkpoint for each in came)
    saves_s = {each.training.checkpoint_interval_s for each in came if each.training}
    assert saves_s == {1800.0}
