"""Rules: the cost of one evaluation, and a replay of a day."""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import gc
import statistics
import time

import numpy as np

from policies.headroom.columns import FIELDS, Table
from policies.rules import document
from policies.rules.document import Rule
from policies.rules.engine import LiveRule, Mode, RuleState, Scopes, step
from policies.scopes import ScopeKind

_RULE = """
name: bench-{number}
scope: rack
severity: warning
summary: "Rack {{name}} draws {{power_load_w}}"
when: {when}
for: {seconds}s
clear: {clear}
clear_for: 60s
effects:
  - restrict: {{kind: no_new_launches}}
"""


def make_rules(count: int) -> list[Rule]:
    """Return rules on racks that differ: thresholds, fields, sites, and how they are combined."""
    rng = np.random.default_rng(5)
    rules = []
    for number in range(count):
        high = 0.9 + 0.0001 * (number % 1000)
        when, clear = [
            (f"power_use > {high:.4f} && !stale", f"power_use < {high - 0.1:.4f} && !stale"),
            (
                f"thermal_margin_c < {5 + high:.4f} || throttling_share > 0.5",
                f"thermal_margin_c > {9 + high:.4f} && throttling_share < 0.4",
            ),
            (
                f"power_exhausted_in_s < {600 * high:.1f} && power_confidence > 0.5",
                f"power_exhausted_in_s > {900 * high:.1f}",
            ),
            (
                f"site in ['site-{number % 20}', 'site-{(number + 7) % 20}']"
                f" && hottest_c > 8{number % 10}.0",
                f"hottest_c < 7{number % 10}.0",
            ),
            (
                f"power_load_w / power_budget_w > {high:.4f} && gpus > {number % 8}.0",
                f"power_load_w / power_budget_w < {high - 0.2:.4f}",
            ),
        ][int(rng.integers(5))]
        seconds = 30 * (number % 2)
        text = _RULE.format(number=number, when=when, clear=clear, seconds=seconds)
        rules.append(document.read(text))
    return rules


def make_scopes(count: int, seed: int) -> Scopes:
    """Return racks whose numbers are those of a fleet at work: a few are in trouble."""
    rng = np.random.default_rng(seed)
    names = np.array([f"site-{i % 20}/r{i:04}" for i in range(count)], dtype=object)
    columns: dict[str, np.ndarray] = {}
    for name, field in FIELDS[ScopeKind.RACK].items():
        if field.type == "double":
            columns[name] = rng.normal(50.0, 10.0, count)
            columns[name][rng.random(count) < 0.01] = np.nan
        elif field.type == "bool":
            columns[name] = rng.random(count) < 0.02
        else:
            columns[name] = np.full(count, "", dtype=object)
    columns["name"] = names
    columns["site"] = np.array([f"site-{i % 20}" for i in range(count)], dtype=object)
    columns["power_use"] = rng.normal(0.7, 0.1, count)
    columns["power_budget_w"] = np.full(count, 40_000.0)
    columns["power_load_w"] = columns["power_use"] * 40_000.0
    columns["thermal_margin_c"] = rng.normal(25.0, 6.0, count)
    columns["hottest_c"] = rng.normal(65.0, 6.0, count)
    columns["power_exhausted_in_s"] = np.where(rng.random(count) < 0.95, np.inf, 600.0)
    columns["power_confidence"] = np.ones(count)
    columns["throttling_share"] = np.zeros(count)
    columns["gpus"] = np.full(count, 32.0)
    table = Table(ScopeKind.RACK, names, columns)
    return Scopes(table, np.full(count, "", dtype=object), names)


def measure_evaluation(rules: int = 1_000, racks: int = 3_000, rounds: int = 8) -> dict[str, float]:
    """Evaluate rules on racks again and again and return the median and the worst time, s.

    Each round sees other numbers, so that rules begin to fire and stop.
    """
    live = [LiveRule(n, 1, rule, Mode.ACTIVE) for n, rule in enumerate(make_rules(rules))]
    state: dict[int, RuleState] = {}
    times, fired = [], 0
    names = make_scopes(racks, 0).table.names
    for number in range(rounds):
        scopes = make_scopes(racks, number % 3)
        scopes = Scopes(
            Table(ScopeKind.RACK, names, scopes.table.columns), scopes.kinds, scopes.groups
        )
        gc.collect()
        began = time.perf_counter()
        state, changes = step(live, {ScopeKind.RACK: scopes}, state, 1_000.0 + 20.0 * number)
        times.append(time.perf_counter() - began)
        fired += len(changes.fired)
    return {
        "rules_1000_3000_s": statistics.median(times),
        "rules_1000_3000_worst_s": max(times),
        "fired": float(fired),
    }


