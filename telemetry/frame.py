"""The live frame: the latest reading of every GPU, host, link, meter and mount, in Redis.

One Redis string for each kind and shard is an array of fixed-size records, indexed by database id,
so the writer of a shard, the only one, stores what changed with SETRANGE and a page reads all of it
with one GET. When Redis has lost them, the next writer makes them again from the samples.
"""

from __future__ import annotations

import secrets
import zlib
from typing import cast

import numpy as np
from django.conf import settings
from django.db import connection

from fleet.cache import Cache
from telemetry import samples, stream
from telemetry.live_frame import AHEAD_S, DTYPES, KINDS, Array, LiveFrame, never_seen, unheard_blank
from telemetry.samples import Rows, Table

__all__ = [
    "DTYPES",
    "KINDS",
    "FrameWriter",
    "LiveFrame",
    "never_seen",
    "read",
    "version",
]

_ENTITIES = {
    "gpu": "fleet_gpu",
    "host": "fleet_node",
    "link": "fleet_link",
    "meter": "fleet_meter",
    "storage": "telemetry_mount",
}
#: After a loss of Redis, readings up to this old are put back into the frame.
_REBUILD_WINDOW = "1 hour"
#: Records that changed are written in one go with unchanged ones between them up to this gap:
#: a command costs more than the bytes.
_MAX_GAP = 32
#: Part of every key, so that no release reads records that another laid out otherwise.
_LAYOUT = f"{zlib.crc32(repr([dtype.descr for dtype in DTYPES.values()]).encode()):08x}"


# --- Reading -------------------------------------------------------------------------------------


def _array_key(shard: int, kind: str) -> str:
    return f"frame:{_LAYOUT}:{shard}:{kind}"


def _version_keys(shard: int) -> tuple[str, str]:
    return f"frame:{_LAYOUT}:{shard}:epoch", f"frame:{_LAYOUT}:{shard}:version"


def version() -> str:
    """Return the version of the frame: it changes when any reading does. One round trip."""
    keys = [key for shard in range(settings.TELEMETRY_SHARDS) for key in _version_keys(shard)]
    found = cast(list[bytes | None], stream.connection().mget(keys))
    return ".".join((part or b"-").decode() for part in found)


_frame: Cache[LiveFrame] = Cache()


def read() -> LiveFrame:
    """Return the newest frame: the same object while no reading comes. One round trip then."""
    now = version()
    return _frame.get(lambda: LiveFrame(now, {kind: _read_array(kind) for kind in KINDS}), of=now)


def _read_array(kind: str) -> Array:
    keys = [_array_key(shard, kind) for shard in range(settings.TELEMETRY_SHARDS)]
    found = cast(list[bytes | None], stream.connection().mget(keys))
    return _newest([_from_bytes(kind, data or b"") for data in found])


def _from_bytes(kind: str, data: bytes) -> Array:
    # Redis fills what nobody wrote with zero bytes, also between two commands after it was emptied.
    return unheard_blank(np.frombuffer(data, dtype=DTYPES[kind]))


def _newest(arrays: list[Array]) -> Array:
    """Return for each id the record that was read last."""
    merged = max(arrays, key=len)
    if len(arrays) == 1:
        return merged
    merged = merged.copy()
    for records in arrays:
        newer = records["ts"] > merged["ts"][: len(records)]
        merged[: len(records)][newer] = records[newer]
    merged.flags.writeable = False
    return merged


# --- Writing -------------------------------------------------------------------------------------


