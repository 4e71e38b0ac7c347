"""Replays as people ask for them: recorded telemetry in, what would have happened out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
from django.utils import timezone
from numpy.typing import NDArray

from fleet import snapshot
from fleet.snapshot import FleetArrays
from policies.headroom.columns import FIELDS
from policies.headroom.evaluate import Headroom, evaluate
from policies.restrictions.kinds import gpus_in
from policies.rules import document
from policies.rules.arrays import Columns
from policies.rules.document import Rule
from policies.rules.engine import selected
from policies.rules.models import RuleReplay, RuleVersion
from policies.rules.places import related, scopes_of
from policies.rules.recorded import History, Readings, not_recorded
from policies.rules.replay import DELAYING, Held, JobStart, Run, outcome
from policies.scopes import Scope, ScopeKind, UnknownScope
from telemetry import frame, samples
from telemetry.samples import Table
from telemetry.store import reading as store
from telemetry.store.columns import US, Window
from telemetry.timeline import reading
from telemetry.timeline.tiers import Tier, parts

log = structlog.get_logger(__name__)

Floats = NDArray[np.float64]

#: Up to this length readings themselves are replayed, longer spans by minute and then by hour, s.
_RAW_UP_TO_S = 2 * 86_400.0
_MINUTES_UP_TO_S = 14 * 86_400.0
RAW_STEP_S = 10.0
#: A reading stands for so long, s, or for two steps where those are longer.
_FRESH_S = 30.0
#: So many values of one field are in memory at a time.
_CELLS = 6_000_000

_GPU_FIELDS = ("power_w", "temp_c", "temp_mem_c", "temp_limit_c", "throttle")
_LINK_FIELDS = ("tx_bytes_per_s", "rx_bytes_per_s", "retransmits_per_s", "latency_s")


def run(replay_id: int) -> None:
    """Run what somebody asked for, and keep what came of it. Done once, whoever asks again."""
    claimed = RuleReplay.objects.filter(pk=replay_id, state=RuleReplay.States.WAITING)
    if not claimed.update(state=RuleReplay.States.RUNNING):
        return
    row = RuleReplay.objects.select_related("version__rule").get(pk=replay_id)
    try:
        row.result = result(row.version, row.start_at.timestamp(), row.end_at.timestamp())
        row.state = RuleReplay.States.DONE
    except Exception as error:
        log.exception("replay_failed", replay=replay_id)
        row.state = RuleReplay.States.FAILED
        row.error = f"{type(error).__name__}: {error}"[:500]
    row.finished_at = timezone.now()
    row.save(update_fields=["state", "result", "error", "finished_at"])


def result(version: RuleVersion, start: float, end: float) -> dict[str, Any]:
    """Return what ``version``, and the active one beside it, would have done."""
    began = time.perf_counter()
    active = version.rule.versions.filter(state="active").exclude(pk=version.pk).first()
    texts = {"version": version.text} | ({"active": active.text} if active else {})
    rules = {name: document.read(text) for name, text in texts.items()}
    found = outcomes(rules, start, end)
    found["active_number"] = active.number if active else None
    found["took_s"] = round(time.perf_counter() - began, 3)
    return found


def outcomes(rules: Mapping[str, Rule], start: float, end: float) -> dict[str, Any]:
    """Return the outcome of each rule, by its name here, over a span; Unix s."""
    fleet = snapshot.fresh()
    tier, step_s = _tier(end - start)
    now = evaluate(fleet, _nothing_heard(), now=end)
    runs = {name: _begin(rule, now) for name, rule in rules.items()}
    kinds = {rule.scope for rule in rules.values()}
    wants_jobs = any(
        each.kind in DELAYING for rule in rules.values() for _, each in rule.restricts()
    )
    starts = _Starts()
    fields = frozenset[str]().union(*(rule.fields | set(rule.shown) for rule in rules.values()))
    for window in _windows(fleet, kinds, start, end, step_s):
        readings = _readings(fleet, kinds, window, tier, step_s, fields=fields, jobs=wants_jobs)
        if wants_jobs:
            starts.look(readings)
        history = History(now, readings)
        for each in runs.values():
            _go_on(each, history, readings)
    found: dict[str, Any] = {"step_s": step_s, "tier": tier.value}
    for name, each in runs.items():
        kind = each.rule.scope
        held = [_held(each, episode.row, fleet) for episode in each.episodes]
        found[name] = outcome(each, held, starts.found, end, dict(FIELDS[kind]))
        found[name]["not_recorded"] = not_recorded(kind, each.rule.fields)
    return found


def _tier(length_s: float) -> tuple[Tier, float]:
    if length_s <= _RAW_UP_TO_S:
        return Tier.RAW, RAW_STEP_S
    return (Tier.MINUTE, 60.0) if length_s <= _MINUTES_UP_TO_S else (Tier.HOUR, 3_600.0)


def _nothing_heard() -> frame.LiveFrame:
    return frame.LiveFrame("", {kind: frame.never_seen(kind, 0) for kind in frame.KINDS})


def _begin(rule: Rule, now: Headroom) -> Run:
    scopes = scopes_of(now, [rule.scope])[rule.scope]
    return Run(rule, selected(rule.select, scopes), scopes.table.names)


def _go_on(each: Run, history: History, readings: Readings) -> None:
    kind = each.rule.scope
    raw = history.columns(kind, each.rule.fields | set(each.rule.shown))
    labels = history.labels(kind) if "labels" in each.rule.fields else ()
    columns = Columns(raw, labels, history.shape(kind))
    each.go_on(columns, raw, readings.times.tolist())


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
        self._known: set[int] = set()
        self._is_first = True

    def look(self, readings: Readings) -> None:
        jobs = np.nan_to_num(readings.gpu["job_id"]).astype(np.int64)
        if self._is_first and len(jobs):  # what runs at the beginning has not started then
            self._known |= set(np.unique(jobs[0]).tolist())
            self._is_first = False
        self._known.add(0)
        ids, firsts = np.unique(jobs, return_index=True)
        for job, first in zip(ids.tolist(), firsts.tolist(), strict=True):
            if job not in self._known:
                place = first // jobs.shape[1]
                gpus = np.flatnonzero(jobs[place] == job)
                self.found.append(JobStart(job, float(readings.times[place]), gpus))
                self._known.add(job)


# --- Readings ------------------------------------------------------------------------------------


def _windows(
    fleet: FleetArrays, kinds: set[ScopeKind], start: float, end: float, step_s: float
) -> Iterator[Window]:
    """Divide the span so that no piece is too large for memory."""
    things = len(fleet.links) if kinds == {ScopeKind.LINK} else len(fleet.gpus)
    steps = max(60, _CELLS // max(1, things))
    at = start
    while at < end:
        upto = min(end, at + steps * step_s)
        yield Window(at, upto)
        at = upto


def _readings(
    fleet: FleetArrays,
    kinds: set[ScopeKind],
    window: Window,
    tier: Tier,
    step_s: float,
    *,
    fields: frozenset[str],
    jobs: bool,
) -> Readings:
    """Return what ``fields`` of ``kinds`` need, on a grid."""
    times = np.arange(window.start, window.end, step_s) + step_s
    grid = _Grid(window, tier, step_s, len(times))
    is_placed = bool(kinds - {ScopeKind.LINK}) or jobs
    wanted = gpu_fields(fields) | ({"job_id"} if jobs else set())
    gpu, gpu_age_s = grid.of(samples.GPU, fleet.gpus.ids, wanted if is_placed else set())
    needs_power = is_placed and "power_w" in wanted
    host, _ = grid.of(samples.HOST, fleet.nodes.ids, {"power_w"} if needs_power else set())
    meter_fields = {"power_w"} if needs_power else set()
    meter_fields |= {"temp_c"} if "inlet_c" in fields else set()
    meter, _ = grid.of(samples.METER, fleet.meters.ids, meter_fields)
    wanted = set(_LINK_FIELDS) if ScopeKind.LINK in kinds else set()
    link, link_age_s = grid.of(samples.LINK, fleet.links.ids, wanted)
    nothing = np.full((len(times), len(fleet.gpus)), np.nan)
    return Readings(
        times=times,
        step_s=step_s,
        fresh_s=_fresh_s(step_s),
        gpu={name: gpu.get(name, nothing) for name in (*_GPU_FIELDS, "job_id")},
        gpu_age_s=gpu_age_s,
        host_power_w=host.get("power_w", np.full((len(times), len(fleet.nodes)), np.nan)),
        meter_power_w=meter.get("power_w", np.full((len(times), len(fleet.meters)), np.nan)),
        meter_temp_c=meter.get("temp_c", np.full((len(times), len(fleet.meters)), np.nan)),
        link=link,
        link_age_s=link_age_s,
    )


def _fresh_s(step_s: float) -> float:
    return max(_FRESH_S, 2 * step_s)


@dataclass(frozen=True)
class _Grid:
    """Times at a fixed distance: a reading belongs to the step in which it was taken."""

    window: Window
    tier: Tier
    step_s: float
    steps: int

    @property
    def _lead(self) -> int:
        """Steps before the window whose readings may still be fresh in it."""
        return round(_fresh_s(self.step_s) / self.step_s)

    def of(
        self, table: Table, ids: NDArray[np.int64], names: set[str]
    ) -> tuple[dict[str, Floats], Floats]:
        """Return fields as times by things, and the ages of the newest readings."""
        if not names or not len(ids):
            return {}, np.full((self.steps, len(ids)), np.nan)
        steps = self.steps + self._lead
        whole = {name: np.full((steps, len(ids)), np.nan, np.float32) for name in names}
        seen = np.full((steps, len(ids)), -1, dtype=np.int32)
        place = np.full(int(ids.max()) + 2, -1, dtype=np.int64)
        place[ids] = np.arange(len(ids))
        for rows in self._rows(table, sorted(names)):
            step = np.floor((rows["t"] - self.window.start) / self.step_s).astype(np.int32)
            step += self._lead
            column = place[np.minimum(rows["id"], len(place) - 1)]
            inside = (step >= 0) & (step < steps) & (column >= 0)
            if not inside.all():
                step, column = step[inside], column[inside]
                rows = {name: values[inside] for name, values in rows.items()}
            # Rows are in order of time within a thing: of several in one step the last stays.
            seen[step, column] = step
            for name in names:
                whole[name][step, column] = rows[name]
        return self._held(whole, seen)

    def _held(
        self, whole: dict[str, NDArray[np.float32]], seen: NDArray[np.int32]
    ) -> tuple[dict[str, Floats], Floats]:
        """Have each reading stand for as long as it is fresh."""
        last = np.maximum.accumulate(seen, axis=0)
        age = np.arange(len(seen), dtype=np.int32)[:, None] - last
        silent = ~((last >= 0) & (age < self._lead))
        found = {}
        for name, values in whole.items():
            for back in range(1, self._lead):
                older = (age[back:] == back) & ~silent[back:]
                np.copyto(values[back:], values[:-back], where=older)
            found[name] = values[self._lead :].astype(np.float64)
        age_s = np.where(last >= 0, age * self.step_s, np.nan)[self._lead :]
        return found, age_s

    def _rows(self, table: Table, names: list[str]) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield the rows of each tier that answers for a part of the span: t, id and fields."""
        now = time.time()
        start = self.window.start - self._lead * self.step_s
        for part in parts(self.tier, start, self.window.end, reading.known(table, now)):
            span = Window(part.start, part.end)
            if part.tier is Tier.RAW:
                rows = store.read(table, names, span)
                fields = {name: reading.as_float(rows[name]) if rows[name].dtype.kind == "i"
                          else rows[name] for name in names}  # fmt: skip
                yield {"t": rows["ts"] / US, "id": rows[table.key], **fields}
                continue
            found = reading.fetch(table, self._ids(table), names, span, part.tier, now)
            fields = {name: found.points.fields[name].value for name in names}
            yield {"t": found.points.t, "id": found.ids, **fields}

    @staticmethod
    def _ids(table: Table) -> list[int]:
        fleet = snapshot.current()
        things = {
            samples.GPU.name: fleet.gpus.ids,
            samples.HOST.name: fleet.nodes.ids,
            samples.METER.name: fleet.meters.ids,
            samples.LINK.name: fleet.links.ids,
        }
        ids: list[int] = things[table.name].tolist()
        return ids


def gpu_fields(fields: frozenset[str]) -> set[str]:
    """Return what has to be read of GPUs for these columns. Silence shows in all of them."""
    found = set()
    if any(f.startswith(("power_", "cooling_", "failover_")) for f in fields):
        found.add("power_w")
    if fields & {"thermal_margin_c", "thermal_mem_margin_c", "shutdown_margin_c", "hottest_c"}:
        found |= {"temp_c", "temp_limit_c"}
    if "thermal_mem_margin_c" in fields:
        found.add("temp_mem_c")
    if fields & {"throttling", "throttling_share"}:
        found.add("throttle")
    if fields & {"stale", "age_s", "stale_nodes", "stale_share"} or not found:
        found |= {"power_w", "temp_c"}
    return found
