import dataclasses
import itertools
import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.errors import ImpossibleArgumentError, ShapeMismatchError
from physics.goodput import (
    BUDGET_CAUSES,
    CAUSES,
    EVENT_KINDS,
    LEVERS,
    TEXTBOOK_BUDGET,
    LossShares,
    MeasuredGoodput,
    budgeted_goodput,
    compare_with_budget,
    measure_goodput,
)

Event = tuple[str, float, float, int]


def measure_series(**events: Any) -> MeasuredGoodput:
    measured: MeasuredGoodput = measure_goodput(**events)
    return measured


def measure(*events: Event, **changes: Any) -> MeasuredGoodput:
    kinds, start_s, end_s, step_numbers = zip(*events, strict=True)
    return measure_series(
        kinds=kinds, start_s=start_s, end_s=end_s, step_numbers=step_numbers, **changes
    )


def seconds(measured: MeasuredGoodput) -> dict[str, float]:
    """Return the causes that took time."""
    all_of = {cause: getattr(measured, f"{cause}_s") for cause in CAUSES}
    return {cause: taken for cause, taken in all_of.items() if taken}


# Budgets


def test_the_seeds_budget_leaves_77_percent_by_sum_and_79_by_product() -> None:
    goodput = budgeted_goodput(
        pipeline_bubble_share=0.05,
        checkpoint_share=0.03,
        recovery_share=0.10,
        maintenance_share=0.05,
    )
    assert math.isclose(goodput.additive, 0.77)
    assert math.isclose(goodput.multiplicative, 0.95 * 0.97 * 0.90 * 0.95)
    assert f"{goodput.multiplicative:.2%}" == "78.79%"
    assert math.isclose(TEXTBOOK_BUDGET.goodput(), goodput.additive)


@given(st.lists(st.floats(0.0, 0.25), min_size=4, max_size=4))
def test_losses_cost_more_as_shares_of_the_whole_than_of_what_is_left(shares: list[float]) -> None:
    names = ("pipeline_bubble", "checkpoint", "recovery", "maintenance")
    losses = {f"{name}_share": share for name, share in zip(names, shares, strict=True)}
    goodput = budgeted_goodput(**losses)
    assert 0.0 <= goodput.additive <= goodput.multiplicative + 1e-15
    assert goodput.multiplicative <= 1.0 - max(shares) + 1e-15


def test_budgets_of_many_fleets_are_those_of_each() -> None:
    rest = {"checkpoint_share": 0.03, "recovery_share": 0.1, "maintenance_share": 0.05}
    both = budgeted_goodput(pipeline_bubble_share=np.array([0.05, 0.2]), **rest)
    for place, share in enumerate((0.05, 0.2)):
        one = budgeted_goodput(pipeline_bubble_share=share, **rest)
        assert both.additive[place] == one.additive
        assert both.multiplicative[place] == one.multiplicative


def test_losses_of_more_than_everything_are_refused() -> None:
    with pytest.raises(ImpossibleArgumentError, match="maintenance_share"):
        budgeted_goodput(
            pipeline_bubble_share=0.5,
            checkpoint_share=0.3,
            recovery_share=0.1,
            maintenance_share=0.2,
        )
    with pytest.raises(ImpossibleArgumentError, match="unattributed_share"):
        LossShares(recovery_share=0.7, pause_share=0.4)
    with pytest.raises(ImpossibleArgumentError, match="pause_share"):
        LossShares(pause_share=math.nan)


# One job, told in events


def test_a_crash_costs_the_restart_and_the_steps_since_the_checkpoint() -> None:
    measured = measure(
        ("queue_wait", 0, 30, -1),
        ("restart", 30, 40, -1),
        ("step", 40, 50, 1),
        ("step", 50, 60, 2),
        ("checkpoint", 60, 62, -1),
        ("step", 62, 72, 3),
        ("step", 72, 82, 4),
        # The crash is noticed after 5 s.
        ("restart", 87, 100, -1),
        ("step", 100, 110, 3),
        ("step", 110, 120, 4),
        ("step", 120, 130, 5),
        ("pause", 130, 145, -1),
        ("step", 145, 155, 6),
        ("maintenance", 155, 175, -1),
    )
    assert seconds(measured) == {
        "productive": 60.0,
        "recomputed": 20.0,
        "checkpoint": 2.0,
        "restart": 23.0,
        "pause": 15.0,
        "queue_wait": 30.0,
        "maintenance": 20.0,
        "unattributed": 5.0,
    }
    assert measured.wall_s == 175.0
    assert measured.goodput == 60.0 / 175.0
    assert measured.largest_loss == "queue_wait"
    assert measured.largest_loss_share == measured.share("queue_wait") == 30.0 / 175.0
    assert measured.lever == LEVERS["queue_wait"]


