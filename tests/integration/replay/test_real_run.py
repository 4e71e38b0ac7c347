"""The published run of 64 nodes (512 H100s), played into a whole installation while a page looks.

Needs the data set ``mlperf-train-h100-node-power`` (MLPerf Training v4.0, Sustainable Metal Cloud),
found as tests/data_sets.py says; skipped where it is not there.
"""

from __future__ import annotations

import bisect
import csv
import gzip
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import urllib3

from bench.stack import REPOSITORY, Stack, running
from headroom.replay.fleet import make_fleet
from headroom.replay.formats import load
from tests.data_sets import data_set

SPEED = 20.0
#: The file's times are whole milliseconds; ours went through a division by the speed.
HALF_MS = 0.0005
#: Longer than a page may show the same view of the fleet.
AT_REST_S = 0.7
#: Recorded seconds that are played: past the ramp of the first seconds.
PLAYED_S = 150.0


@dataclass
class RawRun:
    """One run of the published file: readings of each node, in order of time."""

    start_s: float
    times_s: dict[str, list[float]]
    powers_w: dict[str, list[float]]

    def total_w(self, at_s: float) -> float:
        """Return the sum of every node's latest reading at ``at_s``, seconds into the run."""
        total = 0.0
        for node, times in self.times_s.items():
            place = bisect.bisect_right(times, at_s) - 1
            if place >= 0:
                total += self.powers_w[node][place]
        return total


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """What takes readings in, stores and shows them: each process more takes seconds to start."""
    with running("--web-workers", "1", "--services", "web", "worker", "beat") as started:
        yield started


@pytest.fixture(scope="module")
def signed_on(stack: Stack) -> tuple[Path, str]:
    """A file with an operator's token, and the cookie of a session."""
    token, cookie = stack.credentials("operator_token", "session_cookie")
    path = stack.state_dir / "operator-token"
    path.write_text(token)
    return path, cookie


@pytest.fixture(scope="module")
def folder() -> Path:
    return data_set("mlperf-train-h100-node-power")


@pytest.fixture(scope="module")
def raw(folder: Path) -> RawRun:
    """The first run by its AC meters, read independently of the replay's own code."""
    rows: list[tuple[float, str, float]] = []
    run_id = None
    with gzip.open(folder / "power_64node_gpt3.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            run_id = run_id or row["run_id"]
            if row["run_id"] == run_id and row["meter"] == "ac":
                rows.append((int(row["t_ms"]) / 1000, row["node"], float(row["power_w"])))
    start_s = min(rows)[0]
    times, powers = defaultdict(list), defaultdict(list)
    for t_s, node, power_w in sorted(rows):
        times[node].append(t_s - start_s)
        powers[node].append(power_w)
    return RawRun(start_s, dict(times), dict(powers))


class Readings:
    """What Postgres holds of the run."""

    def __init__(self, stack: Stack) -> None:
        self._connection = psycopg.connect(stack.environment["DATABASE_URL"], autocommit=True)

    def span(self) -> tuple[float, float] | None:
        """Return the times of the first and the newest reading, Unix seconds."""
        found = self._connection.execute(
            "SELECT extract(epoch FROM min(ts))::float8, extract(epoch FROM max(ts))::float8"
            " FROM meter_sample"
        ).fetchone()
        return None if found is None or found[0] is None else (found[0], found[1])

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def readings(stack: Stack) -> Iterator[Readings]:
    opened = Readings(stack)
    yield opened
    opened.close()


def heatmap(stack: Stack, cookie: str, site: str) -> dict[str, Any] | None:
    """Return what the heatmap's page polls; None: the server knows no such site yet."""
    answer = urllib3.request(
        "GET",
        f"{stack.url}/live/fleet?metric=power&site={site}",
        headers={"Cookie": cookie},
        redirect=False,
    )
    if answer.status == 404:
        return None
    assert answer.status == 200, answer.status
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.slow(
    beside="tests/unit/headroom/test_replay.py::test_readings_come_at_their_time_as_published"
)
def test_the_heatmap_shows_the_cluster_as_the_file_has_it_at_the_same_second(
    stack: Stack, signed_on: tuple[Path, str], folder: Path, raw: RawRun, readings: Readings
) -> None:
    token_file, cookie = signed_on
    site = make_fleet(load(folder)).site
    command = [
        sys.executable, "-m", "headroom", "replay", str(folder), "--server", stack.url,
        "--token-file", str(token_file), "--speed", str(SPEED), "--limit-s", str(PLAYED_S),
    ]  # fmt: skip
    compared: list[tuple[float, float, float]] = []
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as replay:
        newest, since = 0.0, time.monotonic()
        while replay.poll() is None:
            time.sleep(0.03)
            span = readings.span()
            if span is not None and span[1] != newest:
                newest, since = span[1], time.monotonic()
            # The replay pushes once a second; between two pushes the page has come to rest.
            if span is None or time.monotonic() - since < AT_REST_S:
                continue
            shown = heatmap(stack, cookie, site)
            at_s = (newest - span[0]) * SPEED
            if shown is not None and readings.span() == span and at_s > 20:
                shown_w = sum(shown["racks"]["load_kw"]) * 1000
                compared.append((at_s, shown_w, raw.total_w(at_s + HALF_MS)))
        assert replay.returncode == 0, replay.communicate()[0]
    assert len(compared) >= 10
    wrong = [each for each in compared if abs(each[1] - each[2]) > 0.005 * each[2]]
    print(json.dumps({"compared": len(compared), "worst": worst(compared)}))
    assert not wrong


def worst(compared: list[tuple[float, float, float]]) -> float:
    """Return the largest relative difference."""
    return max(abs(shown - true) / true for _, shown, true in compared)


@pytest.mark.slow(
    beside="tests/unit/headroom/test_replay.py::"
    "test_trouble_on_the_way_neither_loses_nor_doubles_a_reading"
)
def test_every_reading_of_the_file_is_stored_once(stack: Stack, raw: RawRun) -> None:
    expected = sum(bisect.bisect_right(times, PLAYED_S) for times in raw.times_s.values())
    with psycopg.connect(stack.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            "SELECT count(*), count(DISTINCT (meter_id, ts)) FROM meter_sample"
        ).fetchone()
    assert found == (expected, expected)
