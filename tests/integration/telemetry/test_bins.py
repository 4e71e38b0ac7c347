"""Roll-ups that Postgres puts together in wider buckets: the same answer as from every row."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from fleet.models import Meter, Node
from telemetry import housekeeping, samples, series
from telemetry.cold.models import ColdFile
from telemetry.series import FIELDS, Kind, Series, SeriesRequest, query
from telemetry.timeline import bins
from tests.builders.readings import make_node, write_samples

pytestmark = pytest.mark.django_db

#: On a full day.
T0 = 1_800_057_600.0
LENGTH_S = 6 * 3600.0
NOW = T0 + LENGTH_S + 600
GPUS = 4
#: Buckets of five minutes.
POINTS = 80


@pytest.fixture(autouse=True)
def folder(settings: Settings, tmp_path: Path) -> None:
    settings.TELEMETRY_COLD_URL = str(tmp_path / "cold")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[bins.Bins | None]:
    """What was read in buckets, as it is read."""
    found: list[bins.Bins | None] = []
    original = bins.read

    def kept(*args: Any, **kwargs: Any) -> bins.Bins | None:
        found.append(original(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(bins, "read", kept)
    return found


def make_fleet(*, silent: range = range(0), hot: range = range(0)) -> Node:
    """Return a node with readings each 20 s.

    The first GPU is ``silent`` for some seconds; the second does not know its temperature while
    ``hot``, nor do the powers of any two GPUs have the same course.
    """
    node = make_node(gpus=GPUS)
    for place, gpu in enumerate(node.gpus.order_by("index")):
        since = [s for s in range(4 * place, int(LENGTH_S), 20) if place or s not in silent]
        write_samples(
            samples.GPU,
            gpu.pk,
            [T0 + s for s in since],
            power_w=[300 + 50 * place + 90 * math.sin(s / 700 + place) for s in since],
            energy_j=[500.0 * s for s in since],
            temp_c=[None if place == 1 and s in hot else 50 + s % (70 + place) for s in since],
            sm_mhz=[1500 + s % 400 for s in since],
            throttle=[4 if s % 1300 < 30 else 0 for s in since],
            throttle_sw_power_cap_ns=[s * 10_000_000 for s in since],
            ecc=[s // 5000 for s in since],
        )
    housekeeping.roll_up(NOW)
    return node


def ask(node: Node, **more: Any) -> Series:
    span = {"start": T0, "end": T0 + LENGTH_S, "points": POINTS}
    return query(SeriesRequest(Kind.NODE, node.pk, FIELDS[Kind.NODE], **(span | more)), NOW)


def ask_for_rows(node: Node, **more: Any) -> Series:
    """Ask, and have every row read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "_bin_s", lambda *_: 0)
        return ask(node, **more)


def assert_same(found: Series, expected: Series) -> None:
    assert found.step_s == expected.step_s
    assert found.parts == expected.parts
    for name in expected.columns:
        assert numbers(found, name) == pytest.approx(numbers(expected, name), nan_ok=True), name


def numbers(found: Series, name: str) -> list[float]:
    return [math.nan if value is None else value for value in found.columns[name]]


def test_nothing_differs_where_nothing_is_missing(read: list[bins.Bins | None]) -> None:
    node = make_fleet()
    assert_same(ask(node), ask_for_rows(node))
    (found,) = read
    assert found is not None
    # All but the ends, of each GPU.
    assert len(found.columns["ts"]) == GPUS * (LENGTH_S / 300 - 2)


@pytest.mark.parametrize("start", [0, 30, 60, 601])
def test_a_span_may_begin_and_end_within_a_bucket(read: list[bins.Bins | None], start: int) -> None:
    node = make_fleet()
    span = {"start": T0 + start, "end": T0 + LENGTH_S - 7 * start}
    assert_same(ask(node, **span), ask_for_rows(node, **span))
    assert any(read)


def test_means_beside_a_silence_are_those_of_the_rows(read: list[bins.Bins | None]) -> None:
    node = make_fleet(silent=range(7000, 7000 + 13 * 60))
    assert_same(ask(node), ask_for_rows(node))
    (found,) = read
    assert found is not None
    assert len(found.left) == 4  # both ends, before the silence and after it


def test_a_silence_as_long_as_a_bucket_counts_for_its_neighbors(
    read: list[bins.Bins | None],
) -> None:
    node = make_fleet(silent=range(7190, 7510))
    assert_same(ask(node), ask_for_rows(node))
    assert any(read)


def test_a_value_that_some_rows_lack_is_the_mean_of_the_others(
    read: list[bins.Bins | None],
) -> None:
    node = make_fleet(hot=range(3660, 3780))
    assert_same(ask(node), ask_for_rows(node))
    assert any(read)


def test_where_rows_are_missing_in_many_places_all_are_read(
    read: list[bins.Bins | None],
) -> None:
    node = make_fleet()
    gpu = node.gpus.latest("pk")
    with connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM gpu_minute WHERE gpu_id = %s AND extract(epoch FROM ts)::int8 %% 2400 = 0",
            [gpu.pk],
        )
    assert_same(ask(node), ask_for_rows(node))
    assert read == [None]


def test_a_meter_that_reports_rarely_widens_the_buckets() -> None:
    node = make_fleet()
    meter = Meter.objects.create(name="m", node=node)
    ts = [T0 + s for s in range(0, int(LENGTH_S), 420)]
    write_samples(samples.METER, meter.pk, ts, power_w=[2000.0 + n for n in range(len(ts))])
    housekeeping.roll_up(NOW)
    found = ask(node)
    assert found.step_s == 900
    assert_same(found, ask_for_rows(node))


def test_rows_that_moved_are_read_where_they_are(
    read: list[bins.Bins | None], settings: Settings
) -> None:
    node = make_fleet()
    before = ask(node)
    settings.TELEMETRY_HOT_H = settings.TELEMETRY_MINUTE_HOT_H = 6
    housekeeping.move_to_cold(datetime.fromtimestamp(T0 + 40 * 3600, UTC))
    assert ColdFile.objects.filter(table="gpu_minute").exists()
    read.clear()
    assert_same(ask(node), before)
    assert read == [None]
