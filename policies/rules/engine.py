"""The rules of a fleet, moved on from one moment to the next. Pure: tables, states and clock in.

All rules on a kind of scope share what they calculate, and whatever is done for each scope is an
array operation. Python looks at single scopes only where a rule fires on one, or stops.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policies.firings import Firing
from policies.headroom.columns import FIELDS, Table
from policies.rules import arrays, machine, words
from policies.rules.arrays import Bools, Codes, Columns, Status
from policies.rules.cel import Quantity, Verdict, columns_of
from policies.rules.document import OpenIncident, Rule, Select
from policies.rules.machine import Phase, Phases, Timing
from policies.rules.modes import Mode
from policies.scopes import Scope, ScopeKind

__all__ = [
    "MOST_GAP_S",
    "Changes",
    "Evaluated",
    "Fault",
    "LiveRule",
    "Mode",
    "RuleState",
    "Scopes",
    "share_of",
    "step",
]

#: Evaluations further apart than this leave the time between them out of account, s.
MOST_GAP_S = 30.0
#: What is kept of a rule's faults: the first few scopes of each.
MOST_FAULTY_NAMES = 5

Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class LiveRule:
    """A version of a rule that is evaluated."""

    version_id: int
    version: int
    rule: Rule
    mode: Mode
    #: of a canary, the share of racks that it counts on; of an active version, that it leaves to
    #: the canary beside it
    share: float = 0.0

    @cached_property
    def timing(self) -> Timing:
        return Timing(self.rule.for_s, self.rule.clear_for_s)

    @property
    def counts(self) -> bool:
        return self.mode is not Mode.SHADOW


@dataclass(frozen=True, eq=False)
class Scopes:
    """All scopes of a kind as rules see them."""

    table: Table
    #: of power domains, zones and links, what kind of one each is; else empty texts
    kinds: Texts
    #: what a canary's share is drawn by: the rack that a scope is in, or the scope itself
    groups: Texts
    _labelled: dict[tuple[tuple[str, str], ...], Bools] = field(default_factory=dict, repr=False)

    @cached_property
    def columns(self) -> Columns:
        """The columns that conditions are evaluated over; all rules share them."""
        return columns_of(self.table)

    def __len__(self) -> int:
        return len(self.table.names)

    def labelled(self, wanted: tuple[tuple[str, str], ...]) -> Bools:
        """Say which scopes carry all of these labels. Looked up once for all rules."""
        if wanted not in self._labelled:
            flags = [all(labels.get(k) == v for k, v in wanted) for labels in self.table.labels]
            self._labelled[wanted] = np.array(flags, dtype=bool)
        return self._labelled[wanted]


@dataclass(frozen=True, eq=False)
class RuleState:
    """The state of one version on its scopes. Rows are those of ``names``."""

    names: Texts
    phases: Phases
    #: the time of the last step; Unix s
    at: float

    @classmethod
    def new(cls) -> RuleState:
        """Return the state of a version that was never evaluated."""
        return cls(np.zeros(0, object), Phases.idle(0), float("-inf"))

    def busy(self) -> Iterator[tuple[str, Phase, float, float, float]]:
        """Yield name, phase and times of each scope on which something is under way."""
        phases = self.phases
        for row in np.flatnonzero(phases.phase).tolist():
            yield (
                str(self.names[row]),
                Phase(int(phases.phase[row])),
                float(phases.since[row]),
                float(phases.fired_at[row]),
                float(phases.clear_since[row]),
            )


@dataclass(frozen=True)
class Fault:
    """Where a rule could not be evaluated, though its readings are there."""

    version_id: int
    status: Status
    count: int
    names: tuple[str, ...]


@dataclass
class Changes:
    """The changes of a step. Those of ``shadow`` versions do not count."""

    fired: list[Firing] = field(default_factory=list)
    cleared: list[Firing] = field(default_factory=list)
    shadow_fired: list[Firing] = field(default_factory=list)
    shadow_cleared: list[Firing] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    #: every version as it stands now
    evaluated: dict[int, Evaluated] = field(default_factory=dict)

    @cached_property
    def held(self) -> list[Firing]:
        """All firings that count now, new ones included."""
        counting = [one for one in self.evaluated.values() if one.live.counts]
        return [one.firing(name) for one in counting for name in one.fires_on]


def step(
    rules: Sequence[LiveRule],
    tables: Mapping[ScopeKind, Scopes],
    state: Mapping[int, RuleState],
    now: float,
    *,
    most_gap_s: float = MOST_GAP_S,
) -> tuple[dict[int, RuleState], Changes]:
    """Move ``rules`` on to ``now``, and return their states and the changes.

    A rule on a kind of scope that ``tables`` does not have stays as it is.
    """
    changes, after = Changes(), {}
    for live in rules:
        before = state.get(live.version_id) or RuleState.new()
        scopes = tables.get(live.rule.scope)
        if scopes is not None:
            one = Evaluated(live, scopes, now, most_gap_s)
            before = one.advance(before, changes)
            changes.evaluated[live.version_id] = one
        after[live.version_id] = before
    _settle(changes)
    return after, changes


def _settle(changes: Changes) -> None:
    """Leave out firings that have only gone from one version of a rule to another."""
    if not changes.cleared:
        return
    cleared = {firing.key for firing in changes.cleared}
    still = {firing.key for firing in changes.held}
    changes.cleared = [f for f in changes.cleared if f.key not in still]
    changes.fired = [f for f in changes.fired if f.key not in cleared]


class Evaluated:
    """One version at one moment."""

    def __init__(self, live: LiveRule, scopes: Scopes, now: float, most_gap_s: float) -> None:
        self.live = live
        self.scopes = scopes
        self.state = RuleState.new()
        self._now = now
        self._most_gap_s = most_gap_s

    def advance(self, before: RuleState, changes: Changes) -> RuleState:
        before, gone = self._aligned(before)
        rule, columns = self.live.rule, self.scopes.columns
        when = rule.when.verdict(columns)
        clear = clear_of(rule, when, columns)
        mask = self._mask()
        self._note_faults(changes, mask, when, clear)
        if machine.is_idle(before.phases) and not (when.holds & mask).any():
            self.state = RuleState(self.scopes.table.names, before.phases, self._now)
        else:
            self._move(before, mask, when, clear, changes)
        self._clear_gone(gone, changes)
        return self.state

    def _move(
        self, before: RuleState, mask: Bools, when: Verdict, clear: Verdict, changes: Changes
    ) -> None:
        passed_s = self._now - before.at if np.isfinite(before.at) else 0.0
        # Two evaluations of one moment, or a clock that was set back, move no time on.
        moved = machine.step(
            before.phases,
            self.live.timing,
            when,
            clear,
            now=self._now,
            passed_s=max(passed_s, 0.0),
            most_s=self._most_gap_s,
        )
        phases = moved.phases
        left = ~mask & (phases.phase != Phase.IDLE)
        dropped = before.phases.fires & left
        if left.any():
            phase = np.where(left, np.int8(Phase.IDLE), phases.phase)
            phases = Phases(phase, phases.since, phases.fired_at, phases.clear_since)
        self.state = RuleState(self.scopes.table.names, phases, self._now)
        shadow = not self.live.counts
        fired = changes.shadow_fired if shadow else changes.fired
        cleared = changes.shadow_cleared if shadow else changes.cleared
        fired += [self._firing_at(row) for row in np.flatnonzero(moved.fired & mask).tolist()]
        ended = (moved.cleared | dropped) & before.phases.fires
        cleared += [self._ended(row, phases) for row in np.flatnonzero(ended).tolist()]

    def _aligned(self, before: RuleState) -> tuple[RuleState, list[Firing]]:
        """Return the state with the rows of the table, and the firings on scopes that are gone."""
        names = self.scopes.table.names
        if before.names is names:
            return before, []
        if len(before.names) == len(names) and (before.names == names).all():
            return RuleState(names, before.phases, before.at), []
        row_of = self.scopes.table.index_by_name
        was = {name: row for row, name in enumerate(before.names.tolist())}
        rows = np.full(len(names), -1, dtype=np.intp)
        for row in np.flatnonzero(before.phases.phase).tolist():
            if (place := row_of.get(str(before.names[row]))) is not None:
                rows[place] = row
        gone = [
            self._firing_of(name, before.phases, was[name], {})
            for name in before.names[before.phases.fires].tolist()
            if name not in row_of
        ]
        return RuleState(names, before.phases.taken(rows), before.at), gone

    def _clear_gone(self, gone: list[Firing], changes: Changes) -> None:
        (changes.cleared if self.live.counts else changes.shadow_cleared).extend(gone)

    def _mask(self) -> Bools:
        live, table = self.live, self.scopes.table
        mask = selected(live.rule.select, self.scopes)
        if live.mode is Mode.ACTIVE and not live.share:
            return mask
        if live.mode is Mode.SHADOW:
            return mask
        chosen = _chosen(live.rule.name, live.share, self.scopes.groups, len(table.names))
        return mask & (chosen if live.mode is Mode.CANARY else ~chosen)

    def _note_faults(self, changes: Changes, mask: Bools, when: Verdict, clear: Verdict) -> None:
        found = [codes for codes in (when.errors(), clear.errors()) if codes is not None]
        both = when.holds & clear.holds
        if both.any():
            found.append(np.where(both, np.uint8(Status.CONTRADICTION), np.uint8(0)))
        if found:
            worst = np.maximum.reduce(found)
            changes.faults += self._faults(np.where(mask, worst, np.uint8(0)))

    def _faults(self, codes: Codes) -> Iterator[Fault]:
        for code in np.unique(codes[codes > 0]).tolist():
            rows = np.flatnonzero(codes == code)
            names = self.scopes.table.names[rows[:MOST_FAULTY_NAMES]].tolist()
            yield Fault(self.live.version_id, Status(code), len(rows), tuple(names))

    # --- Single scopes ---------------------------------------------------------------------------

    @property
    def fires_on(self) -> list[str]:
        """The names of the scopes that the rule fires on."""
        found: list[str] = self.state.names[self.state.phases.fires].tolist()
        return found

    def firing(self, name: str) -> Firing:
        """Return the firing on one scope, with its numbers as they are now."""
        return self._firing_at(self.scopes.table.index_by_name[name])

    def value(self, quantity: Quantity, name: str) -> float:
        """Return the value of an effect on one scope; NaN where it is unknown."""
        row = self.scopes.table.index_by_name[name]
        return float(quantity.values(self.scopes.columns)[row])

    def _firing_at(self, row: int) -> Firing:
        values = self._values(row)
        name = str(self.scopes.table.names[row])
        return self._firing_of(name, self.state.phases, row, values)

    def _ended(self, row: int, phases: Phases) -> Firing:
        return self._firing_of(str(self.scopes.table.names[row]), phases, row, self._values(row))

    def _firing_of(self, name: str, phases: Phases, row: int, values: dict[str, Any]) -> Firing:
        rule = self.live.rule
        fields = FIELDS[rule.scope]
        said = {"name": name, **values}
        labels = {key: words.filled(text, said, fields) for key, text in rule.annotations.items()}
        if site := values.get("site"):
            labels["site"] = str(site)
        return Firing(
            rule=rule.name,
            version=self.live.version,
            scope=Scope(rule.scope, name),
            severity=rule.severity,
            since=_time(float(phases.since[row])),
            at=_time(float(phases.fired_at[row])),
            summary=words.filled(rule.summary, said, fields),
            values={key: value for key, value in values.items() if key != "site"},
            labels=labels,
            playbook=next((e.playbook for e in rule.effects if isinstance(e, OpenIncident)), ""),
        )

    def _values(self, row: int) -> dict[str, Any]:
        columns = self.scopes.table.columns
        wanted = [key for key in [*self.live.rule.shown, "site"] if key in columns]
        values = {key: columns[key][row] for key in wanted}
        return {k: v.item() if isinstance(v, np.generic) else v for k, v in values.items()}


def clear_of(rule: Rule, when: Verdict, columns: Columns) -> Verdict:
    if rule.clear is None:
        return Verdict(when.fails, when.holds, when.status)
    return rule.clear.verdict(columns)


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def selected(select: Select, scopes: Scopes) -> Bools:
    """Say which scopes a rule looks at."""
    mask = np.ones(len(scopes), dtype=bool)
    if select.sites:
        mask &= _is_one_of(scopes.table.columns["site"], select.sites)
    if select.kinds:
        mask &= _is_one_of(scopes.kinds, select.kinds)
    if select.labels:
        mask &= scopes.labelled(tuple(sorted(select.labels.items())))
    return mask


def _is_one_of(values: NDArray[Any], wanted: frozenset[str]) -> Bools:
    texts = arrays.texts_of(values)
    among = np.fromiter((text in wanted for text in texts.different), bool, len(texts.different))
    found: Bools = among[texts.places]
    return found


@lru_cache(maxsize=200_000)
def share_of(rule: str, group: str) -> float:
    """Hash a rack with a rule to 0 to 1: canaries count where it is below their share."""
    digest = hashlib.blake2b(f"{rule}\0{group}".encode(), digest_size=8).digest()
    return float(int.from_bytes(digest, "big") / 2**64)


def _chosen(rule: str, share: float, groups: Texts, count: int) -> Bools:
    return np.fromiter((share_of(rule, group) < share for group in groups.tolist()), bool, count)
