"""Fixes that would start a phase now, for the list: found for the first rows, and kept for a while.

To find one takes the solver, so it is asked for once, apart from the list, and shared by all who
look. The page of a job asks anew.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from admission.cycle import live
from telemetry import stream

#: Of so many rows of a page.
ROWS = 12
#: It is looked for again when it was found so long ago, s. While nobody has, the old one is shown.
_DUE_S = 30.0
_KEPT_S = 60
#: What one look may take, s; the next one goes on.
_BUDGET_S = 0.4
_KEY = "dashboard:fix:"


@dataclass(frozen=True, slots=True)
class Found:
    """A fix for the list. ``sentence`` is empty where there was none at ``at`` (Unix s)."""

    sentence: str
    at: float

    @property
    def is_due(self) -> bool:
        """Whether the fix is to be looked for again."""
        return time.time() - self.at >= _DUE_S


def known(keys: Sequence[str]) -> dict[str, Found]:
    """Return the fixes found for ``keys`` of late."""
    if not keys:
        return {}
    found = cast(list[bytes | None], stream.connection().mget([_KEY + key for key in keys]))
    return {key: _read(value) for key, value in zip(keys, found, strict=True) if value is not None}


def _read(value: bytes) -> Found:
    at, _, sentence = value.decode().partition(" ")
    return Found(sentence, float(at))


def find(keys: Sequence[str]) -> None:
    """Look for a fix of each of ``keys`` that is due, as many as fit into a short time."""
    before, end = known(keys), time.monotonic() + _BUDGET_S
    for key in keys:
        if time.monotonic() >= end:
            return
        if key not in before or before[key].is_due:
            # One at a time: what was not come to is not known to have none.
            fix = live.fixes([key], _BUDGET_S).get(key)
            sentence = fix.sentence.removeprefix("starts now ") if fix else ""
            stream.connection().set(_KEY + key, f"{time.time():.3f} {sentence}", ex=_KEPT_S)
