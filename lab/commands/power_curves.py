"""``python -m lab power-curves``: who is slowed by more than agreed, on measured curves."""

from __future__ import annotations

from pathlib import Path

import click

from lab.calibration.sources import NoData
from lab.commands.published import data_option
from lab.power_curves import CARDS, SLOWDOWNS, Fit, Share, built_in, card_jobs, judged, told

__all__ = ["power_curves"]

#: 1: a share is over the bar. 3: no data set is there.
OVER, NOTHING = 1, 3


@click.command("power-curves")
@data_option("zeus-power-limits", "zeus-power-limits-others")
@click.option("--fit", is_flag=True, help="Fit curves and margins anew instead, and print them.")
def power_curves(data: Path, fit: bool) -> None:
    """Say how many jobs the built-in power curves slow by more than they agree to.

    Of each measured card that is there, by what a job states of its draw and agrees to. The exit
    status is 1 when a card's share is over 5 %, and 3 when no card is there.
    """
    if fit:
        _print_fits(data)
        return
    found: list[Share] = []
    for card in CARDS:
        try:
            found += judged(card_jobs(data, card), built_in(card.name))
        except NoData as exc:
            click.echo(f"{card.name}: not judged: {exc}", err=True)
    click.echo("\n".join(table(found)))
    if not found:
        raise SystemExit(NOTHING)
    if not all(each.holds for each in found if each.counts):
        raise SystemExit(OVER)


def table(shares: list[Share]) -> list[str]:
    """Return lines: a row for each card, part and statement, a column for each slowdown."""
    lines = [f"{'card':9} {'curve':11} {'jobs':20} {'states':14}" + "".join(map(_head, SLOWDOWNS))]
    rows: dict[tuple[str, str, str, str], list[Share]] = {}
    for each in shares:
        rows.setdefault((each.card, each.curve, each.part, each.stated), []).append(each)
    for (card, curve, part, stated), held in rows.items():
        cells = "".join(f"{f'{each.slowed}/{each.jobs}':>9}" for each in held)
        lines.append(f"{card:9} {curve:11} {part:20} {stated:14}{cells}")
    return lines


def _head(slowdown: float) -> str:
    return f"{slowdown:>9.0%}"


def _print_fits(data: Path) -> None:
    fits, factors = told(data)
    for name, fit in fits.items():
        click.echo(f"{name}: {_told(fit)}")
    for name, held in factors.items():
        click.echo(f"cap_factors, {name}: {[round(each, 3) for each in held]}")


def _told(fit: Fit) -> str:
    static, linear, exponent = fit.errors
    return (
        f"static {fit.static_share:.3f} ± {static:.3f} of the rating,"
        f" linear {fit.linear_share:.3f} ± {linear:.3f},"
        f" exponent {fit.exponent:.1f} ± {exponent:.1f};"
        f" speeds off by {fit.rms_share:.1%} rms, {fit.jobs} jobs"
    )
