"""Headroom as it comes beside a plain queue, on windows that it was not made on.

Which they are, :mod:`lab.approaches.windows` says. What has to come of it, for each window and
seed: no second over any budget, no throttling that nobody asked for, nobody slowed who agreed to
nothing, and as much work as the plain queue does, which keeps to no budget.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec

from lab.approaches.comparison import RUN, Part
from lab.approaches.figures import Figures
from lab.approaches.windows import MORE, SEEDS, WINDOWS, Window, more_gpus, setup_of
from lab.spread import Kept, Where, run_all

__all__ = ["BUILT_IN", "PLAIN", "Judged", "as_table", "judge", "parts_of"]

PLAIN, BUILT_IN = "single-queue", "all-together"
#: Windows that are also run with 30 % more GPUs under the same power, with the first seed.
WITH_MORE = ("philly-saturated", "openb-saturated", "helios-gangs")


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One run. ``fleet``: as it is, with power for all its parts, or with more GPUs below it."""

    window: str
    fleet: str
    figures: Figures


@dataclass(frozen=True)
class _Asked:
    window: str
    fleet: str
    part: Part


def parts_of(data: Path, seeds: Sequence[int] = SEEDS) -> list[_Asked]:
    """Return all runs; ``data`` is the folder of the traces.

    Raises :class:`~lab.traces.TraceError`.
    """
    found = []
    for window in WINDOWS:
        setup = setup_of(window, data)
        for seed in seeds:
            for name in (PLAIN, BUILT_IN):
                found.append(_Asked(window.name, "as it is", Part(setup, name, seed)))
        found += _with_more(window, data, seeds[0]) if window.name in WITH_MORE else []
    return found


def _with_more(window: Window, data: Path, seed: int) -> list[_Asked]:
    fleets = zip(("plenty", "more"), more_gpus(window, data), strict=True)
    return [_Asked(window.name, name, Part(setup, BUILT_IN, seed)) for name, setup in fleets]


def judge(
    asked: Sequence[_Asked],
    *,
    where: Where | None = None,
    kept: Kept | None = None,
    show: Callable[[int, str], None] | None = None,
) -> list[Judged]:
    """Run all of them; return them in their order. ``show`` is told of each that ends."""
    by_part = {each.part: each for each in asked}
    found: dict[Part, Judged] = {}
    for ended in run_all(RUN, list(by_part), where=where, kept=kept):
        each = by_part[ended.argument]
        found[each.part] = Judged(
            window=each.window, fleet=each.fleet, figures=ended.value().figures
        )
        if show is not None:
            show(len(found), f"{each.window}, {each.part.approach}, seed {each.part.seed}")
    return [found[each.part] for each in asked]


def as_table(judged: Sequence[Judged]) -> str:
    """Return the runs as tables in Markdown: a row for each window and seed, and the means."""
    plain = {_key(each): each.figures for each in judged if each.figures.approach == PLAIN}
    lines = [
        "| window | seed | work, plain | work, built in | of it | over, plain, s | over, s |"
        " unexpected throttle, GPU h | least speed of firm jobs | slower than agreed |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    shares = []
    for each in judged:
        if each.fleet != "as it is" or each.figures.approach != BUILT_IN:
            continue
        own, other = each.figures, plain[_key(each)]
        shares.append(own.all_work_gpu_h / other.all_work_gpu_h)
        lines.append(
            f"| {each.window} | {own.seed} | {other.all_work_gpu_h:.1f} |"
            f" {own.all_work_gpu_h:.1f} | {shares[-1]:.3f} | {other.over_budget_s:.0f} |"
            f" {own.over_budget_s:.0f} | {own.unexpected_throttle_gpu_h:.2f} |"
            f" {own.firm_speed_least:.3f} | {100.0 * own.slower_than_agreed:.1f} % |"
        )
    if shares:
        lines += ["", f"Work beside the plain queue's: {min(shares):.3f} at least,"
                      f" {fmean(shares):.3f} on average."]  # fmt: skip
    return "\n".join([*lines, "", *_more_lines(judged)])


def _key(each: Judged) -> tuple[str, int]:
    return each.window, each.figures.seed


def _more_lines(judged: Sequence[Judged]) -> list[str]:
    plenty = {_key(each): each.figures for each in judged if each.fleet == "plenty"}
    found = []
    for each in judged:
        if each.fleet == "more" and _key(each) in plenty:
            share = each.figures.all_work_gpu_h / plenty[_key(each)].all_work_gpu_h
            found.append(
                f"| {each.window} | {each.figures.seed} | {share:.3f} |"
                f" {each.figures.over_budget_s:.0f} |"
            )
    if not found:
        return []
    head = f"| {100.0 * (MORE - 1.0):.0f} % more GPUs | seed | work beside fewer | over, s |"
    return [head, "|---|--:|--:|--:|", *found]
