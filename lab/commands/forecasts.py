"""``python -m lab forecasts``: forecasts of load beside "as now", on published series."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import click
import numpy as np

from lab.calibration.sources import NoData
from lab.commands.published import data_option, json_option
from lab.forecasts.judging import ClaimsJudged, Judged, judged
from lab.forecasts.series import NOT_SERIES, READERS

__all__ = ["forecasts"]

#: 1: a bar was missed. 3: nothing could be judged.
OVER, NOTHING = 1, 3
#: What is said may be off by so many times as much as "as now", on any series and horizon.
MOST_RATIO = 1.02
#: Of the loads for which a band was told so many fall into it: on any series, and on average.
COVERED, COVERED_OF_ALL = (0.6, 1.0), (0.75, 0.9)


@click.command()
@data_option()
@click.option("--chosen-on", is_flag=True, help="Judge what the method was chosen on instead.")
@json_option
def forecasts(data: Path, chosen_on: bool, json_file: str | None) -> None:
    """Judge forecasts of load on published series that the method was not chosen on.

    The exit status is 1 when a bar was missed, and 3 when no data set is there.
    """
    found, claims, missing = _judged(data, chosen_on=chosen_on)
    if json_file != "-":
        click.echo("\n".join(table(found, claims)))
    for name, why in {**missing, **NOT_SERIES}.items():
        click.echo(f"{name}: not judged: {why}", err=True)
    missed = bars_missed(found)
    if json_file is not None:
        text = json.dumps(
            {
                "forecasts": [_as_json(each) for each in found],
                "claims": [asdict(each) for each in claims],
                "not_judged": {**missing, **NOT_SERIES},
                "bars_missed": missed,
            },
            indent=1,
        )
        with click.open_file(json_file, "w") as file:
            file.write(f"{text}\n")
    if not found:
        raise SystemExit(NOTHING)
    for each in missed:
        click.echo(f"OVER ITS BAR: {each}", err=True)
    if missed:
        raise SystemExit(OVER)


def _judged(
    data: Path, *, chosen_on: bool
) -> tuple[list[Judged], list[ClaimsJudged], dict[str, str]]:
    found: list[Judged] = []
    claims: list[ClaimsJudged] = []
    missing = {}
    for name, read in READERS.items():
        try:
            for series in read(data):
                if series.chosen_on == chosen_on:
                    in_all = list(judged(series))
                    found += [each for each in in_all if isinstance(each, Judged)]
                    claims += [each for each in in_all if isinstance(each, ClaimsJudged)]
        except NoData as exc:
            missing[name] = str(exc)
    return found, claims, missing


def _as_json(found: Judged) -> dict[str, object]:
    return asdict(found) | {"ratio": found.ratio, "shown_ratio": found.shown_ratio}


def bars_missed(found: Iterable[Judged]) -> list[str]:
    """Return what is over its bar, in words."""
    found = list(found)
    missed = [
        f"{each.series} {each.horizon_s:g} s ahead: errors {each.ratio:.3f} of those of as now"
        for each in found
        if each.ratio > MOST_RATIO
    ]
    least, most = COVERED
    missed += [
        f"{each.series} {each.horizon_s:g} s ahead: {each.coverage:.2f} within the band"
        for each in found
        if each.coverage is not None and not least <= each.coverage <= most
    ]
    whole = _mean(found, lambda each: each.coverage)
    if whole is not None and not COVERED_OF_ALL[0] <= whole <= COVERED_OF_ALL[1]:
        missed.append(f"all series: {whole:.2f} within the band on average")
    return missed


def table(found: list[Judged], claims: list[ClaimsJudged]) -> list[str]:
    """Return the lines of a table of series and horizons, and of one of claims."""
    lines = [
        f"{'series':<42} {'ahead, s':>8} {'compared':>8} {'as now':>9} {'method':>7} {'said':>6}"
        f" {'in band':>7} {'shown':>6} {'while shown':>11}"
    ]
    for each in found:
        lines.append(
            f"{each.series:<42} {each.horizon_s:>8g} {each.compared:>8}"
            f" {each.as_now:>9.4g} {_over(each.method, each.as_now):>7} {each.ratio:>6.2f}"
            f" {_share(each.coverage):>7} {each.shown_share:>6.2f} {_share(each.shown_ratio):>11}"
        )
    lines += ["", *_by_horizon(found), ""]
    lines.append(
        f"{'claims':<42} {'pace, s':>8} {'passed':>8} {'claims':>9} {'true':>7} {'time':>6}"
    )
    for one in claims:
        lines.append(
            f"{one.series:<42} {one.pace_s:>8g} {one.passed:>8} {one.made:>9} {one.came_true:>7}"
            f" {one.claimed_share:>6.3f}"
        )
    made, true = sum(one.made for one in claims), sum(one.came_true for one in claims)
    passed = sum(one.passed for one in claims)
    return [*lines, f"{made} claims, {true} came true; budgets were passed {passed} times"]


def _by_horizon(found: list[Judged]) -> list[str]:
    lines = [f"{'updates ahead':<42} {'series':>8} {'said':>6} {'in band':>7} {'shown':>6}"]
    for ahead in sorted({round(each.horizon_s / each.pace_s) for each in found}):
        here = [each for each in found if round(each.horizon_s / each.pace_s) == ahead]
        # Ratios are averaged as factors: twice and half cancel out.
        ratio = np.exp(np.mean([np.log(max(each.ratio, 1e-3)) for each in here]))
        shown = np.mean([each.shown_share for each in here])
        within = _share(_mean(here, lambda each: each.coverage))
        lines.append(f"{ahead:<42} {len(here):>8} {ratio:>6.3f} {within:>7} {shown:>6.2f}")
    return lines


def _mean(found: list[Judged], of: Callable[[Judged], float | None]) -> float | None:
    values = [value for value in map(of, found) if value is not None]
    return float(np.mean(values)) if values else None


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _over(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base > 0 else ""
