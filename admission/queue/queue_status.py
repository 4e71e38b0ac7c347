"""The status of the queue in Redis, as the last cycle left it.

It may be lost at any time: the next cycle writes it anew. What has to last is in Postgres.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import numpy as np

from admission.core.cycle.decide import Waiting
from admission.core.reasons import PRECEDENCE, Reason
from telemetry import stream

__all__ = [
    "Count",
    "PendingStatus",
    "QueueStatus",
    "ReasonLine",
    "TraceLine",
    "counts",
    "forget",
    "in_lines",
    "order",
    "pending_statuses",
    "plain",
    "positions",
    "publish",
    "publish_stays",
    "read",
    "reason_lines",
    "stays",
]

_HEAD = "admission:queue:status"
_ORDER = "admission:queue:order"
_LINES = "admission:queue:lines"
_STAYS = "admission:queue:stays"
#: A status that nobody has renewed for so long says nothing any more, s.
_KEPT_S = 3600
#: Written in one go: commands of other clients come in between.
_AT_ONCE = 2_000


class ReasonLine(msgspec.Struct, array_like=True, frozen=True):
    """A reason for pages and API. ``scope_kind`` is empty where it is nowhere in particular.

    ``token`` is of ``admission.core.reasons.ReasonToken``; numbers are in ``unit``.
    """

    token: str
    need: float
    have: float
    short: float
    unit: str
    scope_kind: str
    scope_name: str
    sentence: str
    evidence: dict[str, Any] = {}


class TraceLine(msgspec.Struct, array_like=True, frozen=True):
    """One step of a decision."""

    check: str
    passed: bool
    sentence: str


class PendingStatus(msgspec.Struct, array_like=True, frozen=True):
    """The status of one waiting phase. ``position`` counts from 1.

    The dominant reason comes first. Times are seconds from the cycle on, None where they are not
    known. Far back in the queue there is the dominant reason alone, and no trace.
    """

    position: int
    reasons: tuple[ReasonLine, ...]
    p10_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    basis: str = ""
    trace: tuple[TraceLine, ...] = ()
    #: elements of an array that wait, where it stands for them; they share its position
    elements: int = 1
    #: why it cannot start though the fleet were all its own; empty: it can, as far as is known
    never: str = ""


class Count(msgspec.Struct, array_like=True, frozen=True):
    """How many phases of a class wait for one dominant reason, and the longest of their waits."""

    job_class: str
    reason: str
    count: int
    oldest_s: float


class QueueStatus(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """The status of the last cycle. ``at`` is Unix seconds; ``failed`` names its failed parts."""

    cycle: int
    at: float
    waiting: int
    running: int
    admitted: int
    failed: tuple[str, ...] = ()
    counts: tuple[Count, ...] = ()


def plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, and any other evidence as text."""
    return value.item() if isinstance(value, np.generic) else str(value)


_pack = msgspec.msgpack.Encoder(enc_hook=plain).encode
_status = msgspec.msgpack.Decoder(QueueStatus)
_pending_status = msgspec.msgpack.Decoder(PendingStatus)


# --- Writing -------------------------------------------------------------------------------------


def in_lines(
    found: Mapping[str, PendingStatus], of_arrays: Mapping[str, Hashable]
) -> tuple[dict[str, PendingStatus], list[str]]:
    """Give the elements of an array that wait one line, and one position; return lines and order.

    ``of_arrays``: the same for elements that share a line, by key; others have lines of their own.
    The order has the first of each line.
    """
    count = Counter(of_arrays.get(key, key) for key in found)
    place: dict[Hashable, int] = {}
    lines: dict[str, PendingStatus] = {}
    order: list[str] = []
    for key, status in found.items():
        line = of_arrays.get(key, key)
        is_first = line not in place
        if is_first:
            place[line] = len(order) + 1
            order.append(key)
        elements = count[line] if is_first else 1
        if (status.position, status.elements) != (place[line], elements):
            status = msgspec.structs.replace(status, position=place[line], elements=elements)
        lines[key] = status
    return lines, order


