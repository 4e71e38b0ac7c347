"""Losses are ranked beside what is usual of them, and no gain is told that is not known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import Cause, GpuSpans, Shares, Whole, account
from admission.core.fleet_account import CAUSES
from admission.core.losses import (
    CAUSES_OF,
    LEAST_HOURS,
    NOT_RANKED,
    WEEK_H,
    Basis,
    Gain,
    Interval,
    Line,
    Loss,
    Order,
    Usual,
    back_to_usual,
    first,
    lever_of,
    of_intervals,
    ranked,
    usual,
)
from admission.core.outlook import GpuRate, advise

HOUR = 3600.0
COMMON = Usual(28, 0.005, 0.01, 0.02)


def make_line(loss: str, gpu_h: float, **given: object) -> Line:
    return Line(loss=loss, gpu_h=gpu_h, share=0.1, lever="", **given)  # type: ignore[arg-type]


def test_each_cause_of_the_account_is_lost_to_one_thing_or_ranked_nowhere() -> None:
    named = [name for names in CAUSES_OF.values() for name in names]
    assert sorted([*named, *NOT_RANKED, Cause.PRODUCTIVE]) == sorted(CAUSES)


def test_the_lever_of_a_loss_is_that_of_its_greatest_cause() -> None:
    assert lever_of({Cause.REPEATED: 5, Cause.RESTARTING: 2}).startswith("save more often")
    assert lever_of({Cause.REPEATED: 2, Cause.RESTARTING: 5}).startswith("start ranks again")


def test_losses_stand_by_what_they_cost_and_those_of_unknown_cost_last() -> None:
    lines = [
        make_line("a", 3.0, money=1.0), make_line("b", 5.0, kwh=9.0), make_line("c", 1.0, money=7.0)
    ]  # fmt: skip
    names = {order: [each.loss for each in ranked(lines, order)] for order in Order}
    assert names[Order.GPU_H] == ["b", "a", "c"]
    assert names[Order.MONEY] == ["c", "a", "b"]
    assert names[Order.KWH] == ["b", "a", "c"]


def test_of_waits_without_free_gpus_the_longest_stands_first() -> None:
    lines = [make_line("waiting", 0.0, waited_gpu_h=hours) for hours in (1.0, 9.0)]
    assert [each.waited_gpu_h for each in ranked(lines, Order.GPU_H)] == [9.0, 1.0]


def test_the_first_intervention_is_the_one_that_brings_back_most_not_the_greatest_loss() -> None:
    small, great = (Gain(Basis.LAW, gpu_h, "", ()) for gpu_h in (2.0, 8.0))
    lines = [make_line("a", 90.0), make_line("b", 5.0, gain=small), make_line("c", 9.0, gain=great)]
    found = first(lines)
    assert found is not None
    assert found.loss == "c"
    assert first(lines[:1]) is None


# --- What is usual -------------------------------------------------------------------------------


def test_of_less_than_a_week_of_days_nothing_is_usual() -> None:
    assert usual([0.01] * 6) is None
    assert usual([0.01] * 7) == Usual(7, 0.01, 0.01, 0.01)
    assert usual([each / 100.0 for each in range(11)]) == Usual(11, 0.01, 0.05, 0.09)


def test_what_a_loss_takes_beyond_its_usual_is_told_by_the_week_with_its_arithmetic() -> None:
    # 4 points of 1,000 GPU-hours in 24 h.
    found = back_to_usual(0.05, 1000.0, 24, COMMON, "mend it")
    assert found is not None
    assert (found.basis, found.lever) == (Basis.USUAL, "mend it")
    assert found.gpu_h == pytest.approx(0.04 * 1000.0 * 7.0)
    assert found.steps == (
        "beyond its usual = share - median = 5 % - 1 % = 4 points",
        "GPU-hours in a week = time · week / hours = 1,000 · 168 / 24 = 7,000",
        "GPU-hours back a week = share · time = 4 % · 7,000 = 280",
    )


@pytest.mark.parametrize(
    ("share", "hours", "known"),
    [(0.02, 24, COMMON), (0.05, LEAST_HOURS - 1, COMMON), (0.05, 24, None)],
)
def test_where_it_is_not_known_to_be_more_than_usual_no_gain_is_told(
    share: float, hours: int, known: Usual | None
) -> None:
    assert back_to_usual(share, 1000.0, hours, known, "") is None


@given(
    share=st.floats(0.0, 1.0),
    shares=st.lists(st.floats(0.0, 1.0), min_size=7, max_size=28),
    hours=st.integers(1, 720),
)
def test_a_gain_is_never_more_than_what_was_lost(
    share: float, shares: list[float], hours: int
) -> None:
    found = back_to_usual(share, 50.0, hours, usual(shares), "")
    assert found is None or 0.0 < found.gpu_h <= share * 50.0 * WEEK_H / hours * (1.0 + 1e-9)


# --- How often jobs save -------------------------------------------------------------------------

MTBF_S, SAVE_S, RESTART_S, GPUS = 6.0 * HOUR, 60.0, 300.0, 64
RATE = GpuRate(1.0 / (MTBF_S * GPUS), 0.7 / (MTBF_S * GPUS), 1.4 / (MTBF_S * GPUS), 40, "H100")


def make_interval(interval_s: float, name: str = "llama/train") -> Interval:
    advice = advise(RATE, GPUS, save_s=SAVE_S, interval_s=interval_s, restart_s=RESTART_S)
    return Interval(name, GPUS, advice)


def test_saving_too_seldom_is_of_failures_and_too_often_of_time_outside_of_steps() -> None:
    seldom, often = make_interval(4.0 * HOUR), make_interval(120.0)
    best = make_interval(seldom.advice.best_s or 0.0)
    found = of_intervals([seldom, often, best])
    assert set(found) == {Loss.FAILURES, Loss.OUTSIDE_STEPS}
    assert found[Loss.FAILURES].lever == "have llama/train save more often: checkpoint.interval_s"
    assert "save less often" in found[Loss.OUTSIDE_STEPS].lever
    for loss, each in ((Loss.FAILURES, seldom), (Loss.OUTSIDE_STEPS, often)):
        assert found[loss].basis is Basis.LAW
        assert found[loss].gpu_h == pytest.approx(each.advice.gain * GPUS * WEEK_H)


def test_gains_of_jobs_add_up_and_the_greatest_are_named() -> None:
    seldom = make_interval(4.0 * HOUR)
    many = [replace(seldom, name=f"job-{at}/train", gpus=64 + at) for at in range(7)]
    found = of_intervals(many)[Loss.FAILURES]
    assert found.gpu_h == pytest.approx(sum(each.gain_gpu_h for each in many))
    assert found.lever.startswith("have 7 jobs save more often")
    assert found.steps[0].startswith("job-6/train: every 26.")
    assert found.steps[-1].startswith("2 more likewise: ")


def test_no_advice_is_no_gain() -> None:
    assert of_intervals([make_interval(1600.0)]) == {}


@pytest.mark.parametrize("interval_s", [4.0 * HOUR, 120.0])
def test_the_account_of_a_job_that_saves_at_the_best_interval_shows_the_gain_that_was_told(
    interval_s: float,
) -> None:
    # Failures by a clock of their own: neither the law nor the advice had a hand in it.
    told = make_interval(interval_s)
    assert told.advice.best_s is not None
    before, after = (_productive(each) for each in (interval_s, told.advice.best_s))
    assert after - before == pytest.approx(told.advice.gain, abs=0.01)
    (gain,) = of_intervals([told]).values()
    assert gain.gpu_h == pytest.approx((after - before) * GPUS * WEEK_H, rel=0.1)


def _productive(interval_s: float, failures: int = 4000) -> float:
    """Return the productive share in the account of one GPU whose job is lost so many times."""
    rng, spans = np.random.default_rng(20), _Spans()
    at = saved = reached = 0.0
    for life_s in rng.exponential(MTBF_S, failures).tolist():
        end, step = at + life_s, saved
        at = spans.add(Cause.RESTARTING, at, min(at + RESTART_S, end))
        while at < end:
            again_s = min(max(reached - step, 0.0), interval_s)
            at = spans.add(Cause.REPEATED, at, min(at + again_s, end))
            new = at
            at = spans.add(Cause.PRODUCTIVE, at, min(at + interval_s - again_s, end))
            reached = max(reached, reached + at - new)
            is_whole = at + SAVE_S <= end
            at = spans.add(Cause.OUTSIDE_STEPS, at, min(at + SAVE_S, end))
            step += interval_s
            saved = step if is_whole else saved
    return spans.productive(at)


class _Spans:
    """What one GPU did, as the account takes it."""

    def __init__(self) -> None:
        self._of: dict[Cause, list[tuple[float, float]]] = {}

    def add(self, cause: Cause, start: float, end: float) -> float:
        if end > start:
            self._of.setdefault(cause, []).append((start, end))
        return max(start, end)

    def productive(self, end: float) -> float:
        saves = self._spans(Cause.OUTSIDE_STEPS)
        whole = [
            Whole(cause=cause, **self._spans(cause))
            for cause in (Cause.RESTARTING, Cause.REPEATED, Cause.PRODUCTIVE)
        ]
        all_of_it = np.full(saves["gpu"].size, 1_000_000)
        end_us = round(end * 1e6)
        zero = np.zeros(1, dtype=np.int64)
        found = account(
            GpuSpans(gpu=zero, start_us=zero, end_us=zero + end_us),
            [*whole, Whole(cause=Cause.PRODUCTIVE, **saves)],
            [Shares(cause=Cause.OUTSIDE_STEPS, ppm=all_of_it, **saves)],
            start_us=0, end_us=end_us,
        )  # fmt: skip
        assert sum(found.values()) == end_us
        return found[Cause.PRODUCTIVE] / end_us

    def _spans(self, cause: Cause) -> dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        us = np.rint(1e6 * np.array(self._of[cause])).astype(np.int64)
        gpu = np.zeros(len(us), dtype=np.int64)
        return {"gpu": gpu, "start_us": us[:, 0], "end_us": us[:, 1]}
