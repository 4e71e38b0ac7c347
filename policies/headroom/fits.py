"""Fits of GPUs and hosts to their readings, some at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
from django.db.models import F

from fleet import snapshot
from fleet.models import Gpu
from physics.thermal import fit_rc_many
from policies.headroom.columns import Floats, Ints
from policies.headroom.evaluate import Headroom
from policies.headroom.hosts import HOST_ROUNDS, host_curve, host_pairs, ratings_of
from policies.headroom.models import HostFit, ThermalFit
from telemetry import samples, stream
from telemetry.store.columns import US, Columns, Window
from telemetry.store.reading import read

#: A fit is of so long a time before it, s, …
WINDOW_S = 3600.0
#: … and of no more than the newest so many readings.
MOST_READINGS = 1200
FEWEST_READINGS = 30
#: Of a GPU whose fit is younger than this no new one is made, s; sooner where it is worth little,
#: as when there were but some minutes of readings.
EVERY_S, SOON_S = 3600.0, 600.0
_GOOD_TRUST = 0.9
#: GPUs that are fitted in one go: about two seconds of one core.
FEWEST_GPUS, MOST_GPUS = 100, 2000
#: An error of this share of the resistance makes a fit worthless.
_WORTHLESS = 0.5


# --- Heat of GPUs --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Series:
    """Readings of some GPUs side by side: (GPUs, samples). Where there is none, it weighs 0."""

    gpu_ids: Ints
    time_s: Floats
    temp_c: Floats
    power_w: Floats
    weight: Floats


def series_of(rows: Columns) -> Series:
    """Return ``rows``, which are in order of GPU and time, side by side, the newest of each.

    Readings without power are left out: nobody knows what heated the part then. GPUs with too few
    are, too.
    """
    known = ~np.isnan(rows["power_w"])
    ids, ts = rows["gpu_id"][known], rows["ts"][known] / US
    power_w, temp_c = (rows[name][known].astype(np.float64) for name in ("power_w", "temp_c"))
    gpu_ids, first, count = np.unique(ids, return_index=True, return_counts=True)
    enough = count >= FEWEST_READINGS
    gpu_ids, last = gpu_ids[enough], (first + count)[enough]
    size = np.minimum(count[enough], MOST_READINGS)
    # The last reading again and again fills the rest: no time passes there, and it weighs nothing.
    place = (last - size)[:, None] + np.arange(size.max(initial=0))
    inside = place < last[:, None]
    place = np.minimum(place, last[:, None] - 1)
    weight = inside & ~np.isnan(temp_c[place])
    return Series(
        gpu_ids=gpu_ids.astype(np.int64),
        time_s=ts[place],
        temp_c=np.nan_to_num(temp_c[place]),
        power_w=np.maximum(power_w[place], 0.0),
        weight=weight.astype(np.float64),
    )


def fits_of(series: Series) -> dict[int, dict[str, float]]:
    """Return the fit of each GPU whose readings determine one, by id, as fields of ThermalFit."""
    if not len(series.gpu_ids):
        return {}
    found = fit_rc_many(
        time_s=series.time_s,
        temp_c=series.temp_c,
        power_w=series.power_w,
        weight=series.weight,
    )
    error = found.resistance_error_c_per_w / found.resistance_c_per_w
    values = {
        "resistance_c_per_w": found.resistance_c_per_w,
        "capacitance_j_per_c": found.capacitance_j_per_c,
        "ambient_c": found.ambient_c,
        "rmse_c": found.rmse_c,
        "trust": np.clip(1.0 - error / _WORTHLESS, 0.0, 1.0),
    }
    fits = {}
    for row in np.flatnonzero(~np.isnan(found.resistance_c_per_w)).tolist():
        each = {name: float(column[row]) for name, column in values.items()}
        # A fit may come out colder than anything is.
        if all(map(math.isfinite, each.values())) and each["ambient_c"] > -50.0:
            fits[int(series.gpu_ids[row])] = each
    return fits


def refit(now: float) -> int:
    """Fit those GPUs that were tried longest ago. Return how many were fitted."""
    ids = _due(now, len(snapshot.current().gpus))
    if not ids:
        return 0
    rows = read(samples.GPU, ("power_w", "temp_c"), Window(now - WINDOW_S, now), ids)
    fits = fits_of(series_of(rows))
    at = datetime.fromtimestamp(now, UTC)
    # One that could not be fitted this time keeps its last fit, and its turn goes on.
    tried = [ThermalFit(gpu_id=key, fitted_at=at) for key in ids if key not in fits]
    made = [ThermalFit(gpu_id=key, fitted_at=at, **values) for key, values in fits.items()]
    _save(tried, ["fitted_at"])
    _save(made, ["fitted_at", *next(iter(fits.values()), {})])
    return len(made)


def _due(now: float, gpus: int) -> list[int]:
    """Return the GPUs that were tried longest ago. One query."""
    count = min(MOST_GPUS, max(FEWEST_GPUS, math.ceil(gpus * 60.0 / EVERY_S)))
    hour, soon = (datetime.fromtimestamp(now - age_s, UTC) for age_s in (EVERY_S, SOON_S))
    waiting = Gpu.objects.exclude(thermal_fit__fitted_at__gt=soon).exclude(
        thermal_fit__fitted_at__gt=hour, thermal_fit__trust__gte=_GOOD_TRUST
    )
    oldest = waiting.order_by(F("thermal_fit__fitted_at").asc(nulls_first=True), "pk")
    return list(oldest.values_list("pk", flat=True)[:count])


def _save(rows: Sequence[ThermalFit], fields: Sequence[str]) -> None:
    ThermalFit.objects.bulk_create(
        rows, update_conflicts=True, unique_fields=["gpu"], update_fields=fields
    )


# --- Hosts ---------------------------------------------------------------------------------------


def refit_hosts(headroom: Headroom) -> int:
    """Add the power of nodes now to that of the last hour, and fit each model to it.

    Return how many models were fitted.
    """
    at = datetime.fromtimestamp(headroom.at, UTC)
    made, ratings = [], ratings_of(headroom.fleet)
    for model, pairs in host_pairs(headroom).items():
        remembered = _remembered(model, pairs)
        curve = host_curve(remembered, ratings[model])
        if curve is None:
            continue
        made.append(
            HostFit(
                model_id=model,
                idle_w=curve.idle_w,
                share=curve.share,
                spread_w=curve.spread_w,
                readings=len(remembered),
                fitted_at=at,
            )
        )
    HostFit.objects.bulk_create(
        made,
        update_conflicts=True,
        unique_fields=["model"],
        update_fields=["idle_w", "share", "spread_w", "readings", "fitted_at"],
    )
    return len(made)


def _remembered(model: int, pairs: Floats) -> Floats:
    key = f"headroom:hosts:{model}"
    pipe: Any = stream.connection().pipeline(transaction=True)
    pipe.lpush(key, pairs.astype(np.float64).tobytes())
    pipe.ltrim(key, 0, HOST_ROUNDS - 1)
    pipe.expire(key, int(2 * EVERY_S))
    pipe.lrange(key, 0, -1)
    found = cast(list[bytes], pipe.execute()[-1])
    return np.concatenate([np.frombuffer(each).reshape(-1, 2) for each in found])