def test_after_an_orderly_restart_nothing_is_recomputed() -> None:
    measured = measure(("step", 0, 10, 1), ("restart", 10, 15, -1), ("step", 15, 25, 2))
    assert seconds(measured) == {"productive": 20.0, "restart": 5.0}


@pytest.mark.parametrize("interruption", ["restart", "queue_wait", "maintenance"])
def test_a_step_begun_again_after_losing_its_processes_is_recomputed(interruption: str) -> None:
    measured = measure(("step", 0, 4, 7), (interruption, 4, 5, -1), ("step", 5, 15, 7))
    assert seconds(measured) == {"productive": 4.0, interruption: 1.0, "recomputed": 10.0}


@pytest.mark.parametrize("interruption", ["pause", "checkpoint"])
def test_a_step_that_went_on_after_a_halt_is_not_recomputed(interruption: str) -> None:
    measured = measure(("step", 0, 4, 7), (interruption, 4, 5, -1), ("step", 5, 9, 7))
    assert seconds(measured) == {"productive": 8.0, interruption: 1.0}


def test_steps_that_go_back_are_recomputed_without_any_restart_event() -> None:
    measured = measure(*(("step", t, t + 1, n) for t, n in enumerate([1, 2, 3, 2, 3, 4])))
    assert seconds(measured) == {"productive": 4.0, "recomputed": 2.0}


def test_a_second_crash_in_recomputed_steps_recomputes_them_again() -> None:
    measured = measure(*(("step", t, t + 1, n) for t, n in enumerate([1, 2, 3, 2, 1, 2, 3, 4])))
    assert seconds(measured) == {"productive": 4.0, "recomputed": 4.0}


def test_steps_without_numbers_are_productive() -> None:
    measured = measure_series(kinds=["step", "restart", "step"], start_s=[0, 1, 2], end_s=[1, 2, 3])
    assert seconds(measured) == {"productive": 2.0, "restart": 1.0}


def test_a_pipeline_bubble_is_idle_time_inside_productive_steps() -> None:
    events = ("step", 0.0, 80.0, 1), ("checkpoint", 80.0, 100.0, -1)
    measured = measure(*events, pipeline_bubble_share=0.25)
    assert seconds(measured) == {"productive": 60.0, "pipeline_bubble": 20.0, "checkpoint": 20.0}
    assert measured.goodput == 0.6


@pytest.mark.parametrize(("lower", "upper"), list(itertools.pairwise(EVENT_KINDS)))
def test_where_events_overlap_the_later_kind_is_the_cause(lower: str, upper: str) -> None:
    measured = measure((lower, 0, 10, -1), (upper, 4, 6, -1))
    cause = "productive" if lower == "step" else lower
    assert seconds(measured) == {cause: 8.0, upper: 2.0}


def test_of_two_steps_at_once_the_one_with_the_higher_number_counts() -> None:
    # Between 8 and 9 it is step 4, not reached before; around it step 2, done before the crash.
    measured = measure(
        ("step", 0, 6, 3), ("restart", 6, 7, -1), ("step", 7, 12, 2), ("step", 8, 9, 4)
    )
    assert seconds(measured) == {"productive": 7.0, "recomputed": 4.0, "restart": 1.0}


def test_time_before_and_after_all_events_is_unattributed() -> None:
    measured = measure(("step", 10, 20, 1), wall_start_s=0.0, wall_end_s=25.0)
    assert seconds(measured) == {"productive": 10.0, "unattributed": 15.0}
    assert measured.largest_loss == "unattributed"


def test_a_window_knows_which_steps_were_done_before_it() -> None:
    events = ("step", 0, 10, 1), ("step", 10, 20, 2), ("restart", 20, 25, -1), ("step", 25, 35, 2)
    assert seconds(measure(*events, wall_start_s=22.0)) == {"restart": 3.0, "recomputed": 10.0}
    assert seconds(measure(*events, wall_end_s=15.0)) == {"productive": 15.0}


