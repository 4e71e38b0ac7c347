"""What is usual of jobs, and where one is outside of it, in words for pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from accounts.models import User
from admission.baselines import reading
from admission.baselines.reading import BeyondNormal
from admission.core.baselines import NORMAL, UNITS, Baseline, Metric, Spread
from admission.goodput.summing import Asked, By
from admission.jobs.models import Job, Project
from dashboard import exports, units
from telemetry.rollups.spec import HOUR_S
from telemetry.spans import Span

__all__ = ["WORDS", "Row", "condition", "of_job", "of_project", "value"]

#: What each value is of.
WORDS: Mapping[Metric, str] = {
    Metric.POWER_W: "power per GPU",
    Metric.TEMP_C: "temperature",
    Metric.C_PER_W: "warmth per W",
    Metric.LINK_LATENCY_S: "latency of links",
    Metric.SYNC_S: "wait for other ranks, per step",
    Metric.SAVE_S: "time of a save, at most",
    Metric.SAVE_BYTES_PER_S: "speed of a save, at least",
}
_DIGITS: Mapping[Metric, int] = {Metric.TEMP_C: 1, Metric.C_PER_W: 3}
#: Baselines of a project are those of so many days.
DAYS = 7
_MOST_ROWS = 100


def value(metric: Metric, amount: float) -> str:
    """Return a value of a metric with its unit: ``445 W``, ``0.052 °C/W``, ``21 µs``."""
    if metric is Metric.SAVE_BYTES_PER_S:
        return f"{units.number(amount / 1e6, 1)} MB/s"
    if UNITS[metric] != "s":
        return f"{units.number(amount, _DIGITS.get(metric, 0))} {UNITS[metric]}"
    return units.took(amount)


def condition(cause: str) -> str:
    """Return what held gangs back in words: ``normal``, ``throttled: sw_thermal``, ``capped``."""
    kind, _, token = cause.partition("_")
    return f"throttled: {token}" if kind == "throttled" else cause or "normal"


# --- A job ---------------------------------------------------------------------------------------


def of_job(job: Job, now: float) -> list[str]:
    """Return a sentence for each way in which a job that runs is outside of its normal."""
    return [_sentence(each) for each in reading.of_job(job, now)]


def _sentence(found: BeyondNormal) -> str:
    told, metric = found.outside, found.outside.metric
    normal = told.normal
    times = "" if told.ratio is None else f", {units.number(told.ratio, 2)} times its usual"
    held = ", ".join(map(condition, found.causes))
    low, high = value(metric, normal.p10), value(metric, normal.p90)
    return (
        f"{found.phase} in {found.site}/{found.rack}, the hour from {found.hour:%H:%M} UTC:"
        f" {WORDS[metric]} {value(metric, told.value)}{times} {value(metric, normal.p50)}"
        f" (normal: {low} to {high} over {units.count(normal.hours, 'hour')})"
        f"{f'; {held}' if held else '; nothing that is known held it back'}"
    )


# --- A project -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """What is usual of a value under one condition; ``shift``: the median over the normal one.

    None: it is the normal one, or that is not known.
    """

    phase: str
    site: str
    metric: str
    condition: str
    hours: int
    p10: str
    p50: str
    p90: str
    shift: float | None


def of_project(project: Project, user: User, now: float) -> tuple[list[Row], int]:
    """Return the baselines of a project over the last week, and how many are left out. A query."""
    span = Span(now - DAYS * 24 * HOUR_S, now)
    asked = Asked.of(user, span, By.RACK, {"project": project.name})
    rows = _rows(reading.over(replace(asked, by=By.SITE)))
    most = exports.most(_MOST_ROWS)
    return rows[:most], max(len(rows) - most, 0)


def _rows(found: Iterable[Baseline]) -> list[Row]:
    baselines = list(found)
    normals = {(b.phase, b.site): b.spreads for b in baselines if b.cause == NORMAL}
    rows = [
        _row(each, metric, spread, normals.get((each.phase, each.site), {}).get(metric))
        for metric in Metric
        for each in baselines
        for spread in (each.spreads.get(metric),)
        if spread is not None
    ]
    return sorted(rows, key=lambda row: (row.phase, row.site))


def _row(found: Baseline, metric: Metric, spread: Spread, normal: Spread | None) -> Row:
    p10, p50, p90 = (value(metric, each) for each in (spread.p10, spread.p50, spread.p90))
    usual = normal.p50 if normal is not None and found.cause != NORMAL else 0.0
    return Row(
        found.phase, found.site, WORDS[metric], condition(found.cause), spread.hours,
        p10, p50, p90, spread.p50 / usual if usual else None,
    )  # fmt: skip
