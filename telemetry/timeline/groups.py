"""Nodes, racks and jobs: put together from the readings of their parts, always in buckets.

Buckets are wide enough that every part that reports at all has a reading in each. ``power_w`` of a
node is its own power meter's where that has readings in the bucket, else the sum of its GPUs' and
of its host's, where the host reports any; that of a rack is its own meter's, else the sum over its
nodes; that of a job is the sum over the GPUs while they carried it; that of a zone, a power domain
or a site the sum over its nodes, of which a power domain carries a share. ``used_j`` follows the
same rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from telemetry import samples
from telemetry.rollups.compute import Buckets, weighted_mean
from telemetry.rollups.spec import MAX_GAP_S
from telemetry.samples import Array, Table
from telemetry.store.columns import Window
from telemetry.timeline.extents import least_and_greatest
from telemetry.timeline.fields import ACROSS, READINGS, SUSPECT, USED, Over, over_time
from telemetry.timeline.points import Field, Points, aggregate, concatenate
from telemetry.timeline.reading import Found, fetch
from telemetry.timeline.tiers import Tier


@dataclass(frozen=True, slots=True)
class Members:
    """The parts of a node, rack, job, or a place of several racks.

    ``gpus`` and ``meters``: node by id; 0 is the whole rack. ``job``: GPUs count while they carried
    it. ``shares``: of a node's draw so much counts, by id; left out: all of it.
    """

    gpus: dict[int, int] = field(default_factory=dict)
    meters: dict[int, int] = field(default_factory=dict)
    nodes: list[int] = field(default_factory=list)
    job: int | None = None
    shares: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.gpus) + len(self.meters) + len(self.nodes)


@dataclass(frozen=True)
class Sources:
    """The rows of all members."""

    gpus: Found | None
    meters: Found | None
    hosts: Found | None

    def all(self) -> Iterator[Found]:
        yield from (each for each in (self.gpus, self.meters, self.hosts) if each is not None)

    @property
    def are_readings(self) -> bool:
        """Whether no roll-up is among the rows."""
        return all(part.tier is Tier.RAW for each in self.all() for part in each.parts)

    @property
    def cadence_s(self) -> float:
        """Return the longest of the members' usual times between two rows."""
        return max((float(f.points.cadence_s.max(initial=0.0)) for f in self.all()), default=0.0)

    @property
    def least_step_s(self) -> float:
        """Return how wide buckets have to be for every member to have a row in each.

        Twice the cadence, since members do not report in step; roll-ups are in step.
        """
        found = 0.0
        for points in (each.points for each in self.all()):
            in_step = points.cadence_s <= points.width_s
            least = np.where(in_step, points.width_s, 2 * points.cadence_s)
            found = max(found, float(least.max(initial=0.0)))
        return found

    def since(self, start: float) -> Sources:
        """Return the rows from ``start`` on."""
        return Sources(*(_since(each, start) for each in (self.gpus, self.meters, self.hosts)))


def _since(found: Found | None, start: float) -> Found | None:
    if found is None:
        return None
    kept = found.points.t >= start
    return Found(found.ids[kept], found.points.at(kept), found.parts)


def read(
    members: Members,
    fields: Sequence[str],
    window: Window,
    tier: Tier,
    now: float,
    *,
    bin_s: int = 0,
) -> Sources:
    """Read the rows from which ``fields`` and the fields of power are computed.

    Those of GPUs may come in buckets of ``bin_s`` where that changes no mean over these.
    """
    power = ("power_w", USED) if USED in fields else ("power_w",)
    across = [name for name in fields if name in ACROSS]

    def rows(
        table: Table,
        ids: Sequence[int],
        *names: str,
        stats: Sequence[str] = (),
        job: int | None = None,
        bin_s: int = 0,
    ) -> Found | None:
        if not ids:
            return None
        chosen = tuple(dict.fromkeys(names))
        return fetch(table, ids, chosen, window, tier, now, stats=stats, job=job, bin_s=bin_s)

    of_gpus = (*power, *across)

    return Sources(
        gpus=rows(samples.GPU, list(members.gpus), *of_gpus, job=members.job, bin_s=bin_s),
        meters=rows(
            samples.METER, list(members.meters), *power, SUSPECT, READINGS, stats=("min", "max")
        ),
        hosts=rows(samples.HOST, members.nodes, *power, "cpu_power_w"),
    )


