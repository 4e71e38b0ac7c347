"""``python -m lab calibrate``: the twin beside published measurements, with its errors."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lab.calibration.catalog import CALIBRATIONS
from lab.calibration.fitting import fit_all
from lab.calibration.result import Comparison
from lab.calibration.sources import DATA_FOLDER, NoData

__all__ = ["calibrate"]

#: 1: an error is over its bar. 3: nothing could be compared.
OVER, NOTHING = 1, 3


@click.command()
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="HEADROOM_TEST_DATA",
    default=DATA_FOLDER,
    show_default=True,
    help="Folder that holds the data sets.",
)
@click.option(
    "--only",
    type=click.Choice(list(CALIBRATIONS)),
    multiple=True,
    help="Only this calibration. May be given again.  [default: all]",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    help="Write all of it there as JSON, too; -: to standard output, instead of the table.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="Fit the measured training runs anew instead, and print them. It takes minutes.",
)
def calibrate(data: Path, only: tuple[str, ...], json_file: str | None, fit: bool) -> None:
    """Hold the twin against published measurements: each quantity with its error and its bar.

    The exit status is 1 when an error is over its bar, and 3 when no data set is there.
    """
    if fit:
        _print_fits(data)
        return
    found, missing = _compared(data, only or tuple(CALIBRATIONS))
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
    if not all(each.holds for each in found):
        raise SystemExit(OVER)


def table(found: list[Comparison]) -> list[str]:
    """Return the lines of a table of comparisons."""
    lines = [
        f"{'calibration':<34} {'quantity':<62} {'real':>9} {'twin':>9} {'error':>8} {'bar':>6}"
    ]
    for each in found:
        real, twin = ("" if value is None else f"{value:.4g}" for value in (each.real, each.twin))
        lines.append(
            f"{each.calibration:<34} {each.quantity:<62} {real:>9} {twin:>9} {each.error:>8.3g}"
            f" {each.bar:>6.3g} {each.error_unit}"
            f"{', held out' if each.held_out else ''}{'' if each.holds else '  OVER ITS BAR'}"
        )
    over = sum(not each.holds for each in found)
    return [*lines, f"{len(found)} quantities, {over} over their bars"]


def as_json(found: list[Comparison], missing: dict[str, str]) -> dict[str, object]:
    return {"comparisons": [each.as_json() for each in found], "not_compared": missing}


def _compared(data: Path, names: tuple[str, ...]) -> tuple[list[Comparison], dict[str, str]]:
    found: list[Comparison] = []
    missing = {}
    for name in names:
        try:
            found += CALIBRATIONS[name](data)
        except NoData as exc:
            missing[name] = str(exc)
    return found, missing


def _print_fits(data: Path) -> None:
    try:
        for name, shape, cost in fit_all(data):
            click.echo(f"{name!r}: {shape},  # cost {cost:.2f}")
    except NoData as exc:
        raise click.ClickException(str(exc)) from exc
