"""From readings to roll-ups, compared with sums by hand and with plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.contracts import ThrottleCause
from telemetry import samples
from telemetry.rollups.compute import carriers, integrate, roll_up
from telemetry.rollups.spec import HOUR_S, MAX_GAP_S, MINUTE_S, ROLLUPS, Rollup
from telemetry.samples import Table
from telemetry.store.columns import US, Columns, columns_of, dtype_of, empty, null_of

#: On a full hour.
T0 = 1_800_000_000
GPU, METER = ROLLUPS["gpu_sample"], ROLLUPS["meter_sample"]


def make_rows(table: Table, ts: Sequence[float], source: int = 1, **given: Any) -> Columns:
    """Return readings of one thing. A scalar stands in every row, None is missing."""
    columns = {}
    for column in columns_of(table, [c.name for c in table.columns]):
        dtype = dtype_of(column)
        values = given.get(column.name)
        values = values if isinstance(values, Sequence) else [values] * len(ts)
        columns[column.name] = np.array([null_of(dtype) if v is None else v for v in values], dtype)
    columns["ts"] = np.round(np.array(ts, dtype="f8") * US).astype("i8")
    columns[table.key] = np.full(len(ts), source, dtype="i4")
    return columns


def joined(*parts: Columns) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def nothing_before(rollup: Rollup) -> Columns:
    return empty(rollup.source, ("ts", rollup.source.key, *rollup.edge_inputs))


def rolled(rollup: Rollup, rows: Columns, width_s: int = MINUTE_S) -> Columns:
    return roll_up(rollup, rows, nothing_before(rollup), width_s)


class TestWhatIsRead:
    def test_a_bucket_has_mean_least_greatest_and_percentile(self) -> None:
        rows = make_rows(samples.GPU, [T0 + s for s in range(60)], temp_c=list(range(1, 61)))
        made = rolled(GPU, rows)
        assert made["ts"].tolist() == [T0 * US]
        assert made["readings"].tolist() == [60]
        assert [made[f"temp_c{stat}"][0] for stat in ("", "_min", "_max", "_p95")] == [
            30.5, 1, 60, 57,
        ]  # fmt: skip

    def test_the_percentile_of_few_readings_is_the_greatest(self) -> None:
        rows = make_rows(samples.GPU, [T0 + 10 * i for i in range(6)], power_w=[1, 9, 2, 3, 2, 1])
        assert rolled(GPU, rows)["power_w_p95"].tolist() == [9]

    @given(st.lists(st.none() | st.integers(-1000, 1000), min_size=1, max_size=80))
    def test_missing_readings_count_nowhere(self, values: list[int | None]) -> None:
        rows = make_rows(samples.METER, [T0 + i / 2 for i in range(len(values))], temp_c=values)
        rows["power_w"] = rows["temp_c"].astype("f8")
        made = rolled(METER, rows)
        temps = [v for v in values if v is not None]
        assert math.isnan(made["temp_c"][0]) != bool(temps)
        if temps:
            assert made["temp_c"][0] == pytest.approx(sum(temps) / len(temps))
            assert (made["temp_c_min"][0], made["temp_c_max"][0]) == (min(temps), max(temps))
        # Of power, what failed counts nowhere either.
        known = sorted(v for v in temps if v > 0)
        if not known:
            assert math.isnan(made["power_w"][0])
            assert math.isnan(made["power_w_p95"][0])
            return
        assert made["power_w"][0] == pytest.approx(sum(known) / len(known))
        assert made["power_w_min"][0] == known[0]
        assert made["power_w_max"][0] == known[-1]
        assert made["power_w_p95"][0] == known[math.ceil(0.95 * len(known)) - 1]

    def test_a_fields_count_is_said_where_it_differs_from_that_of_the_rows(self) -> None:
        rows = make_rows(samples.GPU, [T0, T0 + 1], power_w=[5, None], temp_c=60)
        made = rolled(GPU, rows)
        null = null_of(made["power_w_n"].dtype)
        assert (made["power_w_n"][0], made["temp_c_n"][0], made["util_n"][0]) == (1, null, 0)

    def test_counters_are_at_their_last_and_masks_have_all_bits(self) -> None:
        rows = make_rows(samples.GPU, [T0, T0 + 1], ecc=[3, 4], throttle=[4, None], xid=None)
        made = rolled(GPU, rows)
        assert (made["ecc"][0], made["throttle"][0]) == (4, 4)
        assert made["xid"][0] == null_of(made["xid"].dtype)

    def test_things_and_buckets_stay_apart(self) -> None:
        rows = joined(
            make_rows(samples.GPU, [T0 + 59, T0 + 60], source=1, power_w=[1, 2]),
            make_rows(samples.GPU, [T0 + 61], source=2, power_w=[3]),
        )
        made = rolled(GPU, rows)
        found = zip(made["gpu_id"], (made["ts"] - T0 * US) / US, made["power_w"], strict=True)
        assert list(found) == [(1, 0, 1), (1, 60, 2), (2, 60, 3)]

    def test_a_job_has_the_bucket_in_which_it_had_most_readings(self) -> None:
        ts = [T0 + i for i in range(5)]
        rows = make_rows(samples.GPU, ts, job_id=[7, 7, None, 8, 7])
        assert rolled(GPU, rows)["job_id"].tolist() == [7]
        idle = make_rows(samples.GPU, ts, job_id=None)
        made = rolled(GPU, idle)["job_id"]
        assert made[0] == null_of(made.dtype)

    def test_no_readings_make_no_rows(self) -> None:
        assert len(rolled(GPU, make_rows(samples.GPU, []))["ts"]) == 0


class TestEnergy:
    def test_constant_power_gives_its_product_with_time(self) -> None:
        rows = make_rows(samples.METER, [T0 + 5 + 10 * i for i in range(-1, 12)], power_w=100)
        before = {name: values[:1] for name, values in rows.items()}
        after = {name: values[1:] for name, values in rows.items()}
        made = roll_up(METER, after, before, MINUTE_S)
        assert made["used_j"].tolist() == [6000, 6000]
        assert made["covered_s"].tolist() == [60, 60]

    def test_a_piece_counts_to_the_bucket_in_which_it_ends(self) -> None:
        rows = make_rows(samples.METER, [T0 + 50, T0 + 70], power_w=[100, 300])
        made = rolled(METER, rows)
        assert math.isnan(made["used_j"][0])  # a single reading tells of no time
        assert (made["used_j"][1], made["covered_s"][1]) == (4000, 20)

    def test_readings_too_far_apart_are_not_joined(self) -> None:
        near = make_rows(samples.METER, [T0, T0 + MAX_GAP_S], power_w=100)
        assert np.nansum(rolled(METER, near)["used_j"]) == 100 * MAX_GAP_S
        far = make_rows(samples.METER, [T0, T0 + MAX_GAP_S + 0.001], power_w=100)
        assert np.isnan(rolled(METER, far)["used_j"]).all()

    def test_a_counter_of_energy_counts_before_power(self) -> None:
        rows = make_rows(samples.METER, [T0, T0 + 10], power_w=100, energy_j=[5000, 6234])
        assert rolled(METER, rows)["used_j"].tolist() == [1234]

    def test_between_two_readings_of_a_counter_powers_do_not_count(self) -> None:
        counted = [1000.0 * (s // 10) if s % 10 == 0 else None for s in range(60)]
        rows = make_rows(samples.GPU, [T0 + s for s in range(60)], power_w=300, energy_j=counted)
        made = rolled(GPU, rows)
        # Up to the last reading of the counter: what comes after counts where its next one stands.
        assert (made["used_j"][0], made["covered_s"][0]) == (5000, 50)

    def test_a_counter_that_is_read_no_more_leaves_it_to_the_powers(self) -> None:
        counted = [0.0, *[None] * 9, 1000.0, *[None] * 49]
        rows = make_rows(samples.GPU, [T0 + s for s in range(60)], power_w=300, energy_j=counted)
        made = rolled(GPU, rows)
        assert (made["used_j"][0], made["covered_s"][0]) == (1000 + 49 * 300, 59)

    def test_where_the_counter_began_anew_power_counts(self) -> None:
        rows = make_rows(
            samples.METER, [T0, T0 + 10, T0 + 20], power_w=100, energy_j=[5000, 3, 1003]
        )
        assert rolled(METER, rows)["used_j"].tolist() == [2000]

    def test_a_reading_without_power_does_not_cut_the_piece_around_it(self) -> None:
        rows = make_rows(samples.METER, [T0, T0 + 10, T0 + 20], power_w=[100, None, 200], temp_c=20)
        assert rolled(METER, rows)["used_j"].tolist() == [3000]

    def test_failed_readings_are_counted_and_cover_no_time(self) -> None:
        powers = [100, 0, -20, 100, 120]
        rows = make_rows(samples.METER, [T0 + i for i in range(5)], power_w=powers)
        made = rolled(METER, rows)
        assert made["suspect"].tolist() == [2]
        assert made["used_j"].tolist() == [110]
        assert made["covered_s"].tolist() == [1]
        assert (made["power_w"][0], made["power_w_min"][0]) == (pytest.approx(320 / 3), 100)

    def test_a_meter_that_failed_throughout_tells_no_energy(self) -> None:
        rows = make_rows(samples.METER, [T0 + i for i in range(5)], power_w=-1, energy_j=7)
        made = rolled(METER, rows)
        assert math.isnan(made["used_j"][0])
        assert math.isnan(made["covered_s"][0])
        assert math.isnan(made["power_w"][0])

    def test_a_counter_that_goes_on_counts_though_the_power_failed(self) -> None:
        rows = make_rows(samples.METER, [T0, T0 + 10], power_w=[100, 0], energy_j=[5000, 6000])
        made = rolled(METER, rows)
        assert (made["used_j"][0], made["covered_s"][0]) == (1000, 10)

    def test_two_readings_of_one_moment_add_no_energy(self) -> None:
        rows = make_rows(samples.METER, [T0, T0, T0 + 10], power_w=[100, 100, 100])
        assert rolled(METER, rows)["used_j"].tolist() == [1000]

    def test_a_host_without_a_meter_of_its_own_is_its_processors(self) -> None:
        host = ROLLUPS["host_sample"]
        rows = make_rows(samples.HOST, [T0, T0 + 10], power_w=[None, 300], cpu_power_w=[100, 150])
        assert rolled(host, rows)["used_j"].tolist() == [2000]


_GAPS = st.lists(st.floats(0.001, 250), min_size=1, max_size=60)
_POWERS = st.lists(st.none() | st.floats(-50, 1000), min_size=61, max_size=61)


@given(_GAPS, _POWERS)
def test_hours_are_the_sums_of_their_minutes_and_of_the_trapezoids(
    gaps: list[float], powers: list[float | None]
) -> None:
    ts = T0 + np.cumsum([0.0, *gaps])
    rows = make_rows(samples.METER, ts.tolist(), power_w=powers[: len(ts)], temp_c=1)
    minutes, hours = rolled(METER, rows), rolled(METER, rows, HOUR_S)
    for name in ("used_j", "covered_s", "suspect", "readings"):
        total = np.nansum(minutes[name].astype("f8"))
        assert np.nansum(hours[name].astype("f8")) == pytest.approx(total, rel=1e-12, abs=1e-9)
    known = [
        (int(t), float(p))
        for t, p in zip(rows["ts"], rows["power_w"], strict=True)
        if not math.isnan(p)
    ]
    trapezoids = sum(
        (p + q) / 2 * (u - t) / US
        for (t, p), (u, q) in itertools.pairwise(known)
        if u - t <= MAX_GAP_S * US and p > 0 and q > 0
    )
    assert np.nansum(minutes["used_j"]) == pytest.approx(trapezoids, rel=1e-6, abs=1e-3)


class TestThrottling:
    def test_a_counter_tells_what_the_mask_misses(self) -> None:
        rows = make_rows(
            samples.GPU,
            [T0, T0 + 10],
            throttle=0,
            throttle_hw_power_brake_ns=[5_000_000_000, 5_000_000_001],
        )
        assert rolled(GPU, rows)["hw_power_brake_s"].tolist() == [1e-9]

    def test_without_a_counter_the_mask_holds_for_half_of_the_way_to_its_neighbors(self) -> None:
        rows = make_rows(samples.GPU, [T0, T0 + 10, T0 + 20], throttle=[0, 0x100, 0x100])
        assert rolled(GPU, rows)["display_clock_s"].tolist() == [15]

    def test_a_counter_that_began_anew_leaves_it_to_the_mask(self) -> None:
        rows = make_rows(
            samples.GPU, [T0, T0 + 10], throttle=8, throttle_hw_slowdown_ns=[9_000_000_000, 1]
        )
        assert rolled(GPU, rows)["hw_slowdown_s"].tolist() == [10]

    def test_a_slowdown_is_bounded_by_the_counters_that_explain_it(self) -> None:
        def slowed(mask: int, heat_ns: int | None) -> float:
            brake_ns, heat = [0, 3_000_000_000], [0, heat_ns]
            given: dict[str, Any] = {
                "throttle_hw_power_brake_ns": brake_ns,
                "throttle_hw_thermal_ns": heat,
            }
            rows = make_rows(samples.GPU, [T0, T0 + 10], throttle=[0, mask], **given)
            return float(rolled(GPU, rows)["hw_slowdown_s"][0])

        assert slowed(0x88, 1_000_000_000) == 4
        assert slowed(0x88, 9_000_000_000) == 5
        # Nothing explains it, or a counter is missing: by the mask.
        assert slowed(0x08, 0) == 5
        assert slowed(0x88, None) == 5

    def test_no_counter_grows_by_more_than_the_time(self) -> None:
        rows = make_rows(samples.GPU, [T0, T0 + 10], throttle_sw_thermal_ns=[0, 10_400_000_000])
        assert rolled(GPU, rows)["sw_thermal_s"].tolist() == [10]

    def test_where_neither_was_read_nothing_is_known(self) -> None:
        rows = make_rows(samples.GPU, [T0, T0 + 10], power_w=100)
        assert np.isnan(rolled(GPU, rows)["sw_power_cap_s"]).all()

    def test_every_cause_has_its_seconds(self) -> None:
        found = integrate(GPU, make_rows(samples.GPU, [T0, T0 + 10], throttle=0))
        assert {f"{cause.token}_s" for cause in ThrottleCause} <= set(found)


def test_who_carried_a_job_is_known() -> None:
    rows = joined(
        make_rows(samples.GPU, [T0, T0 + 1], source=4, job_id=[7, 8]),
        make_rows(samples.GPU, [T0, T0 + 1], source=9, job_id=[7, None]),
    )
    found = carriers(rows, samples.GPU, "job_id")
    assert {job: gpus.tolist() for job, gpus in found.items()} == {7: [4, 9], 8: [4]}