def combine(
    members: Members, sources: Sources, fields: Sequence[str], start: float, step_s: float
) -> Points:
    """Return one row for each bucket of ``step_s`` from ``start`` in which anything reported."""
    count = 1 + max(
        (
            math.floor((float(f.points.t.max()) - start) / step_s)
            for f in sources.all()
            if len(f.ids)
        ),
        default=-1,
    )
    nodes = {*members.nodes, *members.gpus.values(), *members.meters.values()} - {0}
    grid = _Grid(start, step_s, max(count, 0), sorted(nodes))
    columns = _power(members, sources, grid, with_energy=USED in fields)
    columns |= _across(sources.gpus, [name for name in fields if name in ACROSS], grid)
    present = columns["nodes_reporting"] + columns["gpus_reporting"] > 0
    present |= ~np.isnan(columns["power_w"])
    t = start + step_s * np.flatnonzero(present)
    width, cadence = np.full(len(t), step_s), np.full(len(t), sources.cadence_s)
    made = {name: _plain(values[present]) for name, values in columns.items()}
    return Points(t, width, cadence, made)


# --- Extremes ------------------------------------------------------------------------------------

#: Things times moments that are worked on at once: some 100 MB.
_CELLS_AT_ONCE = 500_000
#: The fields whose extremes are sought besides those of ``ACROSS``.
_POWERS = ("power_w", "gpu_power_w")


def with_extremes(members: Members, sources: Sources, points: Points, step_s: float) -> Points:
    """Return ``points`` with the least and greatest value of each row, from readings.

    Wherever any part was read, all that is known of the group by then is summed up: what each part
    read last, as long as it is not missing. ``sources`` are readings, from before the first row on.
    """
    fields = [name for name in points.fields if name in ACROSS or name in _POWERS]
    fields = [name for name in fields if over_time(name) is Over.MEAN]
    found = _at_moments(members, sources, fields)
    row = np.searchsorted(points.t, found.t, side="right") - 1
    inside = row >= 0
    inside[inside] &= found.t[inside] < points.t[row[inside]] + step_s
    found, row = found.at(inside), row[inside]
    # While some part is missing, what the others sum up to is no low.
    is_whole = np.logical_and.reduce(
        [
            found.fields[name].value == found.fields[name].value.max(initial=0)
            for name in ("nodes_reporting", "gpus_reporting")
        ]
    )
    changed = {}
    for name in fields:
        values = found.fields[name].value
        least, greatest = least_and_greatest(values, row, len(points))
        whole_least, _ = least_and_greatest(values[is_whole], row[is_whole], len(points))
        each = points.fields[name]
        least = np.where(np.isnan(whole_least), least, whole_least)
        changed[name] = replace(
            each,
            least=np.where(np.isnan(least), each.least, least),
            greatest=np.where(np.isnan(greatest), each.greatest, greatest),
        )
    return _replaced(points, changed)


def with_metered_extremes(members: Members, sources: Sources, points: Points) -> Points:
    """Return ``points`` with the extremes of power that a meter of the whole group tells."""
    meters = sources.meters
    whole = {meter for meter, node in members.meters.items() if not node or len(members.nodes) == 1}
    if meters is None or len(whole) != 1 or len(whole) != len(members.meters):
        return points
    power, own = points.fields["power_w"], meters.points.fields["power_w"]
    row = np.searchsorted(points.t, meters.points.t, side="right") - 1
    known = (row >= 0) & (own.count > 0)
    least, _ = least_and_greatest(own.least[known], row[known], len(points))
    _, greatest = least_and_greatest(own.greatest[known], row[known], len(points))
    changed = {
        "power_w": replace(
            power,
            least=np.where(np.isnan(least), power.least, least),
            greatest=np.where(np.isnan(greatest), power.greatest, greatest),
        )
    }
    return _replaced(points, changed)


