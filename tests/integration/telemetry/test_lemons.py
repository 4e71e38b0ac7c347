"""Lemons from stored readings, window by window; and ``/api/v1/lemons``."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client

from fleet import snapshot
from fleet.models import Gpu, Node
from telemetry import housekeeping, samples, stream, tasks
from telemetry.lemons import watch
from telemetry.lemons.models import LemonFinding, LemonWatch
from telemetry.lemons.rules import LEAST_WINDOWS, WINDOW_S
from telemetry.rollups import marks
from telemetry.samples import NULL_INT, Rows
from telemetry.tiers import raw_width
from tests.builders.accounts import api_client
from tests.builders.readings import make_node

URL = "/api/v1/lemons"
#: The end of a window, an hour and more ago.
END = float(int(time.time()) // WINDOW_S * WINDOW_S)


@pytest.fixture
def nodes() -> list[Node]:
    """A rack of 32 GPUs."""
    found = [make_node(f"n{number}", gpus=8) for number in range(4)]
    snapshot.invalidate()
    return found


def gpu_ids() -> np.ndarray[Any, Any]:
    return np.array(Gpu.objects.order_by("node__name", "index").values_list("pk", flat=True))


def write(start: float, end: float, hot: int | None = 5, hot_c: float = 84.0) -> None:
    """Store readings of all GPUs each 20 s, of which one (by place in the rack) is hotter."""
    store_only(start, end, hot, hot_c)
    housekeeping.roll_up(end + 60)


def store_only(start: float, end: float, hot: int | None = 5, hot_c: float = 84.0) -> None:
    ids = gpu_ids()
    ts = np.arange(start, end, 20.0)
    number = np.tile(np.arange(len(ids)), len(ts))
    power_w = 560.0 + 8.0 * np.sin(number)
    given: dict[str, Any] = {
        "ts": np.repeat(ts, len(ids)),
        "gpu_id": np.tile(ids, len(ts)),
        "power_w": power_w,
        "power_limit_w": np.full(len(number), 700.0),
        "temp_c": np.where(number == hot, hot_c, 30.0 + 0.06 * power_w),
        "sm_mhz": np.full(len(number), 1900.0),
        "util": np.full(len(number), 99.0),
    }
    columns = {
        c.name: given.get(c.name, np.full(len(number), np.nan if c.is_float else NULL_INT))
        for c in samples.GPU.columns
    }
    rows = Rows(samples.GPU, columns)
    with connection.cursor() as cursor:
        made = samples.partitions_for(samples.GPU, columns["ts"], raw_width())
        samples.create_partitions(cursor.cursor, made)
        samples.copy(cursor.cursor, rows)
        marks.note(cursor.cursor, [rows])


def look(end: float = END) -> int:
    return watch.look(end + watch.LAG_S)


def test_a_lemon_is_found_once_it_was_hot_for_long_enough(nodes: list[Node]) -> None:
    enough = LEAST_WINDOWS * WINDOW_S
    write(END - enough, END)
    look(END - WINDOW_S)
    assert not LemonFinding.objects.exists()
    look()
    finding = LemonFinding.objects.get()
    assert (finding.gpu.node.name, finding.gpu.index) == ("n0", 5)
    assert (finding.metric, finding.unit, finding.peers) == ("hot_core", "°C", 31)
    assert finding.own == pytest.approx(84.0)
    assert finding.difference == pytest.approx(84.0 - 63.6, abs=1.0)
    assert finding.among == "rack"
    assert finding.seen_at == datetime.fromtimestamp(END, UTC)


def test_each_window_is_looked_at_once(nodes: list[Node]) -> None:
    write(END - 4 * WINDOW_S, END)
    assert look(END - WINDOW_S) == watch.MAX_BACK_S / WINDOW_S
    assert look(END - WINDOW_S) == 0
    assert look() == 1
    assert look(END - 10 * WINDOW_S) == 0
    finding = LemonFinding.objects.get()
    look()
    assert LemonFinding.objects.get().score == finding.score


def test_a_window_waits_until_its_readings_are_rolled_up(nodes: list[Node]) -> None:
    write(END - 2 * WINDOW_S, END - WINDOW_S)
    look(END - WINDOW_S)
    store_only(END - WINDOW_S, END)
    assert look() == 0
    housekeeping.roll_up(END + 60)
    assert watch.look(END + watch.LAG_S - 1) == 0
    assert watch.look(END + watch.LAG_S) == 1


def test_readings_that_come_late_are_waited_for_as_long_as_they_are_not_rolled_up(
    nodes: list[Node],
) -> None:
    write(END - 2 * WINDOW_S, END)
    store_only(END - WINDOW_S + 60, END - WINDOW_S + 100)
    look()
    assert LemonWatch.objects.get().until.timestamp() == END - WINDOW_S
    housekeeping.roll_up(END + 60)
    assert look() == 1


def test_after_a_long_pause_only_the_last_hour_is_looked_at(nodes: list[Node]) -> None:
    LemonWatch.objects.create(until=datetime.fromtimestamp(END - 86_400, UTC))
    housekeeping.roll_up(END + 60)
    assert look() == watch.MAX_BACK_S / WINDOW_S


def test_a_finding_ends_when_the_gpu_is_like_the_others_again(nodes: list[Node]) -> None:
    write(END - 6 * WINDOW_S, END)
    look()
    now = END + watch.MAX_BACK_S
    write(END, now, hot=None)
    look(now)
    finding = LemonFinding.objects.get()
    assert finding.ended_at is not None
    assert finding.seen_at == datetime.fromtimestamp(END, UTC)
    assert finding.own == pytest.approx(84.0)


def test_when_redis_is_lost_findings_stand_and_scores_are_gathered_anew(nodes: list[Node]) -> None:
    write(END - 6 * WINDOW_S, END)
    look()
    stream.connection().flushall()
    later = END + 2 * WINDOW_S
    write(END, later, hot=6)
    look(later)
    # Two windows are too few for a new finding, or to end the old one.
    assert [(f.gpu.index, f.ended_at) for f in LemonFinding.objects.all()] == [(5, None)]


def test_what_was_rolled_back_is_not_remembered(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(END - 6 * WINDOW_S, END)
    look(END - WINDOW_S)
    score = LemonFinding.objects.get().score
    with monkeypatch.context() as patch:
        patch.setattr(LemonWatch, "save", _fail)
        with pytest.raises(RuntimeError):
            look()
    assert LemonFinding.objects.get().score == score
    assert look() == 1
    assert LemonFinding.objects.get().score == pytest.approx(score, rel=0.05)


def _fail(*args: Any, **options: Any) -> None:
    raise RuntimeError("the server is away")


def test_windows_without_readings_find_nothing(nodes: list[Node]) -> None:
    assert look() == 0  # no roll-up has ever run
    housekeeping.roll_up(END + 60)
    assert look() > 0
    assert not LemonFinding.objects.exists()


def test_a_fleet_that_comes_with_its_history_is_judged_by_it(db: None) -> None:
    snapshot.invalidate()
    assert look() == 0
    for number in range(4):
        make_node(f"n{number}", gpus=8)
    snapshot.invalidate()
    write(END - 6 * WINDOW_S, END)
    look()
    assert LemonFinding.objects.exists()


def test_readings_of_a_gpu_that_was_removed_are_left_out(nodes: list[Node]) -> None:
    write(END - 6 * WINDOW_S, END)
    Gpu.objects.get(node__name="n0", index=5).delete()
    snapshot.invalidate()
    look()
    assert not LemonFinding.objects.exists()


def test_beat_looks(nodes: list[Node]) -> None:
    tasks.look_for_lemons()
    assert LemonWatch.objects.exists()


# --- The API --------------------------------------------------------------------------------------


@pytest.fixture
def findings(nodes: list[Node]) -> dict[str, LemonFinding]:
    far = make_node("far", site="bergen", rack="B01")
    at = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)
    return {
        "hot": make_finding(nodes[0].gpus.get(index=5), at),
        "slow": make_finding(far.gpus.get(index=0), at, metric="slow_clock", own=1700.0),
        "old": make_finding(nodes[1].gpus.get(index=1), at, ended_at=at),
    }


def make_finding(gpu: Gpu, at: datetime, **given: Any) -> LemonFinding:
    figures = {
        "metric": "hot_core", "since": at, "seen_at": at, "score": 9.5, "own": 84.0,
        "peers_median": 63.5, "peers": 31, "among": "rack",
    }  # fmt: skip
    return LemonFinding.objects.create(gpu=gpu, **{**figures, **given})


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["old", "slow", "hot"]),
        ("metric=slow_clock", ["slow"]),
        ("site=oslo", ["old", "hot"]),
        ("node=far", ["slow"]),
        ("open=1", ["slow", "hot"]),
        ("open=0", ["old"]),
    ],
)
def test_filters(findings: dict[str, LemonFinding], query: str, found: list[str]) -> None:
    answer = api_client().get(f"{URL}?{query}")
    assert answer.status_code == 200
    keys = {finding.pk: key for key, finding in findings.items()}
    assert [keys[row["id"]] for row in answer.json()["results"]] == found


def test_a_finding_says_how_far_off_and_from_whom(findings: dict[str, LemonFinding]) -> None:
    row = api_client().get(f"{URL}/{findings['hot'].pk}").json()
    assert (row["own"], row["peers_median"], row["difference"], row["unit"]) == (
        84.0,
        63.5,
        20.5,
        "°C",
    )
    assert (row["peers"], row["among"], row["score"]) == (31, "rack", 9.5)
    assert (row["site"], row["rack"], row["node"], row["gpu_index"]) == ("oslo", "A01", "n0", 5)


def test_lemons_are_read_only_and_not_for_everybody(client: Client, db: None) -> None:
    assert client.get(URL).status_code == 401
    assert api_client().post(URL, {}, content_type="application/json").status_code == 405
