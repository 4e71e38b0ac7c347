"""What Prometheus is shown of headroom: the budgets of places, so many of each kind at most.

The policy loop publishes it once a round, and whoever answers /metrics reads it. So all processes
and hosts tell the same, and a place that is no longer shown leaves no series behind, as it would in
the files of a process that had set a gauge for it.
"""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np

from fleet.groups import count_by, sum_by
from policies.headroom.columns import Floats, Ints, Table
from policies.headroom.evaluate import Headroom
from policies.scopes import ScopeKind
from telemetry import stream

__all__ = ["MOST", "Exposition", "Rate", "Row", "exposed", "publish", "read"]

#: Of each kind but sites, which are all shown, so many are: the tightest.
MOST = 200
_KEY = "headroom:exposition"
#: What nobody has published anew for so long says nothing any more, s.
_KEPT_S = 30
#: The columns of budget and load, and those of what is claimed, by kind.
_POWER = ("power_budget_w", "power_load_w", "power_over_from_s", "power_over_upto_s")
_COOLING = ("cooling_capacity_w", "cooling_load_w", "cooling_over_from_s", "cooling_over_upto_s")
_COLUMNS = {
    ScopeKind.SITE: _POWER,
    ScopeKind.ZONE: _COOLING,
    ScopeKind.POWER_DOMAIN: _POWER,
    ScopeKind.RACK: _POWER,
}
#: The columns of capacity and headroom, by kind, and how many of their unit are a byte.
_RATES = {
    ScopeKind.LINK: ("link_capacity_bits_per_s", "link_headroom_bits_per_s", 8.0),
    ScopeKind.STORAGE: ("storage_capacity_bytes_per_s", "storage_headroom_bytes_per_s", 1.0),
}


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One place, or all racks of a site together (``kind`` is "racks" then), W.

    ``over_from_s`` and ``over_upto_s``: until the budget would be exceeded, at the earliest and at
    the latest, s; None: nothing is claimed.
    """

    kind: str
    scope: str
    site: str
    budget_w: float
    load_w: float
    over_from_s: float | None = None
    over_upto_s: float | None = None


class Rate(msgspec.Struct, frozen=True, array_like=True):
    """A link, of one direction, or a storage endpoint, byte/s."""

    kind: str
    scope: str
    site: str
    capacity_bytes_per_s: float
    load_bytes_per_s: float


class Exposition(msgspec.Struct, frozen=True, kw_only=True):
    """The places that are shown, as they were at ``at`` (Unix s).

    ``shown`` and ``left_out`` count places by kind. Those are left out, too, of which budget or
    load is not known.
    """

    at: float
    rows: tuple[Row, ...]
    shown: dict[str, int]
    left_out: dict[str, int]
    rates: tuple[Rate, ...] = ()


def exposed(headroom: Headroom, most: int = MOST) -> Exposition:
    """Return what is shown of a fleet: all sites, of the rest ``most`` of each kind, and sums.

    Sums of racks are of all whose budget and load are known, whether they are shown or not.
    """
    rows: list[Row] = []
    rates: list[Rate] = []
    shown: dict[str, int] = {}
    for kind, names in _COLUMNS.items():
        columns = (table := headroom.table(kind)).columns
        some = None if kind is ScopeKind.SITE else most
        chosen = _tightest(columns[names[0]], columns[names[1]], some)
        rows += _rows(table, names, chosen)
        shown[kind.value] = len(chosen)
    for kind in _RATES:
        found = _rates(headroom.table(kind), most)
        rates += found
        shown[kind.value] = len(found)
    return Exposition(
        at=headroom.at,
        rows=(*rows, *_sums(headroom)),
        rates=tuple(rates),
        shown=shown,
        left_out={kind: len(headroom.table(ScopeKind(kind))) - shown[kind] for kind in shown},
    )


def _tightest(budget: Floats, load: Floats, most: int | None) -> Ints:
    """Return the rows that use most of their budgets, in the order of the table."""
    known = np.flatnonzero(~np.isnan(budget - load))
    with np.errstate(divide="ignore", invalid="ignore"):
        use = load[known] / budget[known]
    # Nothing of nothing: as tight as can be without being over.
    use = np.where(np.isnan(use), 1.0, use)
    return np.sort(known[np.argsort(-use, kind="stable")[:most]])


def _rows(table: Table, names: tuple[str, ...], chosen: Ints) -> list[Row]:
    columns = (table.columns[name][chosen].tolist() for name in ("name", "site", *names))
    return [
        Row(table.kind.value, scope, site, budget_w, load_w, _finite(from_s), _finite(upto_s))
        for scope, site, budget_w, load_w, from_s, upto_s in zip(*columns, strict=True)
    ]


def _rates(table: Table, most: int) -> list[Rate]:
    """Return the tightest links or storage endpoints."""
    whole, left, per_byte = _RATES[table.kind]
    capacity = table.columns[whole] / per_byte
    load = capacity - table.columns[left] / per_byte
    chosen = _tightest(capacity, load, most)
    names = (table.columns[name][chosen].tolist() for name in ("name", "site"))
    amounts = (each[chosen].tolist() for each in (capacity, load))
    return [Rate(table.kind.value, *each) for each in zip(*names, *amounts, strict=True)]


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _sums(headroom: Headroom) -> list[Row]:
    """Return the racks of each site together; none for a site of whose racks nothing is known."""
    fleet, racks = headroom.fleet, headroom.powers[ScopeKind.RACK]
    site, sites = fleet.racks.site, len(fleet.sites)
    known = ~np.isnan(racks.budget_w - racks.load_w)
    budget_w = sum_by(np.where(known, racks.budget_w, 0.0), site, sites)
    load_w = sum_by(np.where(known, racks.load_w, 0.0), site, sites)
    some = np.flatnonzero(count_by(known, site, sites))
    names = fleet.sites.names[some].tolist()
    each = zip(names, budget_w[some].tolist(), load_w[some].tolist(), strict=True)
    return [Row("racks", name, name, budget, load) for name, budget, load in each]


_pack = msgspec.msgpack.Encoder().encode
_exposition = msgspec.msgpack.Decoder(Exposition)


def publish(headroom: Headroom) -> None:
    """Publish what is shown of a fleet, for half a minute."""
    stream.connection().set(_KEY, _pack(exposed(headroom)), ex=_KEPT_S)


def read() -> Exposition | None:
    """Return what was published last; None: nothing for half a minute."""
    data = cast(bytes | None, stream.connection().get(_KEY))
    return None if data is None else _exposition.decode(data)