def test_a_window_may_be_ever_so_short() -> None:
    events = ("step", -1e9, 1e9, 1), ("pause", 1e9, 2e9, -1)
    measured = measure(*events, wall_start_s=0.0, wall_end_s=5e-324)
    assert seconds(measured) == {"productive": 5e-324}


def test_a_job_that_lost_nothing_has_no_largest_loss() -> None:
    measured = measure(("step", 0, 10, 1))
    assert (measured.goodput, measured.largest_loss, measured.lever) == (1.0, None, None)


def test_kinds_may_be_names_or_their_places() -> None:
    names = ["maintenance", "step", "pause"]
    times = {"start_s": [0, 1, 2], "end_s": [1, 2, 4]}
    places = np.array([EVENT_KINDS.index(name) for name in names])
    assert measure_series(kinds=names, **times) == measure_series(kinds=places, **times)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"kinds": ["step", "nap"]}, "kinds"),
        ({"kinds": [0, 6]}, "kinds"),
        ({"kinds": [0, -1]}, "kinds"),
        ({"kinds": [0.0, 1.0]}, "kinds"),
        ({"end_s": [1.0, 0.5]}, "end_s"),
        ({"start_s": [0.0, math.nan]}, "start_s"),
        ({"step_numbers": [-2, 0]}, "step_numbers"),
        ({"step_numbers": [0.5, 0]}, "step_numbers"),
        ({"pipeline_bubble_share": 1.5}, "pipeline_bubble_share"),
        ({"pipeline_bubble_share": [0.1, 0.2]}, "pipeline_bubble_share"),
        ({"wall_start_s": [0.0, 1.0]}, "wall_start_s"),
        ({"wall_end_s": 0.0}, "wall_end_s"),
        ({"start_s": [1.0, 1.0], "end_s": [1.0, 1.0]}, "end_s"),
    ],
)
def test_impossible_events_are_refused_by_name(changes: dict[str, Any], argument: str) -> None:
    events = {"kinds": ["step", "pause"], "start_s": [0.0, 1.0], "end_s": [1.0, 2.0]}
    with pytest.raises(ImpossibleArgumentError) as refused:
        measure_series(**events | changes)
    assert refused.value.argument == argument


def test_series_of_unlike_lengths_are_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="kinds"):
        measure_series(kinds=["step"], start_s=[0.0, 1.0], end_s=[1.0, 2.0])
    with pytest.raises(ShapeMismatchError, match="end_s"):
        measure_series(kinds=["step"] * 2, start_s=[0.0, 1.0], end_s=[1.0])


# Any job


@st.composite
def timelines(draw: st.DrawFn, times: st.SearchStrategy[float]) -> list[Event]:
    """Draw events that overlap and leave gaps as they like, but are not all empty."""
    events = []
    for _ in range(draw(st.integers(1, 12))):
        start_s, end_s = sorted((draw(times) + 0.0, draw(times) + 0.0))  # no -0.0
        kind = draw(st.sampled_from(EVENT_KINDS))
        number = draw(st.integers(-1, 5)) if kind == "step" else -1
        events.append((kind, start_s, end_s, number))
    events.append(("step", start_s, start_s + 1.0, 0))
    return events


whole_seconds = st.integers(0, 30).map(float)
any_seconds = st.one_of(st.floats(-1e3, 1e3), st.floats(1.7e9, 1.7e9 + 1e6))


def attribute_second_by_second(events: list[Event]) -> dict[str, float]:
    """Say it again in the plainest way, for whole seconds: a loop over the clock."""
    found: dict[str, float] = {}
    reached, reached_before, last = -1, -1, -1
    for t in range(int(min(e[1] for e in events)), int(max(e[2] for e in events))):
        running = [(EVENT_KINDS.index(k), n) for k, s, e, n in events if s <= t < e]
        code, number = max(running, default=(-1, -1))
        cause = EVENT_KINDS[code] if running else "unattributed"
        if cause in ("restart", "queue_wait", "maintenance"):
            reached_before, last = reached, -1
        if cause == "step":
            cause = "productive"
            if number >= 0:
                if number < last:
                    reached_before = reached
                cause = "recomputed" if number <= reached_before else "productive"
                reached, last = max(reached, number), number
        found[cause] = found.get(cause, 0.0) + 1.0
    return found


