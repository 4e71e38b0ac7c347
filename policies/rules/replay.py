"""A rule run over recorded headroom: its firings, restrictions, delayed jobs and pages. Pure.

Conditions are evaluated for all times at once. What is left for a loop over times is the state
machine, and of that only the moments at which something is under way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.restrictions.kinds import RestrictionKind
from policies.rules import machine, words
from policies.rules.arrays import Bools, Columns
from policies.rules.cel import Verdict
from policies.rules.document import Notify, OpenIncident, Rule
from policies.rules.engine import clear_of
from policies.rules.machine import Phases, Timing

#: Kinds under which a job that would have started waits instead.
DELAYING = frozenset(
    {
        RestrictionKind.NO_NEW_LAUNCHES,
        RestrictionKind.HOLD_FOR_REVIEW,
        RestrictionKind.DRAIN,
    }
)
#: An outcome lists so many episodes; its sums are of all.
MOST_EPISODES = 500
#: Points of the series that an outcome shows.
_POINTS = 300


@dataclass
class Episode:
    """A time that the rule would have fired on one scope; Unix s."""

    row: int
    since: float
    fired_at: float
    cleared_at: float | None
    values: dict[str, Any]


@dataclass
class Run:
    """The replay of one rule over a span, chunk by chunk."""

    rule: Rule
    #: which scopes it looks at
    mask: Bools
    names: NDArray[np.object_]
    episodes: list[Episode] = field(default_factory=list)
    #: by time, on how many scopes it fires
    times: list[float] = field(default_factory=list)
    firing: list[int] = field(default_factory=list)
    _phases: Phases = field(init=False)
    _open: dict[int, Episode] = field(default_factory=dict)
    _last: float | None = None

    def __post_init__(self) -> None:
        self._phases = Phases.idle(len(self.names))

    def go_on(self, columns: Columns, raw: dict[str, NDArray[Any]], times: Sequence[float]) -> None:
        """Run over the times of ``columns``. ``raw`` has the same values, by name of the column."""
        when = self.rule.when.verdict(columns)
        clear = clear_of(self.rule, when, columns)
        # A scope that the rule does not look at is as one whose condition never holds.
        when = Verdict(when.holds & self.mask, when.fails | ~self.mask, None)
        any_holds: Bools = np.any(when.holds, axis=1)
        timing = Timing(self.rule.for_s, self.rule.clear_for_s)
        for place, now in enumerate(times):
            if any_holds[place] or not machine.is_idle(self._phases):
                self._step(timing, _at(when, place), _at(clear, place), raw, place, now)
            self._last = now
            self.times.append(now)
            self.firing.append(len(self._open))

    def _step(
        self,
        timing: Timing,
        when: Verdict,
        clear: Verdict,
        raw: dict[str, NDArray[Any]],
        place: int,
        now: float,
    ) -> None:
        passed_s = 0.0 if self._last is None else now - self._last
        moved = machine.step(
            self._phases, timing, when, clear, now=now, passed_s=passed_s, most_s=math.inf
        )
        self._phases = moved.phases
        for row in np.flatnonzero(moved.fired).tolist():
            values = {
                name: _plain(raw[name][place, row] if raw[name].ndim == 2 else raw[name][row])
                for name in self.rule.shown
                if name in raw
            }
            episode = Episode(row, float(moved.phases.since[row]), now, None, values)
            self._open[row] = episode
            self.episodes.append(episode)
        for row in np.flatnonzero(moved.cleared).tolist():
            self._open.pop(row).cleared_at = now


def _at(verdict: Verdict, place: int) -> Verdict:
    return Verdict(verdict.holds[place], verdict.fails[place], None)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


# --- Outcomes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobStart:
    """A job as it was first heard: when, and on which GPUs (rows of the inventory)."""

    job: int
    at: float
    gpus: NDArray[np.intp]


@dataclass(frozen=True)
class Held:
    """A restriction that an episode would have brought."""

    kind: RestrictionKind
    scope: str
    #: which GPUs are in its scope
    gpus: Bools


def outcome(
    run: Run,
    held: Sequence[Sequence[Held]],
    starts: Iterable[JobStart],
    end: float,
    fields: dict[str, Any],
) -> dict[str, Any]:
    """Return the outcome of a run, as JSON. ``held`` is aligned with its episodes."""
    rule = run.rule
    lengths = [(each.cleared_at or end) - each.fired_at for each in run.episodes]
    tells = sum(isinstance(e, OpenIncident) for e in rule.effects)
    tells += sum(len(e.channels) for e in rule.effects if isinstance(e, Notify))
    delayed = _delayed(run, held, starts, end)
    return {
        "firings": len(run.episodes),
        "scopes": len({each.row for each in run.episodes}),
        "firing_s": round(sum(lengths), 3),
        "open_at_end": sum(each.cleared_at is None for each in run.episodes),
        "restricted": _restricted(held, lengths),
        "delayed_jobs": len(delayed),
        "delayed_s": round(sum(delayed.values()), 3),
        "pages": tells * len(run.episodes),
        "episodes": [
            _shown(run, place, held[place], fields)
            for place in range(min(len(run.episodes), MOST_EPISODES))
        ],
        "series": _series(run),
    }


def _shown(run: Run, place: int, held: Sequence[Held], fields: dict[str, Any]) -> dict[str, Any]:
    episode, name = run.episodes[place], str(run.names[run.episodes[place].row])
    said = {"name": name, "site": name.split("/")[0], **episode.values}
    return {
        "scope": name,
        "since": episode.since,
        "fired_at": episode.fired_at,
        "cleared_at": episode.cleared_at,
        "summary": words.filled(run.rule.summary, said, fields),
        "restricts": [f"{each.kind} on {each.scope}" for each in held],
    }


def _restricted(held: Sequence[Sequence[Held]], lengths: Sequence[float]) -> dict[str, Any]:
    found: dict[str, dict[str, float]] = {}
    for restrictions, length in zip(held, lengths, strict=True):
        for each in restrictions:
            entry = found.setdefault(each.kind.value, {"count": 0, "scope_s": 0.0})
            entry["count"] += 1
            entry["scope_s"] = round(entry["scope_s"] + length, 3)
    return found


def _delayed(
    run: Run, held: Sequence[Sequence[Held]], starts: Iterable[JobStart], end: float
) -> dict[int, float]:
    """Return by job for how long it would have waited, s: until all that held it had cleared."""
    found: dict[int, float] = {}
    spans = [
        (each.fired_at, each.cleared_at or end, restriction.gpus)
        for each, restrictions in zip(run.episodes, held, strict=True)
        for restriction in restrictions
        if restriction.kind in DELAYING
    ]
    for start in starts:
        for fired_at, until, gpus in spans:
            if fired_at <= start.at < until and gpus[start.gpus].any():
                found[start.job] = max(found.get(start.job, 0.0), until - start.at)
    return found


def _series(run: Run) -> dict[str, list[float]]:
    """Return on how many scopes the rule fired over time, the most of each piece."""
    width = max(1, math.ceil(len(run.times) / _POINTS))
    return {
        "t": run.times[::width],
        "firing": [max(run.firing[i : i + width]) for i in range(0, len(run.firing), width)],
    }
