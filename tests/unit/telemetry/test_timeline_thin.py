"""Thinning: what stands out is still there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.timeline.points import Field, Points, concatenate, in_buckets
from telemetry.timeline.thin import lttb, minmax


def make_points(
    t: Sequence[float],
    *,
    width_s: float = 0.0,
    cadence_s: float = 10.0,
    **fields: Sequence[float | None],
) -> Points:
    def column(values: Sequence[float | None]) -> Field:
        array = np.array(values, "f8")
        return Field(array, array, array, array, (~np.isnan(array)).astype("f8"))

    return Points(
        np.array(t, "f8"),
        np.full(len(t), width_s),
        np.full(len(t), cadence_s),
        {name: column(values) for name, values in fields.items()},
    )


def test_what_is_the_same_for_a_field_is_cut_and_joined_once() -> None:
    points = make_points([0, 10, 20], power_w=[5, 1, 9])
    for found in (points.at(np.array([0, 2])), concatenate([points, points], ["power_w"])):
        each = found.fields["power_w"]
        assert each.least is each.greatest is each.p95 is each.value
        assert each.count is not each.value
    assert points.at(slice(1, 3)).fields["power_w"].value.tolist() == [1, 9]


_VALUES = st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=200)


@given(_VALUES, st.sampled_from([30.0, 100.0, 600.0]))
def test_every_extreme_of_every_bucket_is_kept(values: list[float | None], step_s: float) -> None:
    t = [10.0 * i for i in range(len(values))]
    times, columns, _ = minmax(make_points(t, power_w=values), step_s)
    assert len(times) == 2 * math.ceil((t[-1] + 1) / step_s)
    for i in range(0, len(times), 2):
        inside = [
            v
            for at, v in zip(t, values, strict=True)
            if times[i] <= at < times[i] + step_s and v is not None
        ]
        kept = columns["power_w"][i : i + 2].tolist()
        if inside:
            assert sorted(kept) == [min(inside), max(inside)]
        else:
            assert all(map(math.isnan, kept))


def test_extremes_come_in_the_order_in_which_they_were_read() -> None:
    points = make_points([0, 10, 20, 30, 40, 50], power_w=[5, 1, 9, 3, 8, 2], temp_c=[9, 1, 5] * 2)
    _, columns, _ = minmax(points, 30)
    assert columns["power_w"].tolist() == [1, 9, 8, 2]
    assert columns["temp_c"].tolist() == [9, 1, 9, 1]


def test_of_a_single_row_the_line_goes_on_the_way_it_went() -> None:
    def field(*rows: tuple[float, float, float]) -> Field:
        mean, least, greatest = np.array(rows).T
        return Field(mean, least, greatest, greatest, np.full(len(rows), 6.0))

    minutes = Points(
        np.array([0.0, 60.0, 120.0]),
        np.full(3, 60.0),
        np.full(3, 60.0),
        {"power_w": field((10, 5, 15), (50, 45, 55), (20, 10, 30))},
    )
    times, columns, _ = minmax(minutes, 60)
    assert times.tolist() == [0, 30, 60, 90, 120, 150]
    assert columns["power_w"].tolist() == [5, 15, 45, 55, 30, 10]


def test_masks_keep_all_bits() -> None:
    _, columns, _ = minmax(make_points([0, 10, 20], throttle=[4, 0, 32]), 60)
    assert columns["throttle"].tolist() == [36, 36]


class TestMeans:
    def test_rows_weigh_as_long_as_they_stand(self) -> None:
        minute = make_points([0], width_s=60, cadence_s=0, power_w=[100])
        minute.fields["power_w"].count[:] = 6
        reading = make_points([60], power_w=[700])
        both = concatenate([minute, reading], ["power_w"])
        # The minute for 60 s, the reading for 10 s as is usual.
        mean_w = (60 * 100 + 10 * 700) / 70
        assert in_buckets(both, 120).fields["power_w"].value.tolist() == [mean_w]

    def test_a_burst_of_readings_does_not_outweigh_the_time_around_it(self) -> None:
        # 1 s apart for 10 s at 900 W, then 20 s apart at 300 W.
        t = [*range(11), *range(30, 120, 20)]
        points = make_points(t, power_w=[900] * 11 + [300] * 5)
        (mean_w,) = in_buckets(points, 120).fields["power_w"].value.tolist()
        stands_s = [1.0] * 10 + [0.5 + 10] + [20.0] * 5
        expected_w = (900 * sum(stands_s[:11]) + 300 * 100) / sum(stands_s)
        assert mean_w == pytest.approx(expected_w)

    def test_failed_readings_of_power_are_in_no_mean(self) -> None:
        points = make_points([0, 10, 20, 30], power_w=[500, -1, 0, 700])
        points.fields["power_w"].count[1:3] = 0
        assert in_buckets(points, 60).fields["power_w"].value.tolist() == [600]

    def test_sums_add_up_and_counters_are_at_their_last(self) -> None:
        points = make_points([0, 10, 20], used_j=[None, 5, 7], energy_j=[100, 105, 112])
        rows = in_buckets(points, 60)
        assert rows.fields["used_j"].value.tolist() == [12]
        assert rows.fields["energy_j"].value.tolist() == [112]

    def test_the_percentile_of_readings_is_exact(self) -> None:
        points = make_points([float(i) for i in range(100)], power_w=list(range(100)))
        assert in_buckets(points, 100).fields["power_w"].p95.tolist() == [94]

    def test_nothing_known_stays_nothing(self) -> None:
        rows = in_buckets(make_points([0, 10], power_w=[None, None], throttle=[None, None]), 60)
        assert np.isnan(rows.fields["power_w"].value).all()
        assert np.isnan(rows.fields["throttle"].value).all()

    def test_no_rows_make_no_buckets(self) -> None:
        assert len(in_buckets(make_points([], power_w=[]), 60)) == 0
        assert minmax(make_points([], power_w=[]), 60)[0].tolist() == []


class TestGaps:
    def test_even_readings_have_none(self) -> None:
        assert make_points([10.0 * i for i in range(9)]).gaps().tolist() == []

    def test_one_lost_reading_is_no_gap(self) -> None:
        assert make_points([0, 10, 30, 40]).gaps().tolist() == []

    def test_a_gap_is_before_the_row_that_ends_it(self) -> None:
        assert make_points([0, 10, 70, 80]).gaps().tolist() == [2]

    def test_an_empty_bucket_is_one(self) -> None:
        assert make_points([0, 60, 180], width_s=60, cadence_s=0).gaps().tolist() == [2]

    def test_roll_ups_of_readings_that_are_further_apart_have_none(self) -> None:
        assert make_points([0, 180, 360], width_s=60, cadence_s=180).gaps().tolist() == []

    def test_without_a_cadence_nothing_is_known_of_gaps(self) -> None:
        assert make_points([0, 1000], cadence_s=0).gaps().tolist() == []

    def test_tiers_meet_without_one(self) -> None:
        minutes = make_points([0, 60], width_s=60, cadence_s=0, power_w=[1, 1])
        readings = make_points([121, 131], power_w=[1, 1])
        assert concatenate([minutes, readings], ["power_w"]).gaps().tolist() == []


def plain_lttb(t: Sequence[float], v: Sequence[float], count: int) -> list[int]:
    """The method as it is described, point by point."""
    borders = [int(b) for b in np.linspace(1, len(t) - 1, count - 1)] + [len(t)]
    kept = [0]
    for start, end, next_end in zip(borders, borders[1:], borders[2:], strict=False):
        mean_t, mean_v = np.mean(t[end:next_end]), np.mean(v[end:next_end])
        a = kept[-1]
        areas = [
            abs((t[a] - mean_t) * (v[i] - v[a]) - (t[a] - t[i]) * (mean_v - v[a]))
            for i in range(start, end)
        ]
        kept.append(start + int(np.argmax(areas)))
    return [*kept, len(t) - 1]


class TestTriangles:
    @given(st.lists(st.integers(-1000, 1000), min_size=12, max_size=300), st.integers(3, 12))
    def test_it_keeps_the_points_of_the_largest_triangles(
        self, values: list[int], count: int
    ) -> None:
        t = np.arange(len(values), dtype="f8")
        found = lttb(t + 1.8e9, np.array(values, "f8"), count)
        assert found.tolist() == plain_lttb(t.tolist(), values, count)

    def test_few_points_are_all_kept(self) -> None:
        assert lttb(np.arange(5.0), np.ones(5), 10).tolist() == [0, 1, 2, 3, 4]

    def test_a_spike_is_kept(self) -> None:
        values = np.zeros(10_000)
        values[4321] = 1
        assert 4321 in lttb(np.arange(10_000.0), values, 50)


@pytest.mark.parametrize("count", [3, 50])
def test_first_and_last_are_kept(count: int) -> None:
    found = lttb(np.arange(1000.0), np.sin(np.arange(1000.0)), count)
    assert (found[0], found[-1], len(found)) == (0, 999, count)