@given(timelines(whole_seconds))
def test_the_sweep_agrees_with_a_loop_over_seconds(events: list[Event]) -> None:
    assert seconds(measure(*events)) == attribute_second_by_second(events)


@given(timelines(any_seconds), st.floats(0.0, 1.0))
def test_seconds_sum_to_the_wall_time_exactly(events: list[Event], bubble: float) -> None:
    measured = measure(*events, pipeline_bubble_share=bubble)
    taken = [getattr(measured, f"{cause}_s") for cause in CAUSES]
    assert sum(taken) == sum(reversed(taken)) == measured.wall_s
    assert measured.wall_s == max(e[2] for e in events) - min(e[1] for e in events)
    assert min(taken) >= 0.0


@given(timelines(any_seconds), st.data())
def test_neither_order_nor_pieces_change_anything(events: list[Event], data: st.DataObject) -> None:
    pieces = []
    for kind, start_s, end_s, number in events:
        cut_s = data.draw(st.floats(start_s, end_s))
        pieces += [(kind, start_s, cut_s, number), (kind, cut_s, end_s, number)]
    assert measure(*data.draw(st.permutations(pieces))) == measure(*events)


@given(timelines(any_seconds), any_seconds)
def test_two_windows_add_up_to_the_whole(events: list[Event], cut_s: float) -> None:
    first, last = min(e[1] for e in events), max(e[2] for e in events)
    cut_s = min(max(cut_s, first), last)
    if not first < cut_s < last:
        return
    whole = measure(*events)
    halves = measure(*events, wall_end_s=cut_s), measure(*events, wall_start_s=cut_s)
    for cause in CAUSES:
        parts = sum(getattr(half, f"{cause}_s") for half in halves)
        assert math.isclose(parts, getattr(whole, f"{cause}_s"), abs_tol=1e-5)


def test_a_hundred_thousand_events_take_well_under_a_second() -> None:
    rng = np.random.default_rng(5)
    start_s = rng.uniform(0.0, 1e6, 100_000)
    events = {
        "kinds": rng.integers(0, len(EVENT_KINDS), start_s.size),
        "start_s": start_s,
        "end_s": start_s + rng.exponential(1e4, start_s.size),
        "step_numbers": np.arange(start_s.size),
    }
    begun = time.process_time()
    measure_series(**events)
    assert time.process_time() - begun < 0.5


# Measured beside the budget


def test_measured_losses_are_held_against_their_budget() -> None:
    measured = measure(
        ("step", 0, 70, 1),
        ("checkpoint", 70, 72, -1),
        ("restart", 72, 77, -1),
        ("step", 77, 90, 1),
        ("pause", 90, 94, -1),
        wall_end_s=100.0,
    )
    compared = compare_with_budget(measured=measured.losses())
    assert compared.over == ("recovery", "unattributed", "pause")
    assert np.allclose(compared.excess_shares, (0.18 - 0.10, 0.06, 0.04))
    assert compared.lever == LEVERS["recovery"]
    assert math.isclose(compared.goodput, 0.70)
    assert math.isclose(compared.budgeted_goodput, 0.77)


def test_a_job_within_its_budget_has_no_lever() -> None:
    compared = compare_with_budget(measured=LossShares(checkpoint_share=0.03))
    assert (compared.over, compared.excess_shares, compared.lever) == ((), (), None)


def test_a_budget_may_allow_what_the_seeds_does_not_name() -> None:
    losses = LossShares(pause_share=0.04, recovery_share=0.12)
    own = LossShares(pause_share=0.05, recovery_share=0.10)
    assert compare_with_budget(measured=losses, budget=own).over == ("recovery",)
    assert compare_with_budget(measured=losses).over == ("pause", "recovery")


def test_every_cause_has_its_field_and_every_loss_its_lever() -> None:
    assert {f.name for f in dataclasses.fields(LossShares)} == {f"{c}_share" for c in BUDGET_CAUSES}
    assert {f"{c}_s" for c in CAUSES} < {f.name for f in dataclasses.fields(MeasuredGoodput)}
    assert set(LEVERS) == {*CAUSES, *BUDGET_CAUSES} - {"productive"}
