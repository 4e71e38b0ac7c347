from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.matrix.expect import Told, judge, window_of
from lab.matrix.reading import read
from lab.matrix.result import Check, Measure, Series, Verdict
from lab.matrix.scenario import Period, Scenario

BASE = """
name: a
title: A fault from 100 s to 200 s of a run of 400 s
warm_up: 20s
duration: 400s
faults: [{kind: node_loss, at: 100s, for: 100s}]
"""


def scenario(expect: str) -> Scenario:
    return read((BASE + f"expect: [{expect}]").encode())


def series(values: dict[float, float | None], *, name: str = "x", to_s: int = 400) -> Series:
    """Return a series read each 10 s that takes each value from its time on."""
    times = [float(at) for at in range(0, to_s, 10)]
    held = [values[max(begun for begun in values if begun <= at)] for at in times]
    return Series(name=name, unit="W", t_s=times, values=held)


def check(expect: str, *told: Series, measures: dict[str, Measure] | None = None) -> Check:
    by_name = {each.name: each for each in told}
    (found,) = judge(scenario(expect), Told(by_name, measures or {}))
    return found


NEVER = "never: {series: x, above: 5, for: 30s}"


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        ({0: 5.0}, "passed", "5 at most"),
        ({0: 0.0, 100: 6.0, 120: 0.0}, "passed", "6 at most"),
        ({0: 0.0, 100: 6.0, 110: 9.0, 130: 0.0}, "failed", "above 5 for 30s from 1m40s on, 9 at"),
        ({0: 9.0, 20: 0.0}, "passed", "0 at most"),  # in the warm-up
        ({0: 0.0, 380: 6.0}, "passed", "6 at most"),
        ({0: 0.0, 370: 6.0}, "failed", "for 30s from 6m10s on"),
        ({0: None}, "not_measured", "not read"),
        ({0: 6.0, 40: None, 50: 6.0, 60: 0.0}, "passed", "6 at most"),  # a gap is no proof
    ],
)
def test_never(values: dict[float, float | None], verdict: str, said: str) -> None:
    found = check(NEVER, series(values))
    assert (found.verdict, found.text) == (verdict, "x is never above 5 for 30s")
    assert said in found.said


def test_never_counts_a_single_moment_where_no_length_is_given() -> None:
    values: dict[float, float | None] = {0: 1.0, 300: -1.0, 310: 1.0}
    assert check("never: {series: x, below: 0}", series(values)).verdict == "failed"


@pytest.mark.parametrize(
    ("during", "verdict"),
    [("run", "failed"), ("before", "passed"), ("faults", "failed"), ("after", "passed")],
)
def test_never_looks_at_a_part_of_the_run(during: str, verdict: str) -> None:
    values: dict[float, float | None] = {0: 0.0, 150: 9.0, 160: 0.0}
    found = check(f"never: {{series: x, above: 5, during: {during}}}", series(values))
    assert found.verdict == verdict


def test_periods_of_a_run() -> None:
    run = scenario(NEVER)
    found = {period.value: window_of(run, period) for period in Period}
    assert found == {
        "run": (20.0, 400.0),
        "before": (20.0, 100.0),
        "faults": (100.0, 200.0),
        "after": (200.0, 400.0),
    }


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        ({0: 0.0, 130: 6.0}, "passed", "after 30s"),
        ({0: 0.0, 160: 6.0}, "passed", "after 1m"),
        ({0: 0.0, 170: 6.0}, "failed", "it did not: 0 at most"),
        ({0: 6.0, 50: 0.0}, "failed", "it did not"),  # it was so before
    ],
)
def test_within(values: dict[float, float | None], verdict: str, said: str) -> None:
    found = check("within: {series: x, above: 5, time: 60s}", series(values))
    assert (found.verdict, said in found.said) == (verdict, True)
    assert found.text == "x gets above 5 within 60s of the start of node_loss"


def test_within_after_the_end_of_a_fault() -> None:
    values: dict[float, float | None] = {0: 9.0, 210: 0.0}
    found = check("within: {series: x, below: 1, time: 60s, after: end}", series(values))
    assert (found.verdict, found.said) == ("passed", "after 10s")


def test_a_run_that_ended_too_early_has_not_failed() -> None:
    short = series({0: 0.0}, to_s=150)
    for expect in (
        "within: {series: x, above: 5, time: 60s}",
        "recovers: {series: x, above: 5, time: 60s}",
    ):
        assert check(expect, short).verdict == "not_measured"


@pytest.mark.parametrize(
    ("value", "verdict"), [(1.0, "passed"), (1.01, "failed"), (None, "not_measured")]
)
def test_at_most(value: float | None, verdict: str) -> None:
    measure = Measure(name="m", value=value, unit="GPU h", said="of 8 jobs")
    found = check("at_most: {measure: m, value: 1}", measures={"m": measure})
    assert found.verdict == verdict
    assert "of 8 jobs" in found.said


@pytest.mark.parametrize(
    ("values", "verdict", "said"),
    [
        ({0: 10.0, 100: 2.0, 230: 9.0}, "passed", "after 30s"),
        ({0: 10.0, 100: 2.0, 200: 9.0, 230: 2.0, 250: 9.0}, "passed", "after 50s"),
        ({0: 10.0, 100: 2.0, 270: 9.0}, "failed", "only after 1m10s"),
        ({0: 10.0, 100: 2.0, 210: 8.9}, "failed", "not in the run; 8.9 at most"),
        ({0: 10.0}, "passed", "after 0s"),
        ({0: None, 100: 2.0}, "not_measured", "not read before"),
    ],
)
def test_recovers(values: dict[float, float | None], verdict: str, said: str) -> None:
    expect = "recovers: {series: x, share: 0.9, time: 60s, hold: 40s}"
    found = check(expect, series(values))
    assert found.verdict == verdict
    assert said in found.said


def test_recovers_to_a_value_that_is_low() -> None:
    values: dict[float, float | None] = {0: 60.0, 100: 95.0, 240: 70.0}
    found = check("recovers: {series: x, below: 80, time: 60s}", series(values))
    assert (found.verdict, found.said) == ("passed", "below 80 after 40s")


@pytest.mark.parametrize(
    "expect",
    [
        NEVER,
        "within: {series: x, above: 5, time: 60s}",
        "at_most: {measure: x, value: 1}",
        "recovers: {series: x, above: 5, time: 60s}",
    ],
)
def test_what_a_run_does_not_tell_is_not_passed(expect: str) -> None:
    found = check(expect)
    assert (found.verdict, found.said) == ("not_measured", "this run does not tell x")


@given(
    values=st.lists(st.none() | st.floats(-10, 10), min_size=40, max_size=40),
    limit=st.floats(-10, 10).map(lambda value: round(value, 3)),
)
def test_never_fails_just_where_a_value_is_beyond(values: list[float | None], limit: float) -> None:
    told = Series(name="x", unit="", t_s=[10.0 * i for i in range(40)], values=values)
    found = check(f"never: {{series: x, above: {limit}}}", told)
    judged = [value for value in values[2:] if value is not None and not math.isnan(value)]
    beyond = any(value > limit for value in judged)
    expected = Verdict.NOT_MEASURED if not judged else Verdict.FAILED if beyond else Verdict.PASSED
    assert found.verdict == expected