def publish(
    status: QueueStatus, lines: Mapping[str, PendingStatus], order: Sequence[str] | None = None
) -> None:
    """Publish ``status`` with the line of each key; ``lines`` are in order of position.

    ``order``: the keys that the queue is listed with, in order; None: all of them.

    Readers see the old status or the new one: each part is written aside and put in its place.
    """
    client = stream.connection()
    order_key, lines_key = f"{_ORDER}:{status.cycle}", f"{_LINES}:{status.cycle}"
    client.delete(order_key, lines_key)
    keys = list(lines)
    listed = keys if order is None else order
    for first in range(0, len(keys), _AT_ONCE):
        part, of_order = keys[first : first + _AT_ONCE], listed[first : first + _AT_ONCE]
        pipe = client.pipeline(transaction=False)
        if of_order:
            pipe.rpush(order_key, *of_order)
        pipe.hset(lines_key, mapping={key: _pack(lines[key]) for key in part})
        pipe.execute()
    pipe = client.pipeline(transaction=True)
    pipe.set(_HEAD, _pack(status), ex=_KEPT_S)
    for made, place in ((order_key, _ORDER), (lines_key, _LINES)):
        if lines:
            pipe.rename(made, place)
            pipe.expire(place, _KEPT_S)
        else:
            pipe.delete(place)
    pipe.execute()


def publish_stays(stays: Mapping[str, str]) -> None:
    """Publish by key why elastic phases that run do not grow now."""
    pipe = stream.connection().pipeline(transaction=True)
    pipe.delete(_STAYS)
    if stays:
        pipe.hset(_STAYS, mapping={key: why.encode() for key, why in stays.items()})
        pipe.expire(_STAYS, _KEPT_S)
    pipe.execute()


def reason_lines(reasons: Iterable[Reason]) -> tuple[ReasonLine, ...]:
    """Return reasons as lines, the dominant one first."""
    ordered = sorted(reasons, key=lambda reason: PRECEDENCE[reason.token])
    return tuple(
        ReasonLine(
            token=each.token.value,
            need=each.need,
            have=each.have,
            short=each.short,
            unit=each.unit,
            scope_kind=each.scope.kind.value if each.scope else "",
            scope_name=each.scope.name if each.scope else "",
            sentence=each.sentence,
            evidence=each.evidence,
        )
        for each in ordered
    )


def counts(waiting: Iterable[Waiting], now: float) -> tuple[Count, ...]:
    """Count the phases that wait at ``now`` (Unix s) by class and dominant reason."""
    found: dict[tuple[str, str], tuple[int, float]] = {}
    for each in waiting:
        key = (each.request.job_class, each.dominant.token.value)
        count, oldest_s = found.get(key, (0, 0.0))
        found[key] = count + 1, max(oldest_s, now - each.request.submitted_at)
    return tuple(Count(*key, *found[key]) for key in sorted(found))


# --- Reading -------------------------------------------------------------------------------------


def read() -> QueueStatus | None:
    """Return the last cycle; None: none is known."""
    data = cast(bytes | None, stream.connection().get(_HEAD))
    return None if data is None else _status.decode(data)


def order(first: int = 0, count: int | None = None) -> list[str]:
    """Return the keys of ``count`` phases that wait (None: all), from position ``first`` + 1 on."""
    last = -1 if count is None else first + count - 1
    if count == 0:
        return []
    found = cast(list[bytes], stream.connection().lrange(_ORDER, first, last))
    return [key.decode() for key in found]


def positions() -> dict[str, int]:
    """Return the position of every phase that waits, by its key, from 1."""
    return {key: place for place, key in enumerate(order(), 1)}


def pending_statuses(keys: Sequence[str]) -> dict[str, PendingStatus]:
    """Return the status of each of ``keys`` that waits. One round trip."""
    if not keys:
        return {}
    found = cast(list[bytes | None], stream.connection().hmget(_LINES, list(keys)))
    pairs = zip(keys, found, strict=True)
    return {key: _pending_status.decode(data) for key, data in pairs if data is not None}


def stays(keys: Sequence[str]) -> dict[str, str]:
    """Return why those of ``keys`` do not grow that run with less than they ask for."""
    if not keys:
        return {}
    found = cast(list[bytes | None], stream.connection().hmget(_STAYS, list(keys)))
    return {key: why.decode() for key, why in zip(keys, found, strict=True) if why is not None}


def forget() -> None:
    """Remove the status of the queue."""
    stream.connection().delete(_HEAD, _ORDER, _LINES, _STAYS)
