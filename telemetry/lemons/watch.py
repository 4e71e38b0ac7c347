"""Looks at each window of readings once, and keeps the findings: the shell around the pure core.

Windows are read from the roll-ups by minute, once all their readings are in these. A window is
looked at in one transaction with the mark that says so. The scores of all GPUs are kept in Redis
with the same mark: where that is lost, or is not the one in Postgres, they are gathered anew;
findings stand meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
from django.db import connection, transaction

from fleet import snapshot
from fleet.snapshot import FleetArrays
from telemetry import samples, stream
from telemetry.lemons.evidence import Finding, Memory, weigh
from telemetry.lemons.find import Array, Window, find
from telemetry.lemons.models import LemonFinding, LemonWatch
from telemetry.lemons.rules import WINDOW_S, Metric
from telemetry.rollups.models import RollupMark, RollupProgress
from telemetry.rollups.spec import MINUTE_S

#: Readings that come later than so long after the end of their window are not waited for, s.
LAG_S = 60
#: Windows older than this are left out, s.
MAX_BACK_S = 3600
_KEY = f"lemons:{zlib.crc32(b'windows i4, score f4'):08x}"
_KEPT_S = 6 * 3600
_FIGURES = ("seen_at", "ended_at", "score", "own", "peers_median", "peers", "among")


class _Kept(msgspec.Struct, array_like=True):
    until: float
    windows: dict[str, bytes]
    score: dict[str, bytes]


def look(now: float) -> int:
    """Look at the windows that have ended and were not looked at; return how many there were.

    Windows from before there was any GPU are not used up: its history may come with it.
    """
    count = 0
    while len(snapshot.current().gpus) and _look_once(now):
        count += 1
    return count


def _look_once(now: float) -> bool:
    last_end = (now - LAG_S) // WINDOW_S * WINDOW_S
    with transaction.atomic():
        mark = _lock_mark(last_end)
        start = max(mark.until.timestamp(), last_end - MAX_BACK_S)
        end = start + WINDOW_S
        if end > last_end or not _rolled_up(start, end):
            return False
        memory = _remembered(mark.until.timestamp())
        _judge(memory, start, end)
        mark.until = datetime.fromtimestamp(end, UTC)
        mark.save(update_fields=["until"])
    _keep(memory, end)
    return True


def _lock_mark(last_end: float) -> LemonWatch:
    begin = datetime.fromtimestamp(last_end - MAX_BACK_S, UTC)
    LemonWatch.objects.bulk_create([LemonWatch(until=begin)], ignore_conflicts=True)
    return LemonWatch.objects.select_for_update().get()


def _judge(memory: dict[Metric, Memory], start: float, end: float) -> None:
    window = read_window(start, end, snapshot.current())
    if not len(window):
        return
    open_ = {row.pk: _finding(row) for row in LemonFinding.objects.open()}
    row_of = {finding.key: pk for pk, finding in open_.items()}
    for metric, scores in find(window).items():
        memory[metric].take(scores)
        changed = weigh([*open_.values()], metric, scores, memory[metric], start, end)
        _save(changed, row_of)


def _finding(row: LemonFinding) -> Finding:
    return Finding(
        gpu_id=row.gpu_id,
        metric=Metric(row.metric),
        since=row.since.timestamp(),
        seen_at=row.seen_at.timestamp(),
        score=row.score,
        own=row.own,
        peers_median=row.peers_median,
        peers=row.peers,
        among=row.among,
    )


def _save(findings: Iterable[Finding], row_of: dict[tuple[int, Metric], int]) -> None:
    rows = [_row(finding, row_of.get(finding.key)) for finding in findings]
    LemonFinding.objects.bulk_update([row for row in rows if row.pk], _FIGURES)
    LemonFinding.objects.bulk_create([row for row in rows if not row.pk])


def _row(finding: Finding, pk: int | None) -> LemonFinding:
    figures = {name: getattr(finding, name) for name in ("score", "own", "peers_median", "peers")}
    return LemonFinding(
        pk=pk,
        gpu_id=finding.gpu_id,
        metric=finding.metric.value,
        since=datetime.fromtimestamp(finding.since, UTC),
        seen_at=datetime.fromtimestamp(finding.seen_at, UTC),
        ended_at=None
        if finding.ended_at is None
        else datetime.fromtimestamp(finding.ended_at, UTC),
        among=finding.among,
        **figures,
    )


# --- The scores so far ---------------------------------------------------------------------------


def _remembered(until: float) -> dict[Metric, Memory]:
    data: Any = stream.connection().get(_KEY)
    kept = None if data is None else msgspec.msgpack.decode(data, type=_Kept)
    if kept is None or kept.until != until:
        return {metric: Memory() for metric in Metric}
    return {
        metric: Memory(
            np.frombuffer(kept.windows[metric.value], "i4").copy(),
            np.frombuffer(kept.score[metric.value], "f4").copy(),
        )
        for metric in Metric
    }


def _keep(memory: dict[Metric, Memory], until: float) -> None:
    kept = _Kept(
        until=until,
        windows={metric.value: each.windows.tobytes() for metric, each in memory.items()},
        score={metric.value: each.score.tobytes() for metric, each in memory.items()},
    )
    stream.connection().set(_KEY, msgspec.msgpack.encode(kept), ex=_KEPT_S)


# --- Reading a window ----------------------------------------------------------------------------

_MEANS = ("power_w", "power_limit_w", "temp_c", "temp_mem_c", "sm_mhz", "util")
_WINDOW = f"""
SELECT gpu_id, sum(readings), min(job_id), max(job_id),
       {", ".join(f"avg({name})" for name in _MEANS)}
