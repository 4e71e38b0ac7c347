"""Forecasts of budgets, once a minute: compare what was said with what came, and forecast anew."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast

import numpy as np
from django.db import connection

from fleet.tables import FleetArrays
from policies.headroom import budgets
from policies.headroom.budgets import Update
from policies.headroom.claims import Claims
from policies.headroom.columns import Ints
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Outlook
from policies.headroom.models import ForecastScore
from policies.headroom.outlook import AHEAD, UPDATE_S, Forecast, Record
from policies.headroom.scores import Errors, errors_of
from policies.scopes import ScopeKind
from telemetry import stream

#: Scores are kept for so long.
KEPT = timedelta(days=30)
#: The outlook of all budgets, by keys that stay the same when the inventory changes; for so long.
_OUTLOOK, _OUTLOOK_KEPT_S = "headroom:outlook", 86_400

# The histograms are added bin by bin.
_ADD = """
INSERT INTO policies_headroom_forecastscore AS old
    (kind, horizon_s, hour, count, error_sum_w, load_sum_w, histogram,
     off_sum_w, as_now_sum_w, shown, banded, covered)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (kind, horizon_s, hour) DO UPDATE SET
    count = old.count + excluded.count,
    error_sum_w = old.error_sum_w + excluded.error_sum_w,
    load_sum_w = old.load_sum_w + excluded.load_sum_w,
    off_sum_w = old.off_sum_w + excluded.off_sum_w,
    as_now_sum_w = old.as_now_sum_w + excluded.as_now_sum_w,
    shown = old.shown + excluded.shown,
    banded = old.banded + excluded.banded,
    covered = old.covered + excluded.covered,
    histogram = (
        SELECT array_agg(a + b ORDER BY place)
        FROM unnest(old.histogram, excluded.histogram) WITH ORDINALITY AS both_of(a, b, place)
    )
"""


# --- The outlook, as kept ------------------------------------------------------------------------


def outlook(fleet: FleetArrays) -> Outlook | None:
    """Return the record and the claims of the budgets of ``fleet``; None: there is none yet.

    Budgets that were not there before have no record. One round trip.
    """
    data = cast(bytes | None, stream.connection().get(_OUTLOOK))
    if data is None:
        return None
    with np.load(io.BytesIO(data), allow_pickle=False) as kept:
        rows = _rows_of(kept["keys"], budgets.keys(fleet))
        none = Outlook.none(1)
        record, claims, silent = (
            np.concatenate([kept[name], blank], axis=-1)[..., rows]
            for name, blank in (
                ("record", none.record.packed()),
                ("claims", none.claims.packed()),
                ("silent", none.silent),
            )
        )
        at = float(kept["at"])
    return Outlook(at, Record.unpacked(record), Claims.unpacked(claims), silent)


def _rows_of(kept: Ints, wanted: Ints) -> Ints:
    """Return the place of each of ``wanted`` in ``kept``, -1 where it is not there."""
    if not len(kept):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(kept)
    place = order[np.minimum(np.searchsorted(kept, wanted, sorter=order), len(kept) - 1)]
    return np.where(kept[place] == wanted, place, -1)


def keep(fleet: FleetArrays, found: Outlook) -> None:
    """Keep the record and the claims of the budgets of ``fleet``. One round trip."""
    data = io.BytesIO()
    np.savez(
        data,
        keys=budgets.keys(fleet),
        record=found.record.packed(),
        claims=found.claims.packed(),
        silent=found.silent,
        at=np.float64(found.at),
    )
    stream.connection().set(_OUTLOOK, data.getvalue(), ex=_OUTLOOK_KEPT_S)


# --- Once a minute -------------------------------------------------------------------------------


def score(headroom: Headroom) -> int:
    """Compare what was said of this minute with the loads now; leave what is said now behind.

    Return how many forecasts were compared. Once a minute, whoever asks.
    """
    minute, fleet = int(headroom.at // UPDATE_S), headroom.fleet
    key = f"headroom:forecasts:{fleet.generation}"
    redis, count = stream.connection(), len(budgets.keys(fleet))
    if not count or not redis.set(f"{key}:{minute}:turn", 1, nx=True, ex=int(2 * UPDATE_S)):
        return 0
    kept = cast(list[bytes | None], redis.mget([f"{key}:{minute - ahead}" for ahead in AHEAD]))
    due = {
        place: Forecast.unpacked(np.frombuffer(data, dtype=np.float32).reshape(-1, count))
        for place, data in enumerate(kept)
        if data is not None
    }
    found = budgets.updated(headroom, outlook(fleet) or Outlook.none(count), due)
    keep(fleet, found.outlook)
    lasts_s = int((max(AHEAD) + 2) * UPDATE_S)
    redis.set(f"{key}:{minute}", found.made.packed().tobytes(), ex=lasts_s)
    return _score(headroom, due, found)


def _score(headroom: Headroom, due: dict[int, Forecast], found: Update) -> int:
    """Add up the errors of what was said for now, by kind and horizon; return how many."""
    hour = datetime.fromtimestamp(headroom.at, UTC).replace(minute=0, second=0, microsecond=0)
    count = 0
    for kind, rows in budgets.places(headroom.fleet).items():
        for place, said in due.items():
            errors = errors_of(
                said.said_w[place, rows],
                found.came_w[rows],
                as_now_w=said.basis.now_w[rows],
                band_w=(said.low_w[place, rows], said.high_w[place, rows]),
                banded=said.banded[place, rows],
                shown=said.shown[place, rows],
            )
            _add(kind, UPDATE_S * AHEAD[place], hour, errors)
            count += errors.count
    return count


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
                errors.off_sum_w,
                errors.as_now_sum_w,
                errors.shown,
                errors.banded,
                errors.covered,
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
    total = Errors.none()
    for row in rows:
        total = total.plus(
            Errors(
                row.count,
                row.error_sum_w,
                row.load_sum_w,
                np.array(row.histogram),
                row.off_sum_w,
                row.as_now_sum_w,
                row.shown,
                row.banded,
                row.covered,
            )
        )
    return total


@dataclass(frozen=True)
class Claimed:
    """Claims that budgets of one kind would be exceeded, since their record began."""

    kind: ScopeKind
    made: int
    came_true: int
    prevented: int


def claims_made(fleet: FleetArrays) -> list[Claimed]:
    """Return how many claims were made and what came of them, by kind. One round trip."""
    known = outlook(fleet)
    if known is None:
        return []
    made, came_true, prevented = (
        getattr(known.claims, name) for name in ("made", "came_true", "prevented")
    )
    return [
        Claimed(kind, *(int(each[rows].sum()) for each in (made, came_true, prevented)))
        for kind, rows in budgets.places(fleet).items()
    ]
