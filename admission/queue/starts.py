"""Estimates of starts in Redis, as they were last made, for the cycles that come after.

They may be lost at any time: they are made anew each minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import msgspec

from admission.core.cycle.calibration import Estimate
from telemetry import stream

__all__ = ["NOT_MADE", "Start", "Starts", "forget", "publish", "read"]

_KEY = "admission:queue:starts"
#: Estimates that nobody has renewed for so long say nothing any more, s.
_KEPT_S = 600
NOT_MADE = "no estimates are made at present"
_NOT_YET = "estimates are made each minute, and none since it came"


class Start(msgspec.Struct, array_like=True, frozen=True):
    """In how many seconds a phase starts, as a range, and what that rests on.

    None: that cannot be said; ``basis`` says why where it is not the dominant reason.
    """

    p10_s: float | None = None
    p50_s: float | None = None
    p90_s: float | None = None
    basis: str = ""


class Starts(msgspec.Struct, array_like=True, frozen=True):
    """Estimates that were made ``at`` (Unix s): 10, 50 and 90 %, s from then on, by key.

    ``unsaid`` waited then, too, and nobody can say when they start.
    """

    at: float
    ranges: dict[str, tuple[float, float, float]]
    unsaid: frozenset[str] = frozenset()
    basis: str = ""

    def of(self, key: str, now: float) -> Start:
        """Return what is known of a phase at ``now`` (Unix s)."""
        found = self.ranges.get(key)
        if found is None:
            return Start(basis="" if key in self.unsaid else _NOT_YET)
        passed_s = max(now - self.at, 0.0)
        low_s, middle_s, high_s = (max(each - passed_s, 0.0) for each in found)
        return Start(low_s, middle_s, high_s, self.basis)


_pack = msgspec.msgpack.Encoder().encode
_starts = msgspec.msgpack.Decoder(Starts)


def publish(made: Mapping[str, Estimate], at: float, waiting: Iterable[str] = ()) -> None:
    """Publish estimates that were made ``at`` (Unix s), by key; ``waiting``: of all that wait."""
    ranges = {key: (each.p10_s, each.p50_s, each.p90_s) for key, each in made.items()}
    basis = next((each.basis for each in made.values()), "")
    unsaid = frozenset(waiting) - ranges.keys()
    stream.connection().set(_KEY, _pack(Starts(at, ranges, unsaid, basis)), ex=_KEPT_S)


def read() -> Starts | None:
    """Return the last estimates; None where none were made of late."""
    data = cast(bytes | None, stream.connection().get(_KEY))
    return None if data is None else _starts.decode(data)


def forget() -> None:
    """Remove all estimates."""
    stream.connection().delete(_KEY)
