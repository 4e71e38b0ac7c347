"""Open events as records in one array, and the changes that readings make to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headroom.contracts import ThrottleCause
from telemetry.samples import NULL_INT
from telemetry.throttle import rules
from telemetry.throttle.rules import CAUSES, CLOSE_AFTER_S, EXPECTED_SHARE, PROGRESS_S, Array

#: An event so far. Times are Unix µs, 0: not yet. ``cause`` is a place in ``rules.CAUSES``.
#: What ``tail_*`` hold came after the cause was last seen to hold; it becomes part of the event
#: when the cause comes back, and is dropped when the event closes.
EVENT = np.dtype(
    [
        ("gpu_id", "i8"),
        ("cause", "i8"),
        ("opened_us", "i8"),
        ("updated_us", "i8"),
        ("closed_us", "i8"),
        ("readings", "i8"),
        ("observed_s", "f8"),
        ("throttled_s", "f8"),
        ("capped_s", "f8"),
        ("sampled_s", "f8"),
        ("lost_mhz_s", "f8"),
        ("energy_j", "f8"),
        ("usual_mhz", "f8"),
        ("peak_temp_c", "f8"),
        ("peak_temp_mem_c", "f8"),
        ("peak_power_w", "f8"),
        ("min_sm_mhz", "f8"),
        ("job_id", "i8"),
        ("expected", "?"),
        ("severity", "i1"),
        # Not in the database:
        ("quiet_us", "i8"),
        ("tail_observed_s", "f8"),
        ("tail_throttled_s", "f8"),
        ("tail_sampled_s", "f8"),
        ("tail_energy_j", "f8"),
        ("stored", "?"),
        ("changed", "?"),
        ("written_us", "i8"),
    ]
)
#: The fields of :data:`EVENT` that are stored.
STORED = EVENT.names[: EVENT.names.index("quiet_us")] if EVENT.names else ()
_CAP = CAUSES.index(ThrottleCause.SW_POWER_CAP)
_FREE = -1
_PEAKS = {"peak_temp_c": "temp_c", "peak_temp_mem_c": "temp_mem_c", "peak_power_w": "power_w"}


def read_back(records: Array) -> Array:
    """Return open events from their stored fields, as they were when last written."""
    events = np.zeros(len(records), EVENT)
    for name in STORED:
        events[name] = records[name]
    events["tail_energy_j"] = np.nan
    events["stored"] = True
    events["written_us"] = events["updated_us"]
    return events


@dataclass(frozen=True, eq=False)
class Changes:
    """The changes that readings made to the events: records of :data:`EVENT`.

    An event that opened and closed stands in ``opened``. Of those that go on, only those are in
    ``updated`` that have something new to be stored.
    """

    opened: Array
    updated: Array
    closed: Array


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of one interval, a row for each of distinct pairs of GPU and cause."""

    gpu_id: Array
    cause: Array
    begin_us: Array
    end_us: Array
    length_s: Array
    held_s: Array
    sampled_s: Array
    seen: Array
    opens: Array
    keeps: Array
    energy_j: Array
    low_mhz: Array
    usual_mhz: Array
    lowered: Array
    temp_c: Array
    temp_mem_c: Array
    power_w: Array
    sm_mhz: Array
    job_id: Array

    def take(self, rows: Array) -> Evidence:
        """Return the given rows."""
        return Evidence(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


class OpenEvents:
    """The open events of a fleet, found by GPU and cause."""

    def __init__(self, open_: Array) -> None:
        self._records = np.zeros(0, EVENT)
        self._free: list[int] = []
        self._slots = np.full((0, len(CAUSES)), _FREE)
        self._ended: list[Array] = []
        self._touched: list[Array] = []
        if len(open_):
            self._put(open_)

    def records(self) -> Array:
        """Return a copy of the open events, by GPU and cause."""
        slots = self._slots[self._slots != _FREE]
        found: Array = self._records[slots]
        return found

    def has(self, gpu_id: Array) -> Array:
        """By cause: whether each of ``gpu_id`` has an open event."""
        self._reach(gpu_id)
        found: Array = self._slots[gpu_id] != _FREE
        return found

    def updated_us(self, gpu_id: Array, cause: Array) -> Array:
        """Return when each event, which must be open, was last seen to hold."""
        found: Array = self._records["updated_us"][self._slots[gpu_id, cause]]
        return found

    def take_in(self, evidence: Evidence) -> None:
        """Open, prolong and close events by one interval each of distinct pairs."""
        slots = self._slots[evidence.gpu_id, evidence.cause]
        known = slots != _FREE
        held = known & evidence.keeps
        quiet = known & ~evidence.keeps
        if held.any():
            self._go_on(slots[held], evidence.take(held))
        if quiet.any():
            self._fall_quiet(slots[quiet], evidence.take(quiet))
        opening = ~known & evidence.opens
        if opening.any():
            self._open(evidence.take(opening))

    def changes(self) -> Changes:
        """Return the changes since the last call, and note them as stored."""
        slots = np.unique(np.concatenate([np.zeros(0, "i8"), *self._touched]))
        slots = slots[self._records["opened_us"][slots] > 0] if len(slots) else slots
        records = self._records[slots]
        new = ~records["stored"]
        late = records["updated_us"] - records["written_us"] >= PROGRESS_S * 1e6
        due = ~new & (records["changed"] | late)
        written = slots[new | due]
        self._records["written_us"][written] = self._records["updated_us"][written]
        self._records["changed"][written] = False
        self._records["stored"][written] = True
        ended = np.concatenate([np.zeros(0, EVENT), *self._ended])
        self._ended, self._touched = [], []
        return Changes(
            opened=np.concatenate([ended[~ended["stored"]], records[new]]),
            updated=records[due],
            closed=ended[ended["stored"]],
        )

    # --- What becomes of an event ------------------------------------------------------------

    def _open(self, evidence: Evidence) -> None:
        fresh = np.zeros(len(evidence.gpu_id), EVENT)
        for name in ("gpu_id", "cause", "usual_mhz", "job_id"):
            fresh[name] = getattr(evidence, name)
        fresh["opened_us"] = np.where(evidence.seen, evidence.begin_us, evidence.end_us)
        for name in (*_PEAKS, "min_sm_mhz", "energy_j", "tail_energy_j"):
            fresh[name] = np.nan
        fresh["lost_mhz_s"] = np.where(np.isnan(evidence.usual_mhz), np.nan, 0.0)
        fresh["severity"] = rules.Severity.INFO
        slots = self._put(fresh)
        self._go_on(slots, evidence)

    def _go_on(self, slots: Array, evidence: Evidence) -> None:
        event = self._records[slots]
        length_s = np.where(evidence.seen, evidence.length_s, 0.0)
        event["readings"] += 1
        event["updated_us"] = evidence.end_us
        event["observed_s"] += event["tail_observed_s"] + length_s
        event["throttled_s"] += event["tail_throttled_s"] + evidence.held_s
        event["sampled_s"] += event["tail_sampled_s"] + evidence.sampled_s
        event["capped_s"] += np.where(evidence.lowered, evidence.held_s, 0.0)
        deficit = np.fmax(event["usual_mhz"] - evidence.low_mhz, 0.0)
        event["lost_mhz_s"] += evidence.held_s * deficit
        event["energy_j"] = _plus(
            _plus(event["energy_j"], event["tail_energy_j"]), evidence.energy_j
        )
        _drop_tail(event)
        for peak, name in _PEAKS.items():
            event[peak] = np.fmax(event[peak], getattr(evidence, name))
        event["min_sm_mhz"] = np.fmin(event["min_sm_mhz"], evidence.sm_mhz)
        event["job_id"] = np.where(event["job_id"] == NULL_INT, evidence.job_id, event["job_id"])
        _grade(event, evidence.lowered)
        self._records[slots] = event
        self._touched.append(slots)

    def _fall_quiet(self, slots: Array, evidence: Evidence) -> None:
        event = self._records[slots]
        # Of a silence nothing is known: what is quiet is so from the reading after it on.
        since_us = np.where(evidence.seen, event["updated_us"], evidence.end_us)
        event["quiet_us"] = np.where(event["quiet_us"] > 0, event["quiet_us"], since_us)
        event["tail_observed_s"] += np.where(evidence.seen, evidence.length_s, 0.0)
        event["tail_throttled_s"] += evidence.held_s
        event["tail_sampled_s"] += evidence.sampled_s
        event["tail_energy_j"] = _plus(event["tail_energy_j"], evidence.energy_j)
        over = evidence.end_us - event["quiet_us"] >= CLOSE_AFTER_S * 1e6
        self._records[slots] = event
        if over.any():
            self._close(slots[over])

    def _close(self, slots: Array) -> None:
        ended = self._records[slots]
        ended["closed_us"] = ended["updated_us"]
        self._ended.append(ended)
        self._slots[ended["gpu_id"], ended["cause"]] = _FREE
        self._records[slots] = np.zeros(1, EVENT)
        self._free.extend(slots.tolist())

    # --- Room for them -----------------------------------------------------------------------

    def _put(self, records: Array) -> Array:
        """Give each record a place and return the places."""
        missing = len(records) - len(self._free)
        if missing > 0:
            size = len(self._records)
            more = max(missing, size // 2, 64)
            self._records = np.concatenate([self._records, np.zeros(more, EVENT)])
            self._free.extend(range(size + more - 1, size - 1, -1))
        slots = np.array([self._free.pop() for _ in range(len(records))])
        self._reach(records["gpu_id"])
        self._records[slots] = records
        self._slots[records["gpu_id"], records["cause"]] = slots
        return slots

    def _reach(self, gpu_id: Array) -> None:
        """Make room for the ids, which count up from 1 and are never used again."""
        size, needed = len(self._slots), int(gpu_id.max(initial=0)) + 1
        if needed > size:
            more = np.full((max(needed - size, size // 4), len(CAUSES)), _FREE)
            self._slots = np.concatenate([self._slots, more])


def _plus(total: Array, more: Array) -> Array:
    """Return the sum of both, or the one that is known; NaN where neither is."""
    both = total + more
    return np.where(np.isnan(both), np.fmax(total, more), both)


def _drop_tail(event: Any) -> None:
    event["quiet_us"] = 0
    event["tail_observed_s"] = event["tail_throttled_s"] = event["tail_sampled_s"] = 0.0
    event["tail_energy_j"] = np.nan


def _grade(event: Any, lowered: Array) -> None:
    """Class the events and raise their severity; a change of either is to be stored at once."""
    throttled_s, observed_s = event["throttled_s"], event["observed_s"]
    mostly = np.where(throttled_s > 0.0, event["capped_s"] >= EXPECTED_SHARE * throttled_s, lowered)
    expected = (event["cause"] == _CAP) & mostly
    share = np.divide(
        throttled_s, observed_s, out=np.full(len(event), np.nan), where=observed_s > 0.0
    )
    severity = rules.severity(event["cause"], expected, share, throttled_s)
    # What was bad for minutes stays so in the record, though the share falls afterwards.
    severity = np.where(expected, severity, np.maximum(severity, event["severity"]))
    event["changed"] |= (severity != event["severity"]) | (expected != event["expected"])
    event["severity"] = severity
    event["expected"] = expected
