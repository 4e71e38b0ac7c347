"""Replays as people ask for them: recorded telemetry in, hypothetical firings out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import structlog
from django.conf import settings
from django.utils import timezone

from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies import past_limits
from policies.headroom import live
from policies.headroom.columns import FIELDS, Floats
from policies.headroom.evaluate import Headroom, evaluate
from policies.headroom.past import loads_of
from policies.limiting import Term, limits_over
from policies.restrictions.kinds import gpus_in
from policies.rules import document, under_way
from policies.rules.arrays import Columns
from policies.rules.document import Rule
from policies.rules.engine import selected
from policies.rules.models import RuleReplay, RuleVersion
from policies.rules.places import related, scopes_of
from policies.rules.recorded import PastOverTime, not_recorded, without_reservations
from policies.rules.replay import DELAYING, Held, JobStart, Run, outcome
from policies.scopes import Scope, UnknownScope
from telemetry.live_frame import AskedFrame
from telemetry.store.columns import Window
from telemetry.timeline.frames import Recording
from telemetry.timeline.tiers import Tier

#: Hears how much of a span is replayed, s.
Told: TypeAlias = Callable[[float], None]

log = structlog.get_logger(__name__)

#: Up to this length readings themselves are replayed, longer spans by minute and then by hour, s.
_RAW_UP_TO_S = 2 * 86_400.0
_MINUTES_UP_TO_S = 14 * 86_400.0
RAW_STEP_S = 10.0
#: A reading is fresh for so many steps where those are longer than what is fresh live.
_FRESH_STEPS = 2
#: What was read within this time before the span is known at its beginning, s.
_BEFORE_S = 3_600.0
#: So many values of one field are in memory at a time.
_CELLS = 500_000


def run(replay_id: int) -> None:
    """Run a replay that somebody asked for, and save its result. Done once, whoever asks again."""
    with under_way.hold(replay_id) as is_ours:
        waits = RuleReplay.objects.filter(pk=replay_id, state=RuleReplay.States.WAITING)
        if is_ours and waits.update(state=RuleReplay.States.RUNNING):
            _run(replay_id)


def _run(replay_id: int) -> None:
    row = RuleReplay.objects.select_related("version").get(pk=replay_id)
    try:
        span = row.start_at.timestamp(), row.end_at.timestamp()
        row.result = result(row.version, *span, told=partial(under_way.note, replay_id))
        row.state = RuleReplay.States.DONE
    except Exception as error:
        log.exception("replay_failed", replay=replay_id)
        row.state = RuleReplay.States.FAILED
        row.error = f"{type(error).__name__}: {error}"[:500]
    row.finished_at = timezone.now()
    row.save(update_fields=["state", "result", "error", "finished_at"])


def result(
    version: RuleVersion, start: float, end: float, *, told: Told | None = None
) -> dict[str, Any]:
    """Return the outcomes of ``version``, and of the active one beside it; see ``outcomes``."""
    began = time.perf_counter()
    active = RuleVersion.objects.active().filter(name=version.name).exclude(pk=version.pk).first()
    texts = {"version": version.text} | ({"active": active.text} if active else {})
    rules = {name: document.read(text) for name, text in texts.items()}
    found = outcomes(rules, start, end, told=told)
    found["active_number"] = active.number if active else None
    found["took_s"] = round(time.perf_counter() - began, 3)
    return found


def outcomes(
    rules: Mapping[str, Rule], start: float, end: float, *, told: Told | None = None
) -> dict[str, Any]:
    """Return the outcome of each rule, by its name here, over a span; Unix s.

    ``told`` is called after each piece of the span, with how much of it is done, s.
    """
    fleet = snapshot.fresh()
    tier, step_s = _tier(end - start)
    runs, wanted = _begin(rules, fleet, end)
    starts = _Starts() if _delays(rules) else None
    if starts:
        wanted.setdefault("gpu", set()).add("job_id")
    recorded = _Recorded.of(fleet, wanted, start, end, tier=tier, step_s=step_s)
    for window in _windows(fleet, wanted, start, end, step_s):
        times, headroom = recorded.next(window)
        is_before = window.end <= start
        if starts:
            starts.look(headroom, times, is_before=is_before)
        if not is_before:
            for each in runs.values():
                _go_on(each, headroom, times, step_s)
            if told:
                told(window.end - start)
    found: dict[str, Any] = {"step_s": step_s, "tier": tier.value}
    for name, each in runs.items():
        kind, fields = each.rule.scope, each.rule.fields
        held = [_held(each, episode.row, fleet) for episode in each.episodes]
        found[name] = outcome(each, held, starts.found if starts else (), end, dict(FIELDS[kind]))
        found[name]["not_recorded"] = not_recorded(fields, step_s)
        found[name]["without_reservations"] = without_reservations(fields)
    return found


def _tier(length_s: float) -> tuple[Tier, float]:
    if length_s <= _RAW_UP_TO_S:
        return Tier.RAW, RAW_STEP_S
    return (Tier.MINUTE, 60.0) if length_s <= _MINUTES_UP_TO_S else (Tier.HOUR, 3_600.0)


def _delays(rules: Mapping[str, Rule]) -> bool:
    return any(e.kind in DELAYING for rule in rules.values() for _, e in rule.restricts())


def _begin(
    rules: Mapping[str, Rule], fleet: FleetArrays, at: float
) -> tuple[dict[str, Run], dict[str, set[str]]]:
    """Return the runs of ``rules``, and which fields of each kind of thing they take to evaluate.

    That is found by evaluating them where nothing was ever heard.
    """
    frame = AskedFrame()
    nothing = evaluate(fleet, frame, now=at, past=live.lasting(fleet))
    runs = {}
    for name, rule in rules.items():
        scopes = scopes_of(nothing, [rule.scope])[rule.scope]
        runs[name] = Run(rule, selected(rule.select, scopes), scopes.table.names)
        for column in _shown(rule) & scopes.table.columns.keys():
            scopes.table.columns[column]
    if frame.asked.keys() - {"link", "storage"}:
        loads_of(nothing)  # trends are made of them
    return runs, frame.asked


def _shown(rule: Rule) -> frozenset[str]:
    """Return the columns that a rule looks at or shows in its episodes."""
    return rule.fields | set(rule.shown) | {"name", "site"}


def _go_on(each: Run, headroom: Headroom, times: Floats, step_s: float) -> None:
    table = headroom.table(each.rule.scope)
    labels = table.labels if "labels" in each.rule.fields else ()
    names = _shown(each.rule) & table.columns.keys()
    raw = {name: table.columns[name] for name in names - set(not_recorded(names, step_s))}
    columns = Columns(raw, labels, (len(times), len(table)))
    each.go_on(columns, raw, times.tolist())


def _held(each: Run, row: int, fleet: FleetArrays) -> list[Held]:
    scope = Scope(each.rule.scope, str(each.names[row]))
    found = []
    for _, effect in each.rule.restricts():
        for place in related(fleet, scope, effect.scope):
            try:
                gpus = gpus_in(fleet, place)
            except UnknownScope:  # of links and storage no GPU is a part
                gpus = np.zeros(len(fleet.gpus), dtype=bool)
            found.append(Held(effect.kind, str(place), gpus))
    return found


# --- Jobs ----------------------------------------------------------------------------------------


class _Starts:
    """The jobs that were first heard within the span."""

    def __init__(self) -> None:
        self.found: list[JobStart] = []
        self._known = {0}

    def look(self, headroom: Headroom, times: Floats, *, is_before: bool) -> None:
        """Take in the jobs that run at ``times``. Those from before the span do not count."""
        gpus = headroom.fleet.gpus
        jobs = headroom.frame.fields("gpu", gpus.ids, "job_id")["job_id"]
        ids, firsts = np.unique(jobs, return_index=True)
        for job, first in zip(ids.tolist(), firsts.tolist(), strict=True):
            if job in self._known:
                continue
            self._known.add(job)
            place = first // len(gpus)
            if not is_before:
                here = np.flatnonzero(jobs[place] == job)
                self.found.append(JobStart(job, float(times[place]), here))


# --- Headroom as it was --------------------------------------------------------------------------


def _windows(
    fleet: FleetArrays, wanted: Mapping[str, set[str]], start: float, end: float, step_s: float
) -> Iterator[Window]:
    """Divide the span into pieces that fit into memory, after a piece for the time before it."""
    things = len(fleet.gpus) if "gpu" in wanted else len(fleet.links)
    steps = max(60, _CELLS // max(1, things))
    before_s = max(_BEFORE_S, _FRESH_STEPS * step_s)
    yield Window(start - before_s, start)
    at = start
    while at < end:
        upto = min(end, at + steps * step_s)
        yield Window(at, upto)
        at = upto


@dataclass
class _Recorded:
    """Headroom from recorded frames, a piece at a time."""

    fleet: FleetArrays
    recording: Recording
    terms: list[Term]
    past: PastOverTime
    stale_after_s: float
    has_loads: bool
    has_links: bool

    @staticmethod
    def of(
        fleet: FleetArrays,
        wanted: Mapping[str, set[str]],
        start: float,
        end: float,
        *,
        tier: Tier,
        step_s: float,
    ) -> _Recorded:
        lasting = live.lasting(fleet)
        return _Recorded(
            fleet,
            Recording(lasting.frame_ids(fleet), wanted, tier=tier, step_s=step_s),
            past_limits.terms(start, end),
            PastOverTime(fleet, lasting),
            stale_after_s=max(settings.STALE_AFTER_S, _FRESH_STEPS * step_s),
            has_loads="gpu" in wanted,
            has_links="link" in wanted,
        )

    def next(self, window: Window) -> tuple[Floats, Headroom]:
        """Return the steps of ``window``, Unix s, and the headroom at each of them."""
        times, frame = self.recording.next(window)
        measured = evaluate(
            self.fleet,
            frame,
            now=times[:, None],
            restrictions=limits_over(self.terms, self.fleet, times),
            past=self.past.lasting,
            stale_after_s=self.stale_after_s,
        )
        past = self.past.take(measured, times, loads=self.has_loads, links=self.has_links)
        return times, measured.with_past(past)
