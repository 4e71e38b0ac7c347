"""Least, mean and greatest over a span: those of readings, whatever the width of rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from fleet.models import Meter, Node
from telemetry import housekeeping, samples
from telemetry.series import Kind, Method, Series, SeriesRequest, query
from tests.builders.accounts import api_client
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

#: On a full day.
T0 = 1_800_057_600.0
HOUR = 3600.0
LENGTH_S = 2 * HOUR
NOW = T0 + LENGTH_S + 600
WIDTHS = [5000, 60, 10]


def ask(kind: Kind, source: int, *fields: str, **more: Any) -> Series:
    span = {"start": T0, "end": T0 + LENGTH_S, "extents": True}
    return query(SeriesRequest(kind, source, fields, **(span | more)), NOW)


@pytest.fixture
def node() -> Node:
    """A node of two GPUs that are read out of step; each peaks once, the two together once."""
    node = make_node(gpus=2)
    for place, gpu in enumerate(node.gpus.order_by("index")):
        ts = [T0 + 10 * i + 4 * place for i in range(int(LENGTH_S // 10))]
        powers = [300.0 + 100 * place] * len(ts)
        powers[100 + 100 * place] = 700.0  # alone
        powers[500] = 690.0  # together
        powers[600] = 100.0
        write_samples(samples.GPU, gpu.pk, ts, power_w=powers, temp_c=[p / 10 for p in powers])
    housekeeping.roll_up(NOW)
    return node


@pytest.mark.parametrize("points", WIDTHS)
def test_extremes_of_a_node_are_those_of_the_moment(node: Node, points: int) -> None:
    found = ask(Kind.NODE, node.pk, "power_w", "temp_c", points=points).extents
    power = found["power_w"]
    assert (power.least, power.greatest, power.exact) == (200, 1380, True)
    # 700 W for 720 readings, but for the peaks.
    mean_w = 700 + (400 + 300 + 390 + 290 - 200 - 300) / 720
    assert power.mean == pytest.approx(mean_w, rel=1e-3)
    assert (found["temp_c"].least, found["temp_c"].greatest) == (10, 70)


@pytest.mark.parametrize("points", [60, 20])
def test_a_chart_of_a_node_shows_its_peak(node: Node, points: int) -> None:
    found = ask(Kind.NODE, node.pk, "power_w", points=points, method=Method.MINMAX, extents=False)
    powers = [value for value in found.columns["power_w"] if value is not None]
    assert len(powers) <= points
    assert (min(powers), max(powers)) == (200, 1380)


@pytest.mark.parametrize("points", WIDTHS)
def test_extremes_of_a_rack_are_those_of_the_moment(node: Node, points: int) -> None:
    other = make_node("n2", gpus=1)
    ts = [T0 + 10 * i + 7 for i in range(int(LENGTH_S // 10))]
    powers = [500.0] * len(ts)
    powers[499] = 600.0  # T0 + 4997 to 5007: both GPUs of the other node peak within
    write_samples(samples.GPU, other.gpus.get().pk, ts, power_w=powers)
    housekeeping.roll_up(NOW)
    power = ask(Kind.RACK, node.rack_id, "power_w", points=points).extents["power_w"]
    assert (power.least, power.greatest, power.exact) == (700, 1980, True)


@pytest.mark.parametrize("points", WIDTHS)
def test_extremes_by_a_meter_are_those_of_its_good_readings(points: int) -> None:
    node = make_node(gpus=0)
    meter = Meter.objects.create(name="m", node=node)
    ts = [T0 + 5 * i for i in range(int(LENGTH_S // 5))]
    powers = [4000.0] * len(ts)
    powers[333], powers[334], powers[777] = 6850.0, -1.0, 3100.0
    write_samples(samples.METER, meter.pk, ts, power_w=powers)
    housekeeping.roll_up(NOW)
    for kind, source in ((Kind.NODE, node.pk), (Kind.METER, meter.pk)):
        power = ask(kind, source, "power_w", points=points).extents["power_w"]
        assert (power.least, power.greatest, power.exact) == (3100, 6850, True), kind
        assert power.mean == pytest.approx(4000 + (2850 - 900) / 1439, rel=1e-3)


def test_a_meter_tells_the_peak_also_where_readings_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node(gpus=0)
    meter = Meter.objects.create(name="m", node=node)
    ts = [T0 + 10 * i for i in range(int(LENGTH_S // 10))]
    write_samples(samples.METER, meter.pk, ts, power_w=[*[4000.0] * 300, 6850.0, *[4000.0] * 419])
    housekeeping.roll_up(NOW)
    monkeypatch.setattr("telemetry.series.MOST_ROWS", 10)
    power = ask(Kind.NODE, node.pk, "power_w", points=10).extents["power_w"]
    assert (power.greatest, power.exact) == (6850, False)


def test_what_roll_ups_keep_no_extreme_of_is_looked_up(node: Node) -> None:
    gpu = node.gpus.get(index=0)
    ts = [T0 + 10 * i + 1 for i in range(360)]
    write_samples(samples.GPU, gpu.pk, ts, mem_used=[2**30] * 100 + [2**20] + [2**30] * 259)
    housekeeping.roll_up(NOW)
    found = ask(Kind.GPU, gpu.pk, "mem_used", points=10).extents["mem_used"]
    assert (found.least, found.greatest, found.exact) == (2**20, 2**30, True)


@pytest.mark.parametrize("points", WIDTHS)
def test_the_mean_of_uneven_readings_is_weighted_by_time(points: int) -> None:
    gpu = make_node(gpus=1).gpus.get()
    # Read each second in the first of every ten minutes, each 30 s in the others.
    ts = [T0 + 600 * i + s for i in range(12) for s in (*range(60), *range(60, 600, 30))]
    powers = [600.0 if (at - T0) % 600 < 60 else 200.0 for at in ts]
    write_samples(samples.GPU, gpu.pk, ts, power_w=powers)
    housekeeping.roll_up(NOW)
    mean_w = ask(Kind.GPU, gpu.pk, "power_w", points=points).extents["power_w"].mean
    assert mean_w == pytest.approx(240, rel=0.04)


class TestEnergy:
    """Readings of -1 W, in whole minutes and one by one."""

    POWERS = (500.0, *[-1.0] * 7, 600.0, 620.0, -1.0, 640.0) * 60

    @pytest.fixture
    def meter(self) -> Meter:
        meter = Meter.objects.create(name="m", node=make_node(gpus=0))
        ts = [T0 + 10 * i for i in range(len(self.POWERS))]
        write_samples(samples.METER, meter.pk, ts, power_w=self.POWERS)
        housekeeping.roll_up(NOW)
        return meter

    @pytest.mark.parametrize("points", WIDTHS)
    def test_what_was_not_measured_is_not_covered(self, meter: Meter, points: int) -> None:
        good = [(p + q) / 2 * 10 for p, q in pairwise(self.POWERS) if p > 0 and q > 0]
        found = ask(Kind.METER, meter.pk, "used_j", "covered_s", points=points)
        for name, expected in (("used_j", sum(good)), ("covered_s", 10.0 * len(good))):
            values = [value for value in found.columns[name] if value is not None]
            assert sum(values) == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("points", WIDTHS)
    def test_what_is_bridged_is_said(self, meter: Meter, points: int) -> None:
        energy = ask(Kind.METER, meter.pk, "used_j", points=points).energy
        assert energy is not None
        assert energy.used_j < 0.3 * 580 * LENGTH_S
        assert energy.bridged_j == pytest.approx(580 * LENGTH_S, rel=0.03)
        length_s = energy.covered_s / (1 - energy.share)
        assert length_s == pytest.approx(LENGTH_S, abs=70)

    def test_the_api_gives_both(self, meter: Meter) -> None:
        query = f"kind=meter&id={meter.pk}&fields=used_j,power_w&from={T0}&to={T0 + LENGTH_S}"
        body = api_client().get(f"/api/v1/series?{query}&extents=1").json()
        assert body["energy"].keys() == {"used_j", "covered_s", "bridged_j", "bridged_share"}
        assert body["extents"]["power_w"]["min"] == 500
        assert "energy" not in api_client().get(f"/api/v1/series?{query}").json()