class FrameWriter:
    """The frame of one shard, as its writer holds it. Only one may be at work for a shard."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self._arrays: dict[str, Array] = {}
        self._changed: dict[str, Array] = {}
        self._version = 0
        self._load()

    def _load(self) -> None:
        epoch_key, version_key = _version_keys(self._shard)
        epoch, number, *found = cast(
            list[bytes | None],
            stream.connection().mget(
                [epoch_key, version_key, *(_array_key(self._shard, kind) for kind in KINDS)]
            ),
        )
        for kind, data in zip(KINDS, found, strict=True):
            self._arrays[kind] = _from_bytes(kind, data or b"").copy()
        self._version = int(number or 0)
        if epoch is None:
            self._rebuild()

    def _rebuild(self) -> None:
        """Fill the frame from the samples, after Redis was lost or at the very first start."""
        for kind, table in KINDS.items():
            self.update(kind, _latest_rows(kind, table), received_at=0.0)
        self._write_everything()

    def ts(self, kind: str, ids: Array) -> Array:
        """Return the time of the latest reading of each of ``ids``; 0 where there is none."""
        records = self._arrays[kind]
        out = np.zeros(len(ids))
        inside = ids < len(records)
        out[inside] = records["ts"][ids[inside]]
        return out

    def update(self, kind: str, rows: Rows, received_at: Array | float) -> None:
        """Take over the newest row of each thing, unless a newer one is there already.

        One that is newer than the time of receipt was read before the clock was set back: it goes.
        Nothing is written before :meth:`flush`.
        """
        if not len(rows):
            return
        ids, ts = rows.columns[rows.table.key], rows.columns["ts"]
        self._grow(kind, int(ids.max()) + 1)
        known_ts = self._arrays[kind]["ts"][ids]
        to_come = (known_ts > np.asarray(received_at) + AHEAD_S) & (np.asarray(received_at) > 0)
        chosen = np.flatnonzero((ts >= known_ts) | to_come)
        # In order of time: of several values for one id the last stays.
        chosen = chosen[np.argsort(ts[chosen], kind="stable")]
        _, from_end = np.unique(ids[chosen][::-1], return_index=True)
        chosen = chosen[len(chosen) - 1 - from_end]
        self._put(kind, rows, chosen, np.broadcast_to(received_at, len(rows)))

    def _put(self, kind: str, rows: Rows, chosen: Array, received_at: Array) -> None:
        records = self._arrays[kind]
        ids = rows.columns[rows.table.key][chosen]
        fresh = np.empty(len(chosen), records.dtype)
        fresh["ts"] = rows.columns["ts"][chosen]
        fresh["received_at"] = received_at[chosen]
        # A reading that came in pieces (remote write): the second one adds to the first.
        goes_on = records["ts"][ids] == fresh["ts"]
        some_go_on = bool(goes_on.any())
        for column in rows.table.fields:
            if column.name not in (fresh.dtype.names or ()):
                continue
            given = rows.columns[column.name][chosen]
            fresh[column.name] = given
            if column.dtype.kind == "i" or some_go_on:
                missing = samples.is_null(column, given)
                blank = np.nan if fresh.dtype[column.name].kind == "f" else 0
                earlier = records[column.name][ids]
                fresh[column.name][missing] = np.where(goes_on, earlier, blank)[missing]
        # As bytes: field by field takes ten times as long.
        whole = np.dtype((np.void, records.dtype.itemsize))
        records.view(whole)[ids] = fresh.view(whole)
        self._note_changed(kind, ids)

    def _grow(self, kind: str, size: int) -> None:
        records = self._arrays[kind]
        if size > len(records):
            self._arrays[kind] = np.concatenate([records, never_seen(kind, size - len(records))])
            # All that is new is written: Redis fills gaps with zeros, and a zero is a reading.
            self._note_changed(kind, np.arange(len(records), size))

    def _note_changed(self, kind: str, ids: Array) -> None:
        changed = self._changed.get(kind)
        self._changed[kind] = ids if changed is None else np.concatenate([changed, ids])

    def flush(self) -> None:
        """Write the records that changed since the last flush."""
        if not self._changed:
            return
        pipe = stream.connection().pipeline(transaction=False)
        for kind, ids in self._changed.items():
            itemsize = DTYPES[kind].itemsize
            for first, last in _runs(np.unique(ids)):
                data = self._arrays[kind][first : last + 1].tobytes()
                pipe.setrange(_array_key(self._shard, kind), first * itemsize, data)
        pipe.incr(_version_keys(self._shard)[1])
        number = pipe.execute()[-1]
        self._changed = {}
        if number != self._version + 1:
            # Redis was emptied under us: what it now holds is zeros around these records.
            self._write_everything()
        else:
            self._version = number

    def _write_everything(self) -> None:
        epoch_key, version_key = _version_keys(self._shard)
        pipe = stream.connection().pipeline(transaction=True)
        for kind, records in self._arrays.items():
            pipe.set(_array_key(self._shard, kind), records.tobytes())
        # A new epoch, so that a version number that comes again names no old frame.
        pipe.set(epoch_key, secrets.token_hex(4))
        pipe.set(version_key, 1)
        pipe.execute()
        self._version = 1
        self._changed = {}


def _runs(ids: Array) -> list[tuple[int, int]]:
    """Return the (first, last) of the runs of sorted ``ids`` that are no further than the gap."""
    if not len(ids):
        return []
    breaks = np.flatnonzero(np.diff(ids) > _MAX_GAP)
    firsts = ids[np.append(0, breaks + 1)].tolist()
    lasts = ids[np.append(breaks, len(ids) - 1)].tolist()
    return list(zip(firsts, lasts, strict=True))


def _latest_rows(kind: str, table: Table) -> Rows:
    """Read the newest sample of each thing: one index look-up for each."""
    names = [c.name for c in table.columns if c.name != "ts"]
    query = (
        f"SELECT extract(epoch FROM latest.ts)::float8, {', '.join('latest.' + n for n in names)}"  # noqa: S608 - names are our own
        f" FROM {_ENTITIES[kind]} AS thing CROSS JOIN LATERAL ("
        f"SELECT * FROM {table.name} WHERE {table.key} = thing.id"
        f" AND ts > now() - interval '{_REBUILD_WINDOW}' ORDER BY ts DESC LIMIT 1) AS latest"
    )
    with connection.cursor() as cursor:
        cursor.execute(query)
        found = cursor.fetchall()
    values = list(zip(*found, strict=True)) or [() for _ in table.columns]
    columns = dict(zip(["ts", *names], values, strict=True))
    return Rows(
        table, {c.name: samples.as_array(c.dtype, list(columns[c.name])) for c in table.columns}
    )
