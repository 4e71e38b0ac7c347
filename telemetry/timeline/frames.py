"""Frames of the past: the live frame as it was at each step of a span, made of samples.

A reading counts from the end of the step in which it was taken, and stands until the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from telemetry.live_frame import DTYPES, KINDS, Array, Floats, Ints, RecordedFrame, never_seen
from telemetry.store import reading as store
from telemetry.store.columns import US, Columns, Window
from telemetry.timeline import reading
from telemetry.timeline.tiers import Tier, parts


class Recording:
    """Frames of a span, a piece at a time: each piece goes on where the one before it ended.

    ``wanted`` are the fields of each kind, ``ids`` the things.
    """

    def __init__(
        self,
        ids: Mapping[str, Ints],
        wanted: Mapping[str, set[str]],
        *,
        tier: Tier,
        step_s: float,
    ) -> None:
        self._ids = ids
        self._tier = tier
        self._step_s = step_s
        #: What each thing read last before the piece that comes next.
        self._last: dict[str, dict[str, Array]] = {}
        for kind, names in wanted.items():
            unheard = never_seen(kind, len(ids[kind]))
            self._last[kind] = {name: unheard[name] for name in {"ts", *names}}

    def next(self, window: Window) -> tuple[Floats, RecordedFrame]:
        """Return the ends of the steps of ``window`` (Unix s), and the frame at each of them."""
        times = np.arange(window.start, window.end, self._step_s) + self._step_s
        arrays = {kind: self._kind(kind, window, len(times)) for kind in self._last}
        return times, RecordedFrame(self._ids, arrays)

    def _kind(self, kind: str, window: Window, steps: int) -> dict[str, Array]:
        """Return the fields of a kind, each (steps, things)."""
        ids, last = self._ids[kind], self._last[kind]
        things = len(ids)
        # Row 0 is what was before; of what is not read in a step, nothing is looked at.
        values = {name: np.empty((steps + 1, things), DTYPES[kind][name]) for name in last}
        newest = np.zeros((steps + 1, things), dtype=np.int64)
        for name, before in last.items():
            values[name][0] = before
        column_by_id = np.full(int(ids.max(initial=0)) + 2, -1, dtype=np.int64)
        column_by_id[ids] = np.arange(things)
        for rows in self._rows(kind, window):
            step = 1 + np.floor((rows["ts"] - window.start) / self._step_s).astype(np.int64)
            column = column_by_id[np.minimum(rows["id"], len(column_by_id) - 1)]
            inside = (step > 0) & (step <= steps) & (column >= 0)
            place = (step * things + column)[inside]
            # Rows are in order of time within a thing: of several in one step the last stays.
            newest.reshape(-1)[place] = step[inside]
            for name in last:
                values[name].reshape(-1)[place] = rows[name][inside]
        place = np.maximum.accumulate(newest, axis=0) * things + np.arange(things)
        found = {name: each.reshape(-1)[place] for name, each in values.items()}
        self._last[kind] = {name: each[-1] for name, each in found.items()}
        return {name: each[1:] for name, each in found.items()}

    def _rows(self, kind: str, window: Window) -> Iterator[dict[str, Array]]:
        """Yield the rows of each tier that answers for a part of ``window``, by field and id."""
        table, now = KINDS[kind], time.time()
        names = sorted(self._last[kind].keys() - {"ts"})
        for part in parts(self._tier, window.start, window.end, reading.known(table, now)):
            span = Window(part.start, part.end)
            if part.tier is Tier.RAW:
                rows = store.read(table, names, span)
                yield {"ts": rows["ts"] / US, "id": rows[table.key], **_of_frame(kind, rows, names)}
            else:
                ids = self._ids[kind].tolist()
                found = reading.fetch(table, ids, names, span, part.tier, now)
                values = {name: found.points.fields[name].value for name in names}
                yield {"ts": found.points.t, "id": found.ids, **_of_frame(kind, values, names)}


def _of_frame(kind: str, rows: Columns, names: list[str]) -> dict[str, NDArray[Any]]:
    """Return fields as frames have them: codes are 0 where there is none, quantities are NaN."""
    found = {}
    for name in names:
        values = rows[name]
        if values.dtype.kind == "i":
            values = reading.as_float(values)
        found[name] = np.nan_to_num(values) if DTYPES[kind][name].kind == "i" else values
    return found
