"""Graduated response: who shrinks, who pauses, who goes back, and that it comes to rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission.core.response.respond import (
    Change,
    Level,
    Responded,
    ResponseStatus,
    Subject,
    Throttling,
    Tuning,
    respond,
)
from policies.headroom.reach import Reach, Room
from tests.unit.admission.response.worlds import PLENTY_W, make_fleet, make_room, make_subject

FLEET = make_fleet()
REACH = Reach.of(FLEET)
TUNING = Tuning()
#: long after all that stands was told, and has shown
NOW = 100_000.0
#: the budget of the first rack, whose nodes are 0 and 1
RACK = 0
LOW = ResponseStatus(low_since=0.0)


def decide(
    subjects: list[Subject], *, budget_w: float, other_w: float = 0.0, now: float = NOW
) -> Responded:
    """Decide on jobs in the first rack, beside which ``other_w`` is drawn there."""
    node_w = np.zeros(len(FLEET.nodes))
    for each in subjects:
        node_w[list(each.nodes)] += each.draw_w
    node_w[0] += other_w
    room = make_room(REACH, node_w=node_w, budgets={RACK: budget_w})
    return respond(subjects, room, REACH, now=now, tuning=TUNING)


def levels(responded: Responded) -> dict[str, Level]:
    return {key: status.level for key, status in responded.statuses.items()}


# --- Giving way -----------------------------------------------------------------------------------


def test_with_room_enough_nothing_is_done() -> None:
    assert decide([make_subject("a", 0)], budget_w=10_000.0).changes == ()


def test_under_a_it_shrinks_once_that_has_lasted() -> None:
    # 8 kW of 8.7 kW: 8 % are left.
    first = decide([make_subject("a", 0)], budget_w=8_700.0)
    assert first.changes == ()
    assert first.statuses["a"].low_since == NOW
    again = make_subject("a", 0, status=first.statuses["a"])
    early = decide([again], budget_w=8_700.0, now=NOW + TUNING.sustain_s - 1)
    assert early.changes == ()
    (change,) = decide([again], budget_w=8_700.0, now=NOW + TUNING.sustain_s).changes
    assert (change.was, change.level) == (Level.FULL, Level.SHRUNK)
    assert change.place == RACK
    assert change.margin == pytest.approx(0.7 / 8.7)
    assert change.change_w == pytest.approx(-3500.0)
    assert "8.0 % of the tightest budget is left, under the 10.0 %" in change.sentence


def test_a_margin_that_recovers_starts_the_clock_again() -> None:
    low = make_subject("a", 0, status=ResponseStatus(low_since=NOW - 8))
    assert decide([low], budget_w=10_000.0).statuses["a"].low_since is None


def test_over_the_budget_nobody_waits() -> None:
    assert levels(decide([make_subject("a", 0)], budget_w=7_900.0)) == {"a": Level.SHRUNK}


def test_under_b_it_shrinks_first_and_pauses_if_that_does_not_do() -> None:
    # Shrunk it draws 4.5 kW; the other load leaves 1.5 % even so.
    first = decide([make_subject("a", 0, status=LOW)], budget_w=20_000.0, other_w=15_200.0)
    assert levels(first) == {"a": Level.SHRUNK}
    status = first.statuses["a"]
    for after_s in (2.0, 2.0 + TUNING.sustain_s):
        again = make_subject("a", 0, status=status, draw_w=(4500.0,))
        then = decide([again], budget_w=20_000.0, other_w=15_200.0, now=NOW + after_s)
        status = then.statuses["a"]
    assert levels(then) == {"a": Level.PAUSED}
    # With less beside it shrinking is enough.
    again = make_subject("a", 0, status=first.statuses["a"], draw_w=(4500.0,))
    then = decide([again], budget_w=20_000.0, other_w=14_000.0, now=NOW + 100)
    assert levels(then) == {"a": Level.SHRUNK}


def test_a_job_does_only_what_it_has_agreed_to() -> None:
    def jobs(throttling: Throttling) -> list[Subject]:
        return [make_subject("a", 0, throttling=throttling, status=LOW)]

    over = {"budget_w": 7_000.0}
    assert levels(decide(jobs(Throttling()), **over)) == {"a": Level.FULL}
    only_pause = Throttling(pause_below=0.05)
    assert levels(decide(jobs(only_pause), **over)) == {"a": Level.PAUSED}
    only_shrink = Throttling(shrink_below=0.1, batch_scale=0.9)
    assert levels(decide(jobs(only_shrink), **over)) == {"a": Level.SHRUNK}


def test_one_that_cannot_shrink_goes_under_the_cap_that_it_accepts() -> None:
    capped = Throttling(shrink_below=0.1, batch_scale=0.9, cap_w=400.0)
    job = make_subject("a", 0, throttling=capped, capped_w=(6000.0,), status=LOW)
    (change,) = decide([job], budget_w=8_700.0).changes
    assert change.level is Level.SHRUNK
    assert change.change_w == pytest.approx(-2000.0)
    assert "goes on with at most 400 W per GPU" in change.sentence


def test_only_as_many_give_way_as_are_needed_and_those_that_lose_the_least_first() -> None:
    # 17 of 18.5 kW: one that shrinks brings the margin of the others back over A.
    hungry = make_subject("hungry", 1, gpus=4, draw_w=(9000.0,), peak_w=(9000.0,), status=LOW)
    modest = make_subject("modest", 0, gpus=8, status=LOW)
    responded = decide([modest, hungry], budget_w=18_500.0)
    assert levels(responded) == {"hungry": Level.SHRUNK, "modest": Level.FULL}


def test_jobs_under_other_budgets_are_left_alone() -> None:
    here = make_subject("here", 0, status=LOW)
    there = make_subject("there", 2, status=LOW)
    assert levels(decide([here, there], budget_w=8_200.0))["there"] is Level.FULL


def test_what_was_told_a_moment_ago_counts_as_done() -> None:
    # It still reads 8 kW, five seconds after it was told to shrink to 4.5 kW.
    told = ResponseStatus(level=Level.SHRUNK, since=NOW - 5, full_w=(8000.0,), low_since=0.0)
    other = make_subject("other", 1, status=LOW)
    subjects = [make_subject("told", 0, status=told), other]
    assert decide(subjects, budget_w=16_500.0).changes == ()
    # Once it must have shown and has not, the next gives way.
    late = replace(told, since=NOW - TUNING.settle_s)
    changes = decide([make_subject("told", 0, status=late), other], budget_w=16_500.0).changes
    assert changes


def test_a_budget_that_is_not_known_asks_for_nothing() -> None:
    room = Room(np.full(REACH.count, np.nan), np.full(REACH.count, np.nan))
    told = ResponseStatus(level=Level.SHRUNK, full_w=(8000.0,))
    subjects = [make_subject("a", 0, status=LOW), make_subject("b", 1, status=told)]
    assert respond(subjects, room, REACH, now=NOW, tuning=TUNING).changes == ()


# --- Where a controller keeps budgets by caps -----------------------------------------------------


def test_for_a_budget_that_caps_keep_nobody_gives_way_and_who_has_goes_back() -> None:
    kept = np.ones(REACH.count, dtype=bool)
    room = make_room(REACH, node_w=[8000.0, 0, 0, 0, 0, 0, 0, 0], budgets={RACK: 8_050.0})
    told = ResponseStatus(level=Level.SHRUNK, since=NOW - 1000, full_w=(8000.0,))
    subjects = [make_subject("a", 0, status=LOW), make_subject("b", 1, status=told)]
    assert levels(respond(subjects, room, REACH, now=NOW, tuning=TUNING))["a"] is Level.SHRUNK
    responded = respond(subjects, room.without(kept), REACH, now=NOW, tuning=TUNING)
    assert levels(responded) == {"a": Level.FULL, "b": Level.FULL}
    assert "caps keep every budget above it" in responded.changes[0].sentence


def test_budgets_that_caps_do_not_keep_count_as_ever() -> None:
    kept = np.ones(REACH.count, dtype=bool)
    kept[RACK] = False
    room = make_room(REACH, node_w=[8000.0, 0, 0, 0, 0, 0, 0, 0], budgets={RACK: 7_000.0})
    responded = respond([make_subject("a", 0)], room.without(kept), REACH, now=NOW, tuning=TUNING)
    assert levels(responded) == {"a": Level.SHRUNK}
    assert responded.changes[0].place == RACK


# --- Going back -----------------------------------------------------------------------------------


def shrunk() -> Subject:
    status = ResponseStatus(level=Level.SHRUNK, since=NOW - 1000, full_w=(8000.0,))
    return make_subject("a", 0, status=status, draw_w=(4500.0,))


def test_it_goes_back_only_where_what_it_would_draw_leaves_margin_and_band() -> None:
    # In full it draws 8 kW; 15 % of the budget have to be left.
    assert levels(decide([shrunk()], budget_w=8000 / 0.86)) == {"a": Level.SHRUNK}
    (change,) = decide([shrunk()], budget_w=8000 / 0.849).changes
    assert change.level is Level.FULL
    assert change.change_w == pytest.approx(3500.0)
    assert "goes on in full" in change.sentence


def test_it_stays_for_a_while_first() -> None:
    fresh = make_subject(
        "a", 0, draw_w=(4500.0,),
        status=ResponseStatus(level=Level.SHRUNK, since=NOW - 60, full_w=(8000.0,)),
    )  # fmt: skip
    assert decide([fresh], budget_w=PLENTY_W).changes == ()


def test_jobs_do_not_all_go_back_into_room_for_one() -> None:
    def paused(key: str, node: int) -> Subject:
        status = ResponseStatus(level=Level.PAUSED, since=NOW - 1000, full_w=(8000.0,))
        throttling = Throttling(pause_below=0.05)
        return make_subject(key, node, status=status, draw_w=(1000.0,), throttling=throttling)

    responded = decide([paused("a", 0), paused("b", 1)], budget_w=11_000.0)
    assert levels(responded) == {"a": Level.FULL, "b": Level.PAUSED}


def test_from_a_pause_it_comes_back_by_its_smallest_batch() -> None:
    status = ResponseStatus(level=Level.PAUSED, since=NOW - 1000, full_w=(8000.0,))
    (change,) = decide(
        [make_subject("a", 0, status=status, draw_w=(1000.0,))], budget_w=PLENTY_W
    ).changes
    assert change.level is Level.SHRUNK


def test_one_that_relapses_waits_twice_as_long_the_next_time() -> None:
    rose = ResponseStatus(low_since=0.0, since=NOW - 50, rose_at=NOW - 50, full_w=(8000.0,))
    responded = decide([make_subject("a", 0, status=rose)], budget_w=7_900.0)
    status = responded.statuses["a"]
    assert (status.level, status.relapses) == (Level.SHRUNK, 1)
    later = NOW + 1.5 * TUNING.dwell_s
    again = make_subject("a", 0, status=status, draw_w=(4500.0,))
    assert decide([again], budget_w=PLENTY_W, now=later).changes == ()
    assert decide([again], budget_w=PLENTY_W, now=NOW + 2 * TUNING.dwell_s).changes


def test_calm_for_long_a_job_starts_over() -> None:
    calm = ResponseStatus(since=NOW - 10_000, rose_at=NOW - 10_000, relapses=3, full_w=(8000.0,))
    responded = decide([make_subject("a", 0, status=calm)], budget_w=PLENTY_W)
    assert responded.statuses["a"].relapses == 0


# --- That it comes to rest ------------------------------------------------------------------------


class Plant:
    """A rack with jobs that do as they are told, not quite as expected, and some time later."""

    def __init__(self, jobs: list[tuple[float, float]], budget_w: float, lag_s: float) -> None:
        self.budget_w, self.lag_s = budget_w, lag_s
        self.full_w = [full for full, _ in jobs]
        #: what a smaller batch really saves, beside what is expected
        self.error = [error for _, error in jobs]
        self.levels = [(0.0, Level.FULL)] * len(jobs)
        self.shown = [Level.FULL] * len(jobs)
        self.statuses = {f"j{at}": ResponseStatus() for at in range(len(jobs))}
        self.changes: list[tuple[float, Change]] = []

    def draw_w(self, at: int) -> float:
        full_w, level = self.full_w[at], self.shown[at]
        expected = {Level.FULL: 1.0, Level.SHRUNK: 0.5, Level.PAUSED: 0.0}[level]
        share = min(expected * self.error[at], 1.0) if level is Level.SHRUNK else expected
        return 1000.0 + share * (full_w - 1000.0)

    def run(self, first: float, seconds: float, other_w: float, step_s: float = 10.0) -> None:
        for now in np.arange(first, first + seconds, step_s).tolist():
            for at, (since, level) in enumerate(self.levels):
                if now - since >= self.lag_s:
                    self.shown[at] = level
            subjects = [
                make_subject(
                    key, at % 2, status=self.statuses[key], draw_w=(self.draw_w(at),),
                    peak_w=(12_000.0,),
                )
                for at, key in enumerate(self.statuses)
            ]  # fmt: skip
            responded = decide(subjects, budget_w=self.budget_w, other_w=other_w, now=now)
            self.statuses = dict(responded.statuses)
            for change in responded.changes:
                self.levels[int(change.key[1:])] = (now, change.level)
                self.changes.append((now, change))

    def load_w(self) -> float:
        return sum(self.draw_w(at) for at in range(len(self.full_w)))


plants = st.builds(
    Plant,
    st.lists(st.tuples(st.floats(2000.0, 10_000.0), st.floats(0.8, 1.4)), min_size=1, max_size=6),
    st.floats(8_000.0, 40_000.0),
    st.floats(0.0, 30.0),
)
others = st.floats(0.0, 30_000.0)


@settings(max_examples=5, deadline=None)
@given(plants, others)
def test_under_a_steady_load_nobody_goes_back_and_forth(plant: Plant, other_w: float) -> None:
    plant.run(1000.0, 1500.0, other_w)
    for key in plant.statuses:
        moves = [change for _, change in plant.changes if change.key == key]
        downs = [change for change in moves if change.level > change.was]
        # Down in two steps at most, and once more after having gone back on what turned out wrong.
        assert len(moves) <= 4, moves
        assert len(downs) <= 3, moves
    assert not [at for at, _ in plant.changes if at > 2000.0], "it comes to rest"


@settings(max_examples=5, deadline=None)
@given(plants, others)
def test_it_never_stays_over_the_budget_while_somebody_could_give_way(
    plant: Plant, other_w: float
) -> None:
    plant.run(1000.0, 400.0, other_w)
    all_paused = all(level is Level.PAUSED for level in plant.shown)
    assert all_paused or plant.load_w() + other_w <= plant.budget_w


@settings(max_examples=5, deadline=None)
@given(plants, others)
def test_everything_is_undone_when_the_cause_is_over(plant: Plant, other_w: float) -> None:
    plant.run(1000.0, 500.0, other_w)
    plant.budget_w = PLENTY_W
    plant.run(1500.0, 1200.0, 0.0)
    assert all(level is Level.FULL for level in plant.shown)


@settings(max_examples=5, deadline=None)
@given(plants, st.lists(st.floats(0.0, 30_000.0), min_size=2, max_size=12), st.integers(5, 60))
def test_under_any_load_changes_grow_rarer_and_never_chatter(
    plant: Plant, loads: list[float], every_s: int
) -> None:
    """Whatever goes on beside it, a job goes back no sooner than its dwell allows."""
    now = 1000.0
    for _ in range(2):
        for other_w in loads:
            plant.run(now, every_s, other_w)
            now += every_s
    for key in plant.statuses:
        last_down: float | None = None
        for at, change in plant.changes:
            if change.key != key:
                continue
            if change.level > change.was:
                last_down = at
            elif last_down is not None:
                assert at - last_down >= TUNING.dwell_s
