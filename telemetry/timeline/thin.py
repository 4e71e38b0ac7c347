"""Making a series short enough to draw, without hiding outliers: pure functions.

``minmax`` keeps the least and the greatest value of every field in every bucket, in the order in
which they came: two rows a bucket. ``mean`` gives means. ``lttb`` (Largest Triangle Three Buckets,
S. Steinarsson, 2013) keeps those readings of one field that make the largest triangles with their
neighbors.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from telemetry.rollups.compute import Buckets
from telemetry.samples import Array
from telemetry.timeline.fields import Over, over_time
from telemetry.timeline.points import Field, Points, in_buckets


class Method(StrEnum):
    """How a series with too many rows is thinned."""

    MINMAX = "minmax"
    MEAN = "mean"
    LTTB = "lttb"


def minmax(points: Points, step_s: float) -> tuple[Array, dict[str, Array], Array]:
    """Return times, values and gaps of two rows for each bucket of ``step_s``.

    A gap is the place of a row before which readings are missing.
    """
    buckets = in_buckets(points, step_s)
    if not len(buckets):
        return buckets.t, dict.fromkeys(points.fields, buckets.t), np.empty(0, "i8")
    groups = Buckets.of(np.zeros(len(points)), np.floor(points.t / step_s))
    t = np.repeat(buckets.t, 2)
    t[1::2] += step_s / 2
    columns = {
        name: _ends(name, each, buckets.fields[name], groups)
        for name, each in points.fields.items()
    }
    return t, columns, 2 * buckets.gaps()


def _ends(name: str, each: Field, bucket: Field, groups: Buckets) -> Array:
    """Return the two extremes of each bucket, one after the other, in order of time."""
    if over_time(name) is Over.BITS:
        return np.repeat(bucket.value, 2)
    least_at = _first_at(each.least, bucket.least, groups)
    greatest_at = _first_at(each.greatest, bucket.greatest, groups)
    # A row that has both does not tell which came first: then the line goes the way it went.
    rising = np.diff(bucket.value, prepend=bucket.value[:1]) >= 0
    up = np.where(least_at == greatest_at, rising, least_at < greatest_at)
    found = np.empty(2 * len(up))
    found[0::2] = np.where(up, bucket.least, bucket.greatest)
    found[1::2] = np.where(up, bucket.greatest, bucket.least)
    return found


def _first_at(values: Array, extremes: Array, groups: Buckets) -> Array:
    """Return the place of the first row of each bucket that has its extreme."""
    places = np.arange(len(values))
    is_extreme = values == np.repeat(extremes, groups.sizes)
    return np.asarray(np.minimum.reduceat(np.where(is_extreme, places, len(values)), groups.starts))


def lttb(t: Array, values: Array, count: int) -> Array:
    """Return the places of ``count`` of the points, the first and the last among them."""
    if count >= len(t):
        return np.arange(len(t))
    t = t - t[0]  # sums of small numbers keep their digits
    borders = np.append(np.linspace(1, len(t) - 1, count - 1).astype("i8"), len(t))
    sums_t, sums_v = np.cumsum([0.0, *t]), np.cumsum([0.0, *values])
    size = np.diff(borders)[1:]
    next_t = np.diff(sums_t[borders])[1:] / size
    next_v = np.diff(sums_v[borders])[1:] / size
    places = np.zeros(count, "i8")
    places[-1] = len(t) - 1
    for i in range(count - 2):
        last, bucket = places[i], slice(borders[i], borders[i + 1])
        area = np.abs(
            (t[last] - next_t[i]) * (values[bucket] - values[last])
            - (t[last] - t[bucket]) * (next_v[i] - values[last])
        )
        places[i + 1] = borders[i] + area.argmax()
    return places
