"""Readings by step: each stands at the step that the loop had reached then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from telemetry.figures.by_step import by_step
from telemetry.figures.model import Line, Row


def row(
    *points: tuple[float, float | None], field: str = "power_w", width: float | None = None
) -> Row:
    t, values = [list(each) for each in zip(*points, strict=True)] if points else ([], [])
    return Row("power", "Power", "W", (Line(field, "mean"),), {"t": t, field: values}, width)


def steps(*points: tuple[float, float | None], width: float | None = None) -> Row:
    return row(*points, field="step", width=width)


def test_a_reading_between_two_reports_stands_between_their_steps() -> None:
    (found,) = by_step([row((15.0, 500.0), (20.0, 600.0))], steps((10.0, 100.0), (20.0, 200.0)))
    assert found.columns == {"t": [150.0, 200.0], "power_w": [500.0, 600.0]}


def test_what_was_read_before_the_first_report_or_after_the_last_is_left_out() -> None:
    power = row((5.0, 70.0), (15.0, 500.0), (25.0, 70.0))
    (found,) = by_step([power], steps((10.0, 1.0), (20.0, 3.0)))
    assert found.columns == {"t": [2.0], "power_w": [500.0]}


def test_buckets_of_readings_and_of_steps_stand_at_their_middle() -> None:
    told = steps((0.0, 10.0), (10.0, 20.0), width=10.0)  # 10 at 5 s, 20 at 15 s
    (found,) = by_step([row((8.0, 500.0), width=4.0)], told)
    assert found.columns["t"] == [15.0]
    assert found.step_s is None


def test_of_readings_while_it_stood_still_the_last_one_stands() -> None:
    told = steps((0.0, 10.0), (10.0, 10.0), (20.0, 20.0))
    (found,) = by_step([row((2.0, 1.0), (5.0, 2.0), (9.0, 3.0), (20.0, 4.0))], told)
    assert found.columns == {"t": [10.0, 20.0], "power_w": [3.0, 4.0]}


def test_a_loop_that_told_of_no_step_has_no_rows() -> None:
    assert by_step([row((1.0, 2.0))], steps((0.0, None))) == []
    assert by_step([row()], steps((0.0, 1.0), (1.0, 2.0))) == []


_TIMES = st.lists(st.floats(0.0, 1e3), min_size=1, max_size=30, unique=True).map(sorted)


@given(_TIMES, _TIMES)
def test_steps_only_go_up_and_columns_have_one_length(read: list[float], told: list[float]) -> None:
    reports = steps(*((at, float(n // 2)) for n, at in enumerate(told)))
    for found in by_step([row(*((at, at) for at in read))], reports):
        reached = [each for each in found.columns["t"] if each is not None]
        assert reached == sorted(set(reached))
        assert len(found.columns["power_w"]) == len(reached)
        assert reached[-1] <= (len(told) - 1) // 2 + 1e-3
