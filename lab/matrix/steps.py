"""The steps that a command reports: lines of JSON, or lines that a pattern parses."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headroom.errors import HeadroomError

__all__ = ["Lines", "PatternError", "Step", "pattern_of", "read"]

_MOST_LINE_BYTES = 1 << 20


class PatternError(HeadroomError):
    """The pattern of steps cannot be used."""


@dataclass(frozen=True)
class Step:
    """One step as the command reported it. None: not reported. ``retries`` is since its start."""

    step: int
    loss: float | None = None
    sync_s: float | None = None
    retries: int | None = None
    wait_s: float | None = None


def pattern_of(text: str) -> re.Pattern[str]:
    """Return the pattern by which lines are taken apart. Raises :class:`PatternError`."""
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise PatternError(f"--step-pattern: not a regular expression: {error}") from error
    if "step" not in pattern.groupindex:
        raise PatternError(
            "--step-pattern: it names no step: write (?P<step>[0-9]+), and (?P<loss>…) for the loss"
        )
    return pattern


def read(line: str, pattern: re.Pattern[str] | None = None) -> Step | None:
    """Return the step that a line tells, or None where it is about something else."""
    if pattern is not None:
        match = pattern.search(line)
        return None if match is None else _step(match.groupdict())
    if not line.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return _step(found) if isinstance(found, dict) else None


def _step(facts: dict[str, Any]) -> Step | None:
    number = _number(facts.get("step"))
    if number is None or not math.isfinite(number):
        return None
    retries = _number(facts.get("retries"))
    return Step(
        step=int(number),
        loss=_number(facts.get("loss")),
        sync_s=_number(facts.get("sync_s")),
        wait_s=_number(facts.get("wait_s")),
        retries=None if retries is None or not math.isfinite(retries) else int(retries),
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


class Lines:
    """The whole lines that are appended to a file, which may not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""

    def take(self) -> list[str]:
        """Return the lines that came since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                read = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(read)
        *lines, self._rest = (self._rest + read).split(b"\n")
        if len(self._rest) > _MOST_LINE_BYTES:
            self._rest = b""
        return [line.decode(errors="replace") for line in lines]
