"""Claims commonly made about the approaches, in our words, and whether the runs bear them out.

Each claim has a measure that it is judged by, chosen before any run. "Less" and "more" are beside
the single global queue on the same jobs, means over seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.approaches.approaches import APPROACHES
from lab.approaches.figures import Figures
from lab.approaches.table import by_approach, mean_of
from lab.matrix.report.words import length, number

__all__ = ["CLAIMS", "Claim", "as_markdown"]

Value = Callable[[Figures], float]


@dataclass(frozen=True)
class Claim:
    """One sentence on one approach. ``compares``: with which; ``holds``: of own and other value."""

    approach: str
    about: str
    said: str
    measure: str
    value: Value
    written: Callable[[float], str]
    compares: str
    holds: Callable[[float, float], bool] | None


def _less(own: float, other: float) -> bool:
    return own < other


def _more(own: float, other: float) -> bool:
    return own > other


def _nearly_none(own: float, other: float) -> bool:
    return own <= 0.05 * other


def _not_more(own: float, other: float) -> bool:
    return own <= other


_BASE, _ALL = "single-queue", "all-together"


def _over(each: Figures) -> float:
    return each.over_budget_s


def _unexpected(each: Figures) -> float:
    return each.unexpected_throttle_gpu_h


def _thermal(each: Figures) -> float:
    return each.thermal_gpu_h


def _sync(each: Figures) -> float:
    return each.sync_delay_s


def _hours(value: float) -> str:
    return f"{number(value)} GPU h"


def _seconds(value: float) -> str:
    return f"{value:,.0f} s"


CLAIMS = (
    Claim("single-queue", "power", "makes poor use of power once it is capped", "work per kWh",
          lambda each: each.work_per_kwh, number, _ALL, _less),
    Claim("single-queue", "heat", "leaves hot spots where they are", "throttle by heat",
          _thermal, _hours, _ALL, _more),
    Claim("single-queue", "network", "may fill links that jobs share", "wait for gradients",
          _sync, "{:.3f} s a step".format, "site-aware", _more),
    Claim("site-aware", "power", "uses what racks have left better", "time over some budget",
          _over, _seconds, _BASE, _less),
    Claim("site-aware", "heat", "can take cooler zones", "throttle by heat",
          _thermal, _hours, _BASE, _less),
    Claim("site-aware", "network", "keeps jobs together", "wait for gradients",
          _sync, "{:.3f} s a step".format, _BASE, _less),
    Claim("power-capped", "power", "keeps clear of overload and throttling",
          "unexpected throttle", _unexpected, _hours, _BASE, _nearly_none),
    Claim("power-capped", "heat", "runs cooler, given readings", "throttle by heat",
          _thermal, _hours, _BASE, _less),
    Claim("power-capped", "time", "takes longer where it is too small", "wait, 95th percentile",
          lambda each: each.wait_p95_s, length, _BASE, _more),
    Claim("elastic-batch", "power", "lets the draw follow what there is", "time over some budget",
          _over, _seconds, _BASE, _less),
    Claim("elastic-batch", "heat", "has less lasting heat", "throttle by heat",
          _thermal, _hours, _BASE, _less),
    Claim("elastic-batch", "progress", "keeps what jobs have done", "work lost",
          lambda each: each.lost_gpu_h, _hours, _BASE, _not_more),
    Claim("cross-site", "power", "gets jobs off sites that are short", "time over some budget",
          _over, _seconds, _BASE, _less),
    Claim("cross-site", "heat", "gets away from heat", "throttle by heat",
          _thermal, _hours, _BASE, _less),
    Claim("cross-site", "network", "wants a strong WAN and portable artifacts", "work lost",
          lambda each: each.lost_gpu_h, _hours, _BASE, None),
)  # fmt: skip


def as_markdown(runs: Sequence[Figures]) -> str:
    """Return a table of the claims, each with its measured values and a verdict."""
    found = by_approach(runs)
    titles = {each.name: each.title for each in APPROACHES}
    lines = [
        "| approach | on | it is said that it | measured | borne out |",
        "|---|---|---|---|---|",
    ]
    for claim in CLAIMS:
        if claim.approach in found and claim.compares in found:
            measured, verdict = _judged(claim, found)
            lines.append(
                f"| {titles[claim.approach]} | {claim.about} | {claim.said} | {measured} "
                f"| {verdict} |"
            )
    return "\n".join(lines) + "\n"


def _judged(claim: Claim, found: Mapping[str, Sequence[Figures]]) -> tuple[str, str]:
    own = mean_of(found[claim.approach], claim.value)
    other = mean_of(found[claim.compares], claim.value)
    beside = next(each.title for each in APPROACHES if each.name == claim.compares)
    measured = f"{claim.measure}: {claim.written(own)}, {beside.lower()} {claim.written(other)}"
    if claim.holds is None:
        return measured, "not tried here"
    if own == other:
        return measured, "no difference here"
    return measured, "yes" if claim.holds(own, other) else "**no**"
