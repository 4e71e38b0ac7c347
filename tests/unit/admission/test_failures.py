"""What belongs to one failure, what caused it, and how often failures come."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.failures import (
    CAUSES,
    COMPONENTS,
    Cause,
    Exposure,
    Failure,
    Kind,
    Sign,
    failures_of,
    lemons_of,
    observed,
    rates,
)

HOUR = 3600.0
HARDWARE = (Kind.GPU_MEMORY, Kind.NVLINK, Kind.GPU)
EXPLAINS = (
    Kind.POWER_OUTAGE, Kind.COOLING_OUTAGE, Kind.POWER_BRAKE, Kind.HEAT, Kind.LINK,
    Kind.PROGRAM_ERROR,
)  # fmt: skip


def sign(kind: Kind, at: float, *nodes: int, **given: Any) -> Sign:
    return Sign(kind, at, nodes, kind.value, **({"begins": kind not in EXPLAINS} | given))


def one(*signs: Sign) -> Failure:
    (found,) = failures_of(signs)
    return found


# What belongs together


def test_an_xid_the_jobs_that_it_ends_and_the_drain_that_follows_are_one_failure() -> None:
    found = one(
        sign(Kind.GPU, 0.0, 3, gpu=24),
        sign(Kind.EXIT, 90.0, 1, 2, 3, job="a/train/1"),
        sign(Kind.NODE_LOST, 200.0, 3, job="b/train/1"),
        sign(Kind.DRAIN, 1800.0, 3),
    )
    assert (found.cause, found.component, found.nodes) == (Cause.HARDWARE, "gpu", (3,))
    assert (found.gpu, found.jobs) == (24, ("a/train/1", "b/train/1"))


def test_a_log_that_comes_a_little_after_the_end_of_a_job_says_why_it_ended() -> None:
    found = one(sign(Kind.EXIT, 0.0, 1, 2, job="a/t/1"), sign(Kind.GPU_MEMORY, 60.0, 2, gpu=5))
    assert (found.cause, found.component, found.nodes) == (Cause.HARDWARE, "gpu_memory", (2,))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        # Errors an hour apart, on another node, and programs that fail one after the other.
        (sign(Kind.GPU, 0.0, 1), sign(Kind.GPU, HOUR, 1)),
        (sign(Kind.GPU, 0.0, 1), sign(Kind.GPU, 10.0, 2)),
        (sign(Kind.EXIT, 0.0, 1), sign(Kind.EXIT, 10.0, 1)),
        (sign(Kind.EXIT, 0.0, 1), sign(Kind.NODE_LOST, 10.0, 1)),
        # Each job on a node hangs by itself, for however long.
        (sign(Kind.EXCEPTION, 0.0, 1), sign(Kind.HUNG, 10.0, 1, before_s=640.0)),
        # A program that failed is no reason to drain a node.
        (sign(Kind.EXIT, 0.0, 1), sign(Kind.DRAIN, 60.0, 1)),
    ],
)
def test_what_has_nothing_to_do_with_each_other_is_two_failures(first: Sign, second: Sign) -> None:
    assert len(failures_of([second, first])) == 2


def test_a_gpu_that_errs_every_five_minutes_for_a_day_fails_once() -> None:
    assert len(failures_of(sign(Kind.GPU, 300.0 * each, 1) for each in range(288))) == 1


def test_what_hardware_logged_as_a_collective_began_to_hang_is_why_it_hung() -> None:
    hung = sign(Kind.HUNG, 1800.0, 1, 2, job="a/t/1", before_s=1800.0)
    found = one(sign(Kind.NVLINK, 5.0, 2), hung)
    assert (found.cause, found.component, found.nodes) == (Cause.HARDWARE, "nvlink", (2,))
    assert len(failures_of([sign(Kind.NVLINK, 5.0, 2), replace(hung, before_s=0.0)])) == 2


# What caused it


@pytest.mark.parametrize(
    ("around", "cause", "component"),
    [
        ([], Cause.UNKNOWN, "node"),
        ([sign(Kind.POWER_OUTAGE, -100.0, 0, 1, until=50.0)], Cause.PLANT, "power"),
        ([sign(Kind.COOLING_OUTAGE, -100.0, 0, 1, until=50.0)], Cause.PLANT, "cooling"),
        ([sign(Kind.HEAT, -100.0, 1, until=-10.0)], Cause.PLANT, "cooling"),
        # Over for an hour, and at another place: they explain nothing.
        ([sign(Kind.POWER_OUTAGE, -2 * HOUR, 1, until=-HOUR)], Cause.UNKNOWN, "node"),
        ([sign(Kind.POWER_OUTAGE, -100.0, 0, until=50.0)], Cause.UNKNOWN, "node"),
        # The GPU names itself; a whole feed that went away counts before it.
        ([sign(Kind.HEAT, -100.0, 1), sign(Kind.GPU, -5.0, 1)], Cause.HARDWARE, "gpu"),
        (
            [sign(Kind.POWER_OUTAGE, -100.0, 1, until=50.0), sign(Kind.GPU, -5.0, 1)],
            Cause.PLANT, "power",
        ),
    ],
)  # fmt: skip
def test_a_lost_node_is_attributed_by_what_went_on_around_it(
    around: list[Sign], cause: Cause, component: str
) -> None:
    found = one(*around, sign(Kind.NODE_LOST, 0.0, 1, job="a/t/1"))
    assert (found.cause, found.component) == (cause, component)


@pytest.mark.parametrize(
    ("nodes", "around", "cause"),
    [
        ((1,), [], Cause.SOFTWARE),
        # Only a job on several nodes talks over links.
        ((1,), [sign(Kind.LINK, 0.0, 1, 2)], Cause.SOFTWARE),
        ((1, 2), [sign(Kind.LINK, 0.0, 1, 2)], Cause.NETWORK),
        # A program that ends by itself was not cut off from power.
        ((1,), [sign(Kind.POWER_OUTAGE, 0.0, 1)], Cause.SOFTWARE),
        ((1,), [sign(Kind.PROGRAM_ERROR, 0.0, 1)], Cause.SOFTWARE),
    ],
)
def test_a_command_that_failed_is_the_programs_unless_something_else_is_seen(
    nodes: tuple[int, ...], around: list[Sign], cause: Cause
) -> None:
    assert one(*around, sign(Kind.EXIT, 0.0, *nodes, job="a/t/1")).cause is cause


@pytest.mark.parametrize(
    ("told", "around", "cause"),
    [
        (Kind.TOLD_MEMORY, [], Cause.HARDWARE),
        (Kind.EXCEPTION, [], Cause.SOFTWARE),
        # The kernel's log knows what an exception was of.
        (Kind.EXCEPTION, [sign(Kind.GPU, -20.0, 1)], Cause.HARDWARE),
        (Kind.UNCLEAR, [], Cause.UNKNOWN),
        (Kind.UNCLEAR, [sign(Kind.PROGRAM_ERROR, 0.0, 1)], Cause.SOFTWARE),
        (Kind.HUNG, [], Cause.UNKNOWN),
        (Kind.HUNG, [sign(Kind.LINK, 0.0, 1, 2)], Cause.NETWORK),
        (Kind.CONNECTION, [], Cause.NETWORK),
        # A link between nodes explains no exception of a program.
        (Kind.EXCEPTION, [sign(Kind.LINK, 0.0, 1, 2)], Cause.SOFTWARE),
    ],
)
def test_what_output_tells_is_attributed_with_what_went_on_around_it(
    told: Kind, around: list[Sign], cause: Cause
) -> None:
    assert one(*around, sign(told, 0.0, 1, 2, job="a/t/1")).cause is cause


def test_what_a_command_says_of_its_node_makes_it_no_lemon() -> None:
    assert not one(sign(Kind.TOLD_GPU, 0.0, 1, job="a/t/1")).is_of_node
    assert one(sign(Kind.GPU, 0.0, 1)).is_of_node


def test_what_explains_is_no_failure_by_itself() -> None:
    assert failures_of([sign(kind, 0.0, 1) for kind in EXPLAINS]) == []


def test_what_explains_a_failure_does_not_widen_where_it_was() -> None:
    around = sign(Kind.POWER_OUTAGE, 0.0, *range(100))
    assert one(around, sign(Kind.NODE_LOST, 0.0, 7)).nodes == (7,)


def test_every_kind_has_a_cause_and_a_component() -> None:
    assert set(CAUSES) == set(COMPONENTS) == set(Kind)


_signs = st.builds(
    sign, st.sampled_from(list(Kind)), st.floats(0.0, 2 * HOUR), st.integers(0, 3),
)  # fmt: skip


@given(st.lists(_signs, max_size=30), st.randoms())
def test_each_sign_that_begins_a_failure_is_in_exactly_one(signs: list[Sign], order: Any) -> None:
    found = failures_of(signs)
    in_them = [each for failure in found for each in failure.signs]
    begin = [each for each in signs if each.begins]
    assert sorted(map(repr, begin)) == sorted(repr(each) for each in in_them if each.begins)
    assert [each.at for each in found] == sorted(each.at for each in found)
    shuffled = signs.copy()
    order.shuffle(shuffled)
    assert [each.cause for each in failures_of(shuffled)] == [each.cause for each in found]


# How often


def test_rates_have_the_exact_interval_of_a_poisson_count() -> None:
    found = rates(np.array([10.0]), np.array([1000.0 * HOUR]))
    per_hour = [float(each[0]) * HOUR for each in (found.rate, found.lower, found.upper)]
    # 4.795 to 18.39 for a count of 10, of any table of Poisson limits.
    assert per_hour == pytest.approx([0.010, 0.004795, 0.018390], rel=1e-3)


def test_no_failure_bounds_the_rate_from_above_by_the_rule_of_three() -> None:
    found = rates(np.array([0.0]), np.array([1000.0 * HOUR]))
    assert (found.rate[0], found.lower[0]) == (0.0, 0.0)
    assert found.upper[0] * 1000.0 * HOUR == pytest.approx(2.9957, abs=1e-4)


def test_what_was_not_observed_has_no_rate() -> None:
    found = rates(np.array([3.0]), np.array([0.0]))
    assert np.isnan([found.rate[0], found.lower[0], found.upper[0]]).all()


def test_intervals_hold_the_true_rate_as_often_as_they_say() -> None:
    exposure_s, true_per_s = 1e6, 4e-6
    counts = np.random.default_rng(11).poisson(exposure_s * true_per_s, 4000).astype(float)
    found = rates(counts, np.full(counts.size, exposure_s))
    held = (found.lower <= true_per_s) & (true_per_s <= found.upper)
    # Exact intervals of whole counts hold it at least that often.
    assert 0.95 <= held.mean() <= 0.995


def test_a_node_that_fails_far_more_than_the_rest_is_a_lemon() -> None:
    signs = [sign(Kind.GPU, HOUR * each, 5) for each in range(8)]
    signs += [sign(Kind.GPU, HOUR * each, each) for each in (0, 1)]
    signs += [sign(Kind.EXIT, HOUR * each, 9) for each in range(20)]
    found = lemons_of(failures_of(signs), np.full(100, 30 * 24 * HOUR))
    assert (found.nodes, found.failures, found.share) == ((5,), 8, 0.8)


def test_without_failures_or_observation_nobody_is_a_lemon() -> None:
    assert lemons_of([], np.full(3, HOUR)).share is None
    failed = failures_of([sign(Kind.GPU, 0.0, 1)])
    assert lemons_of(failed, np.zeros(3)).share is None


# For how long anybody looked

TIMES = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda each: (min(each), max(each)))
WATCHED = st.lists(st.tuples(TIMES, st.lists(TIMES, max_size=4)), max_size=3)


@given(WATCHED, TIMES)
def test_a_moment_is_observed_where_one_agent_at_least_was_not_silent(
    agents: list[tuple[tuple[int, int], list[tuple[int, int]]]], within: tuple[int, int]
) -> None:
    found = observed([(*life, silences) for life, silences in agents], within)
    for second in range(60):
        at = second + 0.5
        heard = any(
            life[0] <= at < life[1] and not any(since <= at < until for since, until in silences)
            for life, silences in agents
        )
        expected = heard and within[0] <= at < within[1]
        assert any(start <= at < end for start, end in found) == expected
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert all(start < end for start, end in found)


def exposure() -> Exposure:
    """Nodes 0 and 1 are observed for 4 h but one in between, node 2 for 1 h, node 3 never."""
    start, end = np.array([0.0, 3 * HOUR, HOUR]), np.array([2 * HOUR, 5 * HOUR, 2 * HOUR])
    return Exposure(start, end, np.array([0, 0, 1]), np.array([0, 0, 1, -1]))


def test_silences_count_for_no_node_as_observed() -> None:
    found = exposure()
    assert (found.seconds / HOUR).tolist() == [4.0, 4.0, 1.0, 0.0]
    assert (found.silent_s / HOUR).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_where_nobody_looked_nothing_was_observed() -> None:
    none = np.array([])
    found = Exposure(none, none, np.array([], dtype=np.int64), np.array([-1, -1]))
    assert (found.seconds.tolist(), found.silent_s.tolist()) == ([0.0, 0.0], [0.0, 0.0])
    assert not found.holds(one(sign(Kind.GPU, 0.0, 1)))


@pytest.mark.parametrize(
    ("at_h", "nodes", "holds"),
    [
        (1.5, (0,), True),
        # It fell silent at 2 h: what ended it is told within the hour.
        (2.9, (0,), True),
        (5.9, (0,), True),
        (6.1, (0,), False),
        (0.5, (2,), False),
        (0.5, (2, 1), True),
        (1.5, (3,), False),
        (1.5, (), False),
    ],
)
def test_a_failure_counts_where_one_of_its_nodes_was_observed(
    at_h: float, nodes: tuple[int, ...], holds: bool
) -> None:
    assert exposure().holds(one(sign(Kind.NODE_LOST, at_h * HOUR, *nodes))) is holds