# --- Replay --------------------------------------------------------------------------------------

_REPLAYED = """
name: bench-replay
scope: rack
severity: warning
summary: "Rack {name} draws {power_load_w}, its tightest GPU is {thermal_margin_c} from slowdown"
when: power_use > 0.93 || thermal_margin_c < 5.0
for: 30s
clear: power_use < 0.85 && thermal_margin_c > 8.0
clear_for: 60s
effects:
  - restrict: {kind: no_new_launches}
  - restrict: {kind: power_cap_w, value: 500}
  - incident: {}
"""
_NODES, _GPUS, _STEP_S = 64, 8, 10.0


def store_readings(start: float, hours: float = 24.0) -> int:
    """Make 64 nodes of 8 GPUs, and store their readings; return how many rows that is.

    In the form in which the writer stores them, and by COPY as it does. Needs a database.
    """
    from django.db import connection

    from fleet import snapshot
    from fleet.models import Gpu
    from telemetry import samples
    from telemetry.rollups import marks
    from telemetry.samples import NULL_INT, Rows
    from telemetry.tiers import raw_width

    _make_fleet()
    snapshot.invalidate()
    ids = np.array(list(Gpu.objects.order_by("pk").values_list("pk", flat=True)))
    rng = np.random.default_rng(9)
    steps = round(hours * 3600 / _STEP_S)
    level = 480.0 + 160.0 * np.sin(np.arange(steps) / 500.0)
    done = 0
    for first in range(0, steps, 360):
        ts = start + _STEP_S * np.arange(first, min(steps, first + 360))
        count = len(ts) * len(ids)
        power = np.repeat(level[first : first + 360], len(ids)) + rng.normal(0, 20, count)
        columns = {
            c.name: np.full(count, np.nan if c.is_float else NULL_INT, c.dtype)
            for c in samples.GPU.columns
        }
        columns["ts"] = np.repeat(ts, len(ids))
        columns["gpu_id"] = np.tile(ids, len(ts)).astype(columns["gpu_id"].dtype)
        columns["power_w"] = power.astype("f4")
        columns["temp_c"] = np.round(30.0 + power / 13.0).astype("f4")
        columns["throttle"] = np.zeros(count, columns["throttle"].dtype)
        columns["job_id"] = np.repeat(1 + np.arange(first, first + len(ts)) // 720, len(ids))
        rows = Rows(samples.GPU, columns)
        with connection.cursor() as cursor:
            wanted = samples.partitions_for(samples.GPU, columns["ts"], raw_width())
            samples.create_partitions(cursor.cursor, wanted)
            samples.copy(cursor.cursor, rows)
            marks.note(cursor.cursor, [rows])
        done += count
    return done


def _make_fleet() -> None:
    from fleet.models import Gpu, HardwareModel, Node, Rack, Site

    site = Site.objects.create(name="bench")
    gpu = HardwareModel.objects.create(
        name="bench-gpu", kind="gpu", rated_w=700.0, idle_w=70.0, slowdown_c=87.0
    )
    host = HardwareModel.objects.create(
        name="bench-host", kind="node", rated_w=2000.0, idle_w=600.0
    )
    for number in range(_NODES):
        rack, _ = Rack.objects.get_or_create(
            site=site, name=f"r{number // 4:02}", defaults={"budget_w": 26_000.0}
        )
        node = Node.objects.create(name=f"n{number:03}", rack=rack, model=host)
        Gpu.objects.bulk_create(Gpu(node=node, index=i, model=gpu) for i in range(_GPUS))


def measure_replay(start: float, hours: float = 24.0) -> dict[str, float]:
    """Replay a rule over the readings of :func:`store_readings`; return the time it takes, s."""
    from policies.rules import replays

    rule = document.read(_REPLAYED)
    began = time.perf_counter()
    found = replays.outcomes({"version": rule}, start, start + 3600.0 * hours)
    taken = time.perf_counter() - began
    return {"replay_24h_512_s": taken, "replay_firings": float(found["version"]["firings"])}
