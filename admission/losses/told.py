"""The report of losses in words and numbers, for the API, its page and its CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings

from admission.core import losses
from admission.core.fleet_account import FLEET_LEVERS
from admission.core.losses import WEEK_H, Gain, Line, Order
from admission.losses.reading import Report

__all__ = ["csv_rows", "told"]

_US_PER_H = 3.6e9
#: Of a loss so many sites and projects are named, those with the most of it.
_MOST_NAMED = 5


def told(found: Report, order: Order) -> dict[str, Any]:
    """Return a report as JSON, what cost most by ``order`` first."""
    lines = losses.ranked(found.lines, order)
    first = losses.first(lines)
    return {
        "start": float(found.asked.start),
        "end": float(found.asked.end),
        "rank": order.value,
        "currency": settings.ENERGY_CURRENCY,
        "hours": found.hours,
        "missing_hours": len(found.missing),
        "first_missing": float(found.missing[0]) if found.missing else None,
        "newest": None if found.newest is None else found.newest.timestamp(),
        "gpu_h": found.total_us / _US_PER_H,
        "held_gpu_h": found.held_us / _US_PER_H,
        "price_known": found.priced,
        "energy_known": found.metered,
        "first": None if first is None else _line(first, found.hours),
        "losses": [_line(each, found.hours) for each in lines],
        "not_ranked": [
            {"cause": cause, "gpu_h": us / _US_PER_H, "lever": FLEET_LEVERS[cause]}
            for cause, us in found.not_ranked.items()
        ],
        "cannot_tell": list(found.cannot_tell),
    }


def _line(line: Line, hours: int) -> dict[str, Any]:
    usual = line.usual
    return {
        "loss": line.loss,
        "reason": line.reason,
        "gpu_h": line.gpu_h,
        "share": line.share,
        "kwh": line.kwh,
        "money": line.money,
        "waited_gpu_h": line.waited_gpu_h,
        "across_sites_gpu_h": line.across_sites_gpu_h,
        "causes": [{"cause": cause, "gpu_h": us / _US_PER_H} for cause, us in _most(line.causes)],
        "sites": _named(line.sites),
        "projects": _named(line.projects),
        "usual": usual and {
            "days": usual.days, "p10": usual.p10, "p50": usual.p50, "p90": usual.p90,
        },
        "degraded": [
            {"metric": metric.value, "ratio": each.ratio, "hours": each.hours}
            for metric, each in line.degraded.items()
        ],
        "lever": line.lever,
        "most_gpu_h_week": line.gpu_h * WEEK_H / hours if hours else None,
        "gain": line.gain and _gain(line, line.gain),
    }  # fmt: skip


def _named(found: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"name": name, "gpu_h": us / _US_PER_H} for name, us in _most(found)[:_MOST_NAMED]]


def _most(causes: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(causes.items(), key=lambda each: -each[1])


def _gain(line: Line, gain: Gain) -> dict[str, Any]:
    """Return a gain a week; its energy and money are those of a GPU-hour of what was lost."""
    per_h = 1.0 / line.gpu_h if line.gpu_h else None
    return {
        "basis": gain.basis.value,
        "lever": gain.lever,
        "gpu_h_week": gain.gpu_h,
        "kwh_week": _by(line.kwh, per_h, gain.gpu_h),
        "money_week": _by(line.money, per_h, gain.gpu_h),
        "steps": list(gain.steps),
    }


def _by(amount: float | None, per_h: float | None, gpu_h: float) -> float | None:
    return None if amount is None or per_h is None else amount * per_h * gpu_h


# --- CSV -----------------------------------------------------------------------------------------

_OF_LINE = (
    "loss", "reason", "gpu_h", "share", "kwh", "money", "waited_gpu_h", "across_sites_gpu_h",
    "lever", "most_gpu_h_week",
)  # fmt: skip
_OF_USUAL = ("days", "p10", "p50", "p90")
_OF_GAIN = ("basis", "gpu_h_week", "kwh_week", "money_week", "lever")


def csv_rows(found: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yield the names of columns, then a row for each loss; what is not known is empty."""
    yield [*_OF_LINE, *(f"usual_{n}" for n in _OF_USUAL), *(f"gain_{n}" for n in _OF_GAIN)]
    for line in found["losses"]:
        usual, gain = line["usual"] or {}, line["gain"] or {}
        yield [
            *(line[name] for name in _OF_LINE),
            *(usual.get(name) for name in _OF_USUAL),
            *(gain.get(name) for name in _OF_GAIN),
        ]
