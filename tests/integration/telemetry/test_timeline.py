"""Timelines over tiers: the same answer wherever rows lie, as exact as the rows are wide."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from fleet.models import Gpu, Meter, Node
from telemetry import housekeeping, samples, series
from telemetry.cold.models import ColdFile
from telemetry.models import ReportedJob
from telemetry.series import Kind, Method, Series, SeriesRequest, Tier, query
from telemetry.spans import ParameterError
from tests.builders.accounts import api_client
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

#: On a full day.
T0 = 1_800_057_600.0
HOUR = 3600.0
#: An hour and some minutes, of which the newest readings are not rolled up yet.
LENGTH_S = HOUR + 210
NOW = T0 + LENGTH_S + 5
MUCH_LATER = datetime.fromtimestamp(T0 + 40 * HOUR, UTC)


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> Path:
    settings.TELEMETRY_COLD_URL = str(tmp_path / "cold")
    settings.TELEMETRY_HOT_H = settings.TELEMETRY_MINUTE_HOT_H = 6
    return tmp_path / "cold"


@pytest.fixture
def gpu() -> Gpu:
    """A GPU with a reading each 20 s, whose power rises and has spikes."""
    gpu = make_node(gpus=1).gpus.get()
    count = int(LENGTH_S // 20)
    write_samples(
        samples.GPU,
        gpu.pk,
        [T0 + 20 * i for i in range(count)],
        power_w=[300 + i // 9 + (400 if i % 97 == 0 else 0) for i in range(count)],
        temp_c=[50 + i % 7 for i in range(count)],
        throttle=[4 if i % 50 == 0 else 0 for i in range(count)],
    )
    housekeeping.roll_up(NOW)
    return gpu


def ask(kind: Kind, source: int, *fields: str, **more: Any) -> Series:
    now = more.pop("now", NOW)
    span = {"start": T0, "end": T0 + LENGTH_S}
    return query(SeriesRequest(kind, source, fields, **(span | more)), now)


def known(found: Series, name: str) -> list[float]:
    return [value for value in found.columns[name] if value is not None]


def test_the_tier_is_as_coarse_as_the_points(gpu: Gpu) -> None:
    tiers = {
        points: ask(Kind.GPU, gpu.pk, "power_w", points=points).parts[0].tier
        for points in (5000, 50)
    }
    assert tiers == {5000: Tier.RAW, 50: Tier.MINUTE}


def test_what_is_not_rolled_up_yet_is_there_too(gpu: Gpu) -> None:
    found = ask(Kind.GPU, gpu.pk, "power_w", tier=Tier.HOUR)
    assert [part.tier for part in found.parts] == [Tier.HOUR, Tier.MINUTE, Tier.RAW]
    assert found.columns["t"] == [T0, T0 + HOUR]
    assert found.newest_at == T0 + 20 * int(LENGTH_S // 20 - 1)


@pytest.mark.parametrize("tier", [Tier.MINUTE, Tier.HOUR])
def test_tiers_agree_with_the_readings(gpu: Gpu, tier: Tier) -> None:
    fields = ("power_w", "temp_c", "used_j", "covered_s", "sw_power_cap_s")
    rows = {Tier.MINUTE: 64, Tier.HOUR: 2}[tier]  # as many as give the tier's own buckets
    found, exact = (
        ask(Kind.GPU, gpu.pk, *fields, band=True, points=points, tier=each)
        for each, points in ((tier, 5000), (Tier.RAW, rows))
    )
    assert found.columns["t"] == exact.columns["t"]
    for name in found.columns:
        assert found.columns[name] == pytest.approx(exact.columns[name], rel=1e-6), name


@pytest.mark.parametrize("points", [5000, 60, 10])
def test_energy_is_the_same_at_any_width(gpu: Gpu, points: int) -> None:
    powers = known(ask(Kind.GPU, gpu.pk, "power_w", points=5000), "power_w")
    trapezoids = sum(10 * (a + b) for a, b in pairwise(powers))
    found = ask(Kind.GPU, gpu.pk, "used_j", points=points)
    assert sum(known(found, "used_j")) == pytest.approx(trapezoids, rel=1e-9)


@pytest.mark.parametrize("start", [0, 3, 57, 61])
@pytest.mark.parametrize("length_s", [2, 100, 1803])
def test_energy_of_a_counter_that_is_read_seldom_is_that_of_the_span(
    start: int, length_s: int
) -> None:
    gpu = make_node(gpus=1).gpus.get()
    seconds = range(-30, 3000)
    write_samples(
        samples.GPU,
        gpu.pk,
        [T0 + s for s in seconds],
        power_w=111.0,
        energy_j=[400.0 * (s + 30) if s % 10 == 0 else None for s in seconds],
    )
    housekeeping.roll_up(NOW)
    span = {"start": T0 + start, "end": T0 + start + length_s}
    found = ask(Kind.GPU, gpu.pk, "used_j", "covered_s", **span)
    assert sum(known(found, "covered_s")) == pytest.approx(length_s)
    assert sum(known(found, "used_j")) == pytest.approx(400 * length_s)


def test_a_spike_shows_at_any_width(gpu: Gpu) -> None:
    for points in (5000, 50, 10):
        found = ask(Kind.GPU, gpu.pk, "power_w", points=points, method=Method.MINMAX)
        assert len(found.columns["t"]) <= points
        assert max(known(found, "power_w")) == 300 + 97 // 9 + 400


def test_triangles_keep_readings(gpu: Gpu) -> None:
    readings = ask(Kind.GPU, gpu.pk, "power_w", points=5000)
    pairs = set(zip(readings.columns["t"], readings.columns["power_w"], strict=True))
    found = ask(Kind.GPU, gpu.pk, "power_w", points=50, method=Method.LTTB, tier=Tier.RAW)
    assert len(found.columns["t"]) == 50
    assert set(zip(found.columns["t"], found.columns["power_w"], strict=True)) <= pairs


def test_the_percentile_is_that_of_each_bucket(gpu: Gpu) -> None:
    minutes = ask(Kind.GPU, gpu.pk, "temp_c", points=5000, p95=True, tier=Tier.MINUTE)
    exact = ask(Kind.GPU, gpu.pk, "temp_c", points=64, p95=True, tier=Tier.RAW)
    assert minutes.columns["temp_c_p95"] == exact.columns["temp_c_p95"]


def test_moved_rows_answer_as_before(gpu: Gpu) -> None:
    def answers() -> list[dict[str, Any]]:
        fields = ("power_w", "temp_c", "throttle")
        wanted = ((5000, Tier.RAW), (50, None), (20, Tier.HOUR))
        return [
            ask(Kind.GPU, gpu.pk, *fields, points=points, tier=tier).columns
            for points, tier in wanted
        ]

    before = answers()
    housekeeping.roll_up(MUCH_LATER.timestamp())
    assert housekeeping.move_to_cold(MUCH_LATER, budget_s=60)
    assert ColdFile.objects.filter(table="gpu_minute").exists()
    assert answers() == before


def test_what_readings_no_longer_tell_minutes_do(gpu: Gpu, settings: Settings) -> None:
    settings.TELEMETRY_RETENTION_H = 24
    housekeeping.roll_up(MUCH_LATER.timestamp())
    found = ask(Kind.GPU, gpu.pk, "power_w", points=5000, tier=Tier.RAW, now=MUCH_LATER.timestamp())
    assert [part.tier for part in found.parts] == [Tier.MINUTE]
    assert len(found.columns["t"]) == 64


def test_a_silence_is_a_gap_in_every_tier(gpu: Gpu) -> None:
    write_samples(samples.GPU, gpu.pk, [T0 + 3 * HOUR, T0 + 3 * HOUR + 20], power_w=100)
    housekeeping.roll_up(T0 + 5 * HOUR)
    for tier in Tier:
        found = ask(
            Kind.GPU,
            gpu.pk,
            "power_w",
            points=5000,
            tier=tier,
            end=T0 + 4 * HOUR,
            now=T0 + 5 * HOUR,
        )
        assert found.columns["power_w"].count(None) == 1, tier


class TestGroups:
    def test_a_node_is_the_same_by_minutes(self) -> None:
        node = make_node(gpus=2)
        meter = Meter.objects.create(name="m", node=node)
        ts = [T0 + 20 * i for i in range(90)]
        for place, gpu in enumerate(node.gpus.order_by("index")):
            write_samples(
                samples.GPU, gpu.pk, ts, power_w=400 + 100 * place, temp_c=60 + place, throttle=4
            )
        # For ten minutes the meter is broken, and for ten minutes in between it works by turns.
        powers = [1200.0] * 30 + [0.0] * 30 + [1200.0, 0.0, 0.0] * 10
        write_samples(samples.METER, meter.pk, ts, power_w=powers)
        write_samples(samples.HOST, node.pk, ts, power_w=300)
        housekeeping.roll_up(NOW)
        fields = ("power_w", "gpu_power_w", "temp_c", "throttle", "gpus_reporting", "used_j")
        found, exact = (
            ask(Kind.NODE, node.pk, *fields, tier=tier, points=40, end=T0 + 1800)
            for tier in (Tier.MINUTE, Tier.RAW)
        )
        assert found.step_s == exact.step_s == 60
        assert found.columns["power_w"] == [1200] * 10 + [1200] * 20
        assert found.columns["gpu_power_w"] == [900] * 30
        for name in fields:
            assert found.columns[name] == pytest.approx(exact.columns[name]), name

    def test_too_many_rows_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        node = make_node(gpus=2)
        monkeypatch.setattr("telemetry.timeline.tiers.MOST_ROWS", 10)
        with pytest.raises(ParameterError, match="coarser") as caught:
            ask(Kind.NODE, node.pk, "power_w", tier=Tier.RAW)
        assert caught.value.field == "tier"
        with pytest.raises(ParameterError, match="shorter") as caught:
            ask(Kind.NODE, node.pk, "power_w", end=T0 + 90 * HOUR)
        assert caught.value.field == "range"


class TestJobs:
    @pytest.fixture
    def job(self) -> int:
        return ReportedJob.objects.create(name="train-7b").pk

    @pytest.fixture
    def nodes(self, job: int) -> list[Node]:
        """Two nodes of one GPU; the second leaves the job after the first hour."""
        nodes = [make_node("n1", gpus=1), make_node("n2", gpus=1)]
        for node, carried_s in zip(nodes, (HOUR + 600, HOUR), strict=True):
            ts = [T0 + 20 * i for i in range(210)]
            write_samples(
                samples.GPU,
                node.gpus.get().pk,
                ts,
                power_w=500,
                job_id=[job if at < T0 + carried_s else None for at in ts],
            )
        write_samples(samples.JOB, job, [T0 + 60 * i for i in range(70)], loss=2.5, step=7)
        housekeeping.roll_up(T0 + 3 * HOUR)
        return nodes

    @pytest.mark.parametrize("tier", list(Tier))
    def test_it_is_the_sum_of_its_gpus_while_they_carried_it(
        self, job: int, nodes: list[Node], tier: Tier
    ) -> None:
        found = ask(
            Kind.JOB,
            job,
            "power_w",
            "gpus_reporting",
            "loss",
            tier=tier,
            end=T0 + HOUR + 600,
            now=T0 + 3 * HOUR,
        )
        by_time = dict(zip(found.columns["t"], found.columns["power_w"], strict=True))
        assert by_time[T0] == 1000
        assert by_time[T0 + HOUR] == 500
        assert set(found.columns["gpus_reporting"]) == {1, 2}
        assert set(found.columns["loss"]) == {2.5}

    def test_its_own_readings_need_no_gpus(self, job: int, nodes: list[Node]) -> None:
        found = ask(Kind.JOB, job, "loss", "step", end=T0 + HOUR + 600)
        assert len(found.columns["t"]) == 70


class TestApi:
    def url(self, gpu: Gpu, **more: Any) -> str:
        span = f"from={T0:.0f}&to={T0 + LENGTH_S:.0f}"
        rest = "".join(f"&{name}={value}" for name, value in more.items())
        return f"/api/v1/series?kind=gpu&id={gpu.pk}&fields=power_w&{span}{rest}"

    def test_it_says_where_the_rows_are_from(self, gpu: Gpu) -> None:
        body = api_client().get(self.url(gpu, points=50)).json()
        assert [part["tier"] for part in body["tiers"]] == ["minute", "raw"]
        assert (body["method"], body["step_s"]) == ("minmax", 300)
        assert len(body["columns"]["t"]) <= 50

    def test_a_lost_file_is_said(self, gpu: Gpu, folder: Path) -> None:
        housekeeping.roll_up(MUCH_LATER.timestamp())
        housekeeping.move_to_cold(MUCH_LATER, budget_s=60)
        for file in folder.rglob("*.parquet"):
            file.unlink()
        answer = api_client().get(self.url(gpu, tier="raw"))
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "cold_tier_away"

    def test_points_hold_for_every_method(self, gpu: Gpu) -> None:
        for method in series.Method:
            body = api_client().get(self.url(gpu, points=20, method=method)).json()
            assert len(body["columns"]["t"]) <= 20, method