def _at_moments(members: Members, sources: Sources, fields: Sequence[str]) -> Points:
    """Return the group as it was whenever any part was read: ``t`` are those moments."""
    moments = np.unique(np.concatenate([each.points.t for each in sources.all()] or [np.empty(0)]))
    things = sum(len(np.unique(each.ids)) for each in sources.all())
    size = max(1, _CELLS_AT_ONCE // max(things, 1))
    pieces = [
        _combined(members, sources, moments[first : first + size], fields)
        for first in range(0, len(moments), size)
    ]
    names = ("nodes_reporting", "gpus_reporting", *fields)
    return concatenate(pieces, names) if pieces else _combined(members, sources, moments, fields)


def _combined(members: Members, sources: Sources, moments: Array, fields: Sequence[str]) -> Points:
    # A moment is a bucket: what holds at it is put together as what is read in a bucket is.
    each = (
        _held(found, moments) if found is not None else None
        for found in (sources.gpus, sources.meters, sources.hosts)
    )
    found = combine(members, Sources(*each), fields, start=0.0, step_s=1.0)
    return replace(found, t=moments[found.t.astype("i8")])


def _held(found: Found, moments: Array) -> Found:
    """Return a row for each thing at each of ``moments`` (its place as time): what it read last."""
    points = found.points
    lasts_s = min(MAX_GAP_S, 2.5 * float(points.cadence_s.max(initial=0.0)) or MAX_GAP_S)
    first = moments[0] - lasts_s if len(moments) else 0.0
    near = np.flatnonzero((points.t >= first) & (points.t <= moments[-1:].max(initial=-np.inf)))
    things, thing = np.unique(found.ids[near], return_inverse=True)
    last = np.full((len(things), len(moments)), -1, dtype="i8")
    before = np.maximum(np.searchsorted(moments, points.t[near]), 0)
    last[thing, before] = near
    last = np.maximum.accumulate(last, axis=1)
    holds = (last >= 0) & (moments - points.t[last] <= lasts_s)
    rows = last[holds]
    fields = {name: _plain(each.told[rows]) for name, each in points.fields.items()}
    whole = np.broadcast_to(np.arange(len(moments), dtype="f8"), last.shape)
    held = Points(whole[holds], np.ones(len(rows)), np.zeros(len(rows)), fields)
    return Found(np.broadcast_to(things[:, None], last.shape)[holds], held, found.parts)


def _plain(values: Array) -> Field:
    return Field(values, values, values, values, (~np.isnan(values)).astype("f8"))


@dataclass(frozen=True)
class _Grid:
    """Buckets from ``start`` on, and the nodes of the group by their place."""

    start: float
    step_s: float
    buckets: int
    nodes: list[int]

    def by_source(self, found: Found, name: str) -> tuple[Array, Array, Array]:
        """Return id, bucket and value of each thing in each bucket in which it has rows."""
        bucket = np.floor((found.points.t - self.start) / self.step_s).astype("i8")
        groups = Buckets.of(found.ids, bucket)
        at = groups.starts
        each = found.points.fields[name]
        if over_time(name) is Over.MEAN:
            value = weighted_mean(each.told, found.stood_s, groups)
        else:
            value = aggregate(each.value, over_time(name), at) if len(at) else each.value
        return found.ids[at], bucket[at], value

    def by_node(self, found: Found | None, name: str, node_of: dict[int, int] | None) -> Array:
        """Return sums over the things of each node, by node and bucket; NaN where nothing is."""
        total = np.full((len(self.nodes) + 1, self.buckets), np.nan)
        if found is None or not len(found.ids):
            return total
        ids, bucket, value = self.by_source(found, name)
        places = {node: place for place, node in enumerate(self.nodes)}
        things, thing = np.unique(ids, return_inverse=True)
        row_of = [
            places.get(each if node_of is None else node_of[each], len(self.nodes))
            for each in things.tolist()
        ]
        rows = np.array(row_of, dtype="i8")[thing]
        known = ~np.isnan(value)
        flat = rows[known] * self.buckets + bucket[known]
        size = total.size
        sums = np.bincount(flat, value[known], size)
        is_there = np.bincount(flat, minlength=size) > 0
        return np.where(is_there, sums, np.nan).reshape(total.shape)


# --- Power ---------------------------------------------------------------------------------------


def _power(
    members: Members, sources: Sources, grid: _Grid, *, with_energy: bool
) -> dict[str, Array]:
    meters = _working(sources.meters)
    hosts = _with_processors(sources.hosts)
    share = np.array([members.shares.get(node, 1.0) for node in grid.nodes])[:, None]
    found = {}
    for name in ("power_w", USED) if with_energy else ("power_w",):
        gpu = grid.by_node(sources.gpus, name, members.gpus)
        # A meter counts where it reads a draw, and then with all that ended there.
        is_working = ~np.isnan(grid.by_node(meters, "power_w", members.meters))
        meter = np.where(is_working, grid.by_node(meters, name, members.meters), np.nan)
        host = grid.by_node(hosts, name, None)
        # The last row is of what is on no node: the meter of a rack.
        parts = np.where(np.isnan(gpu), host, gpu + np.nan_to_num(host))
        whole = np.where(np.isnan(meter), parts, meter)[:-1] * share
        found[name] = np.where(np.isnan(meter[-1]), _sum(whole), meter[-1])
        if name == "power_w":
            found["gpu_power_w"] = _sum(gpu[:-1] * share)
            found["nodes_reporting"] = (~np.isnan(whole)).sum(axis=0).astype("f8")
    found["gpus_reporting"] = _reporting(sources.gpus, grid)
    return found


def _sum(values: Array) -> Array:
    nothing = np.isnan(values).all(axis=0)
    return np.where(nothing, np.nan, np.nansum(values, axis=0))


def _reporting(gpus: Found | None, grid: _Grid) -> Array:
    if gpus is None or not len(gpus.ids):
        return np.zeros(grid.buckets)
    _, bucket, _ = grid.by_source(gpus, "power_w")
    return np.bincount(bucket, minlength=grid.buckets).astype("f8")


def _working(meters: Found | None) -> Found | None:
    """Return the meters' rows without what failed ones said: telemetry.summary does the same."""
    if meters is None:
        return None
    fields = meters.points.fields
    power, suspect = fields["power_w"], np.nan_to_num(fields[SUSPECT].value)
    readings = fields[READINGS].value
    # Roll-ups once had failed readings in their means, as little more than zeros.
    diluted = (meters.points.width_s > 0) & (power.count + suspect > readings)
    good = np.where(diluted, power.count - suspect, power.count)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = np.where(good > 0, power.value * power.count / good, np.nan)
    value = np.where(value > 0, value, np.nan)
    changed = {"power_w": replace(power, value=value, count=good)}
    return Found(meters.ids, _replaced(meters.points, changed), meters.parts)


def _with_processors(hosts: Found | None) -> Found | None:
    """Return the hosts' rows with the draw of the processors where none of the host is known."""
    if hosts is None:
        return None
    fields = hosts.points.fields
    own, cpu = fields["power_w"], fields["cpu_power_w"]
    value = np.where(np.isnan(own.told), cpu.told, own.told)
    changed = {"power_w": Field(value, value, value, value, np.maximum(own.count, cpu.count))}
    return Found(hosts.ids, _replaced(hosts.points, changed), hosts.parts)


def _replaced(points: Points, changed: dict[str, Field]) -> Points:
    return Points(points.t, points.width_s, points.cadence_s, {**points.fields, **changed})


# --- Everything else -----------------------------------------------------------------------------


def _across(gpus: Found | None, names: Sequence[str], grid: _Grid) -> dict[str, Array]:
    found = {}
    for name in names:
        values = np.full(grid.buckets, np.nan)
        if gpus is not None and len(gpus.ids):
            _, bucket, value = grid.by_source(gpus, name)
            order = np.argsort(bucket, kind="stable")
            groups = Buckets.of(np.zeros(len(order)), bucket[order])
            values[bucket[order][groups.starts]] = aggregate(
                value[order], ACROSS[name], groups.starts
            )
        found[name] = values
    return found
