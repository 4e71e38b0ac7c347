"""``python -m lab calibrate``: the twin beside published measurements, with its errors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from lab.calibration.catalog import CALIBRATIONS, COMPARE, Asked
from lab.calibration.fitting import fit_all
from lab.calibration.result import Comparison
from lab.calibration.sources import NoData
from lab.commands.published import data_option, json_option
from lab.commands.shared import in_one_line, progress
from lab.spread import Kept, Part, Where, run_all
from lab.spread.options import spread_of, spread_options

__all__ = ["calibrate"]

#: 1: an error is over its bar, or more than it was. 3: nothing could be compared.
OVER, NOTHING = 1, 3


@click.command()
@data_option()
@click.option(
    "--only",
    type=click.Choice(list(CALIBRATIONS)),
    multiple=True,
    help="Only this calibration. May be given again.  [default: all]",
)
@json_option
@click.option(
    "--fit",
    is_flag=True,
    help="Fit the measured training runs anew instead, and print them. It takes minutes.",
)
@spread_options
def calibrate(
    data: Path,
    only: tuple[str, ...],
    json_file: str | None,
    fit: bool,
    workers: int | None,
    broker: str | None,
    kept: Path,
    fresh: bool,
) -> None:
    """Hold the twin against published measurements: each quantity with its error and its bar.

    The exit status is 1 when an error is over its bar or more than it was, and 3 when no data set
    is there.
    """
    if fit:
        _print_fits(data)
        return
    where, before = spread_of(workers, broker, kept, fresh=fresh)
    with in_one_line():
        found, missing = _compared(data, only or tuple(CALIBRATIONS), where, before)
    if json_file != "-":
        click.echo("\n".join(table(found)))
    for name, why in missing.items():
        click.echo(f"{name}: not compared: {why}", err=True)
    if json_file is not None:
        text = json.dumps(as_json(found, missing), indent=1)
        with click.open_file(json_file, "w") as file:
            file.write(f"{text}\n")
    if not found:
        raise SystemExit(NOTHING)
    if not all(each.holds and each.is_as_good_as_it_was for each in found):
        raise SystemExit(OVER)


def table(found: list[Comparison]) -> list[str]:
    """Return the lines of a table of comparisons."""
    lines = [
        f"{'calibration':<34} {'quantity':<62} {'real':>9} {'twin':>9} {'error':>8} {'bar':>6}"
        f" {'was':>6} {'naive':>6}"
    ]
    for each in found:
        real, twin, bar, was, naive = (
            "" if value is None else f"{value:.4g}"
            for value in (each.real, each.twin, each.bar, each.was, each.naive)
        )
        lines.append(
            f"{each.calibration:<34} {each.quantity:<62} {real:>9} {twin:>9} {each.error:>8.3g}"
            f" {bar:>6} {was:>6} {naive:>6} {each.error_unit}, {each.role}{_remarks(each)}"
        )
    over = sum(not each.holds for each in found)
    barred = sum(each.bar is not None for each in found)
    worse = sum(not each.beats_naive for each in found)
    known = sum(each.naive is not None for each in found)
    return [
        *lines,
        f"{len(found)} quantities, {over} of {barred} over their bars,"
        f" {worse} of {known} no better than the naive prediction",
    ]


def _remarks(each: Comparison) -> str:
    return (
        ("" if each.holds else "  OVER ITS BAR")
        + ("" if each.is_as_good_as_it_was else "  MORE THAN IT WAS")
        + ("" if each.beats_naive else "  NO BETTER THAN NAIVE")
    )


def as_json(found: list[Comparison], missing: dict[str, str]) -> dict[str, object]:
    return {"comparisons": [each.as_json() for each in found], "not_compared": missing}


def _compared(
    data: Path, names: tuple[str, ...], where: Where, kept: Kept | None
) -> tuple[list[Comparison], dict[str, str]]:
    missing = {}
    for name in names:
        for folder in CALIBRATIONS[name].reads:
            if not (data / folder).is_dir():
                missing[name] = str(NoData(data / folder))
    asked = [
        Asked(name, Part(data, CALIBRATIONS[name].reads)) for name in names if name not in missing
    ]
    found: dict[str, list[Comparison]] = {}
    with progress(max(len(asked), 1), sys.stderr) as show:
        for ended in run_all(COMPARE, asked, where=where, kept=kept):
            found[ended.argument.name] = ended.value()
            show(len(found), f"{len(found)} of {len(asked)}  {ended.argument.name}")
    return [each for name in names for each in found.get(name, [])], missing


def _print_fits(data: Path) -> None:
    try:
        for name, shape, cost in fit_all(data):
            click.echo(f"{name!r}: {shape},  # cost {cost:.2f}")
    except NoData as exc:
        raise click.ClickException(str(exc)) from exc
