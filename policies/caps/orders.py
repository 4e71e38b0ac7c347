"""The caps that the controller has set last, for all processes that answer agents.

They are one value in Redis, written when a cap changes and before they end. If it is lost, each
process goes on with what it knew until that ends: no GPU is let go because a store was emptied. The
next round of the controller writes them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import msgspec
import numpy as np
import redis
import structlog

from fleet.cache import Cache
from fleet.snapshot import FleetArrays
from headroom.contracts import Limit, LimitKind
from policies.headroom.columns import Floats, Ints
from telemetry import stream

__all__ = ["LEASE_S", "OWNER", "Orders", "by_gpu", "by_node", "current", "forget", "keep"]

log = structlog.get_logger(__name__)

_KEY, _VERSION = "controller:orders", "controller:orders:version"
#: Of limits that are the controller's: their ids begin so.
OWNER = "controller"
#: Without a controller caps end by themselves after this, as caps of jobs do, s.
LEASE_S = 600.0
#: A cap that goes on is written again this long before it ends, s.
_RENEWED_S = 540.0
#: A change is known to every process within this time, s.
_MAX_AGE_S = 0.5


class Orders(msgspec.Struct, frozen=True, array_like=True):
    """Caps since ``at`` (Unix s), of GPUs that have one: ids of GPUs and units, and W, as bytes.

    A unit is an attempt, by its id, or a node with load of no known owner, as -1 minus its id.
    """

    version: str = ""
    at: float = 0.0
    expires_at: float = 0.0
    gpu: bytes = b""
    unit: bytes = b""
    cap_w: bytes = b""

    @property
    def gpu_ids(self) -> Ints:
        return np.frombuffer(self.gpu, dtype="<i8")

    @property
    def units(self) -> Ints:
        return np.frombuffer(self.unit, dtype="<i8")

    @property
    def watts(self) -> Floats:
        return np.frombuffer(self.cap_w, dtype="<f8")

    def __len__(self) -> int:
        return len(self.gpu) // 8

    def says(self, other: Orders) -> bool:
        """Say whether both set the same caps."""
        return (self.gpu, self.unit, self.cap_w) == (other.gpu, other.unit, other.cap_w)


_pack = msgspec.msgpack.Encoder().encode
_orders = msgspec.msgpack.Decoder(Orders)


def keep(gpu_ids: Ints, units: Ints, cap_w: Floats, now: float) -> bool:
    """Have agents set these caps from ``now`` on (Unix s) and no others; say if that is a change.

    Written where something has changed, or what goes on is about to end.
    """
    wanted = Orders(
        version=f"{now:.6f}",
        at=now,
        expires_at=now + LEASE_S,
        gpu=np.ascontiguousarray(gpu_ids, dtype="<i8").tobytes(),
        unit=np.ascontiguousarray(units, dtype="<i8").tobytes(),
        cap_w=np.ascontiguousarray(cap_w, dtype="<f8").tobytes(),
    )
    known = _read()
    is_same = known is not None and known.says(wanted)
    if known is not None and is_same and (not len(known) or known.expires_at - now > _RENEWED_S):
        return False
    pipe = stream.connection().pipeline(transaction=True)
    pipe.set(_KEY, _pack(wanted))
    pipe.set(_VERSION, wanted.version)
    pipe.execute()
    _kept.recheck()
    return not is_same


def _read() -> Orders | None:
    found = cast(bytes | None, stream.connection().get(_KEY))
    return None if found is None else _orders.decode(found)


# --- What this process keeps ----------------------------------------------------------------------


_NONE = Orders()
_kept: Cache[Orders] = Cache(_MAX_AGE_S)
_last: list[Orders] = []


def current(now: float) -> Orders:
    """Return the caps in force at ``now`` (Unix s), as of half a second ago."""
    found = _kept.get(_found, version=_version)
    return found if now < found.expires_at else _NONE


def forget() -> None:
    """Forget all that this process knows, as one that has just begun."""
    _last.clear()
    _kept.invalidate()


def _version() -> str:
    try:
        found = cast(bytes | None, stream.connection().get(_VERSION))
    except redis.RedisError:
        return ""
    return "" if found is None else found.decode()


def _found() -> Orders:
    """Return what is stored, or what was known where nothing is or nobody can tell."""
    try:
        found = _read()
    except redis.RedisError as exc:
        log.warning("orders_unknown", error=type(exc).__name__)
        found = None
    if found is not None:
        _last[:] = [found]
    return _last[0] if _last else _NONE


# --- As agents and the controller take them -------------------------------------------------------


def by_gpu(orders: Orders, fleet: FleetArrays) -> Floats:
    """Return the cap of each GPU of ``fleet``, W; inf: none."""
    rows, gpu = _on_fleet(orders, fleet)
    cap_w = np.full(len(fleet.gpus), np.inf)
    cap_w[gpu] = orders.watts[rows]
    return cap_w


def by_node(orders: Orders, fleet: FleetArrays) -> Iterator[tuple[int, Limit]]:
    """Yield the limits of each node, by its id: one for all of its GPUs where they have one cap."""
    rows, gpu = _on_fleet(orders, fleet)
    in_order = np.argsort(gpu)
    rows, gpu = rows[in_order], gpu[in_order]
    node, unit, cap_w = fleet.gpus.node[gpu], orders.units[rows], orders.watts[rows]
    # GPUs stand in the order of their nodes.
    nodes, first = np.unique(node, return_index=True)
    edges = [*first.tolist(), len(node)]
    for at, each in enumerate(nodes.tolist()):
        mine = slice(edges[at], edges[at + 1])
        yield from _on_node(each, gpu[mine], unit[mine], cap_w[mine], orders.expires_at, fleet)


def _on_fleet(orders: Orders, fleet: FleetArrays) -> tuple[Ints, Ints]:
    """Return the places of orders whose GPUs are the fleet's, and the rows of these."""
    rows = np.flatnonzero(np.isin(orders.gpu_ids, fleet.gpus.ids))
    order = np.argsort(fleet.gpus.ids)
    return rows, order[np.searchsorted(fleet.gpus.ids, orders.gpu_ids[rows], sorter=order)]


def _on_node(
    node: int, gpu: Ints, unit: Ints, cap_w: Floats, ends_at: float, fleet: FleetArrays
) -> Iterator[tuple[int, Limit]]:
    node_id, name = int(fleet.nodes.ids[node]), str(fleet.nodes.names[node])
    whole = len(gpu) == fleet.gpu_bounds[node + 1] - fleet.gpu_bounds[node]
    if whole and len(set(unit.tolist())) == 1 and len(set(cap_w.tolist())) == 1:
        limit = _limit(_unit_name(int(unit[0])), name, float(cap_w[0]), ends_at)
        yield node_id, limit
        return
    for row, mine, watts in zip(gpu.tolist(), unit.tolist(), cap_w.tolist(), strict=True):
        index = int(fleet.gpus.index[row])
        yield node_id, _limit(f"{_unit_name(mine)}-gpu-{index}", name, watts, ends_at, index)


def _unit_name(unit: int) -> str:
    return f"{OWNER}-attempt-{unit}" if unit >= 0 else f"{OWNER}-node-{-1 - unit}"


def _limit(key: str, node: str, cap_w: float, ends_at: float, gpu: int | None = None) -> Limit:
    kind = LimitKind.POWER_CAP_W.value
    return Limit(id=key, node=node, kind=kind, value=cap_w, expires_at=ends_at, gpu=gpu)