FROM gpu_minute WHERE ts >= to_timestamp(%s) AND ts < to_timestamp(%s) GROUP BY gpu_id
"""  # noqa: S608 - the names are our own


def _rolled_up(start: float, end: float) -> bool:
    """Tell whether all that was stored of the window is in the roll-ups. Two queries."""
    of_minutes = {"source": samples.GPU.name, "width_s": MINUTE_S}
    begin, until = (datetime.fromtimestamp(at, UTC) for at in (start, end))
    if not RollupProgress.objects.filter(**of_minutes, done_until__gte=until).exists():
        return False
    waiting = RollupMark.objects.filter(**of_minutes, bucket__gte=begin, bucket__lt=until)
    return not waiting.exists()


def read_window(start: float, end: float, fleet: FleetArrays) -> Window:
    """Return the means of all GPUs of ``fleet`` between two times, Unix s. One query."""
    with connection.cursor() as cursor:
        cursor.execute(_WINDOW, [start, end])
        found = [*zip(*cursor.fetchall(), strict=True)] or [()] * (4 + len(_MEANS))
    gpu_id, readings, first_job, last_job = (_ints(values) for values in found[:4])
    row_of = fleet.gpus.index_by_id
    gpu = np.array([row_of.get(each, -1) for each in gpu_id.tolist()], dtype=np.int64)
    node = fleet.gpus.node[gpu]
    rack = fleet.nodes.rack[node]
    means = dict(zip(_MEANS, (np.array(values, dtype="f8") for values in found[4:]), strict=True))
    window = Window(
        gpu_id=gpu_id,
        model=fleet.gpus.model[gpu],
        index=fleet.gpus.index[gpu],
        node=node,
        rack=rack,
        zone=fleet.racks.zone[rack],
        site=fleet.racks.site[rack],
        # Of a GPU that changed jobs the clock says little.
        job=np.where(first_job == last_job, first_job, -1),
        rated_w=fleet.gpus.rated_w[gpu],
        readings=readings,
        **means,
    )
    return window.take(np.flatnonzero(gpu >= 0))


def _ints(values: Iterable[int | None]) -> Array:
    return np.array([-1 if value is None else value for value in values], dtype=np.int64)
