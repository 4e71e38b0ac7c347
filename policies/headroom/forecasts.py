"""Scores of forecasts: each that is due is compared with the load that came, once a minute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import numpy as np
from django.db import connection

from policies.headroom.columns import HORIZONS, Floats
from policies.headroom.evaluate import Headroom
from policies.headroom.models import ForecastScore
from policies.headroom.scores import BINS, Errors, errors_of
from policies.scopes import ScopeKind
from telemetry import stream

#: Column of the load, whose forecasts carry the horizon in their name, by kind.
_LOADS = {
    ScopeKind.SITE: "power_load",
    ScopeKind.POWER_DOMAIN: "power_load",
    ScopeKind.ZONE: "cooling_load",
    ScopeKind.RACK: "power_load",
}
_STEP_S = 60.0
#: Scores are kept for so long.
KEPT = timedelta(days=30)

# The histograms are added bin by bin.
_ADD = """
INSERT INTO policies_headroom_forecastscore AS old
    (kind, horizon_s, hour, count, error_sum_w, load_sum_w, histogram)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (kind, horizon_s, hour) DO UPDATE SET
    count = old.count + excluded.count,
    error_sum_w = old.error_sum_w + excluded.error_sum_w,
    load_sum_w = old.load_sum_w + excluded.load_sum_w,
    histogram = (
        SELECT array_agg(a + b ORDER BY place)
        FROM unnest(old.histogram, excluded.histogram) WITH ORDINALITY AS both_of(a, b, place)
    )
"""


def score(headroom: Headroom) -> int:
    """Compare the forecasts of this minute with the loads now; leave new ones behind.

    Return how many forecasts were compared. Once a minute, whoever asks.
    """
    minute = int(headroom.at // _STEP_S)
    key = f"headroom:forecasts:{headroom.fleet.generation}"
    redis = stream.connection()
    if not redis.set(f"{key}:{minute}:turn", 1, nx=True, ex=int(2 * _STEP_S)):
        return 0
    count = 0
    hour = datetime.fromtimestamp(headroom.at, UTC).replace(minute=0, second=0, microsecond=0)
    for kind, load in _LOADS.items():
        columns = headroom.table(kind).columns
        for name, ahead_s in HORIZONS.items():
            made_at = minute - round(ahead_s / _STEP_S)
            made = cast(bytes | None, redis.get(f"{key}:{made_at}:{kind}:{name}"))
            if made is not None:
                errors = errors_of(_floats(made), columns[f"{load}_w"])
                _add(kind, ahead_s, hour, errors)
                count += errors.count
            ahead = columns[f"{load}_{name}_w"].astype(np.float32).tobytes()
            redis.set(f"{key}:{minute}:{kind}:{name}", ahead, ex=int(ahead_s + 2 * _STEP_S))
    return count


def _floats(data: bytes) -> Floats:
    return np.frombuffer(data, dtype=np.float32).astype(np.float64)


def _add(kind: ScopeKind, ahead_s: float, hour: datetime, errors: Errors) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD,
            [
                kind.value,
                round(ahead_s),
                hour,
                errors.count,
                errors.error_sum_w,
                errors.load_sum_w,
                errors.histogram.tolist(),
            ],
        )


def prune(now: float) -> None:
    """Drop scores that are too old."""
    before = datetime.fromtimestamp(now, UTC) - KEPT
    ForecastScore.objects.filter(hour__lt=before).delete()


@dataclass(frozen=True)
class Score:
    """How far the forecasts of one kind and horizon were off over some hours."""

    kind: ScopeKind
    horizon_s: int
    errors: Errors


def scores(now: float, hours: float = 24.0) -> list[Score]:
    """Return the scores of the last ``hours``, by kind and horizon. One query."""
    since = datetime.fromtimestamp(now, UTC) - timedelta(hours=hours)
    found: dict[tuple[ScopeKind, int], list[ForecastScore]] = {}
    for row in ForecastScore.objects.filter(hour__gte=since).order_by("kind", "horizon_s"):
        found.setdefault((ScopeKind(row.kind), row.horizon_s), []).append(row)
    return [Score(kind, horizon_s, _sum(rows)) for (kind, horizon_s), rows in found.items()]


def _sum(rows: Iterable[ForecastScore]) -> Errors:
    histogram = np.zeros(BINS, dtype=np.int64)
    count, error_w, load_w = 0, 0.0, 0.0
    for row in rows:
        histogram += np.array(row.histogram)
        count += row.count
        error_w += row.error_sum_w
        load_w += row.load_sum_w
    return Errors(count, error_w, load_w, histogram)
