"""``python -m lab approaches``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
import msgspec

from lab.approaches.anchors import anchors_of
from lab.approaches.approaches import NAMES
from lab.approaches.bound import bounds_table
from lab.approaches.comparison import Run, Setup, compare
from lab.approaches.judging import as_table, judge, parts_of
from lab.approaches.results import Comparison, write
from lab.approaches.table import as_markdown
from lab.approaches.windows import SEEDS
from lab.commands.shared import in_one_line, progress
from lab.spread import Kept, Where
from lab.spread.options import spread_of, spread_options
from lab.traces import TraceError

__all__ = ["approaches"]


@click.command("approaches")
@click.option(
    "--trace",
    type=click.Path(exists=True, path_type=Path),
    help="Jobs of the Philly trace: jobs.csv.gz, or its folder.",
)
@click.option(
    "--windows",
    "data",
    type=click.Path(exists=True, path_type=Path, file_okay=False),
    help="Folder of published traces: judge what comes built in beside a plain queue, on parts of"
    " them that were chosen by a rule. Of the other options only those of seeds, cores and --out"
    " count.",
)
@click.option(
    "--bound/--no-bound",
    default=False,
    help="With --windows: run nothing, and say how much work could be done at most.",
)
@click.option("--from-h", type=click.FloatRange(min=0.0), default=Setup.from_h, show_default=True)
@click.option(
    "--hours",
    type=click.FloatRange(min=0.0, min_open=True),
    default=Setup.hours,
    show_default=True,
)
@click.option("--gpus", type=click.IntRange(min=8), default=Setup.gpus, show_default=True)
@click.option("--sites", type=click.IntRange(1, 20), default=Setup.sites, show_default=True)
@click.option(
    "--power-share",
    type=click.FloatRange(0.2, 2.0),
    default=Setup.power_share,
    show_default=True,
    help="What racks, feeds and sites may draw, as a share of what is written on their parts.",
)
@click.option(
    "--cooling-share",
    type=click.FloatRange(0.3, 2.0),
    default=Setup.cooling_share,
    show_default=True,
    help="Heat that zones carry off, as a share of the budgets of their racks.",
)
@click.option("--seed", "seeds", type=int, multiple=True, default=(1,), show_default=True)
@click.option("--only", "names", type=click.Choice(NAMES), multiple=True, help="Not all of them.")
@spread_options
@click.option("--anchors/--no-anchors", default=False, help="Also published results.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for page and plots."
)
def approaches(
    trace: Path | None,
    data: Path | None,
    bound: bool,
    from_h: float,
    hours: float,
    gpus: int,
    sites: int,
    power_share: float,
    cooling_share: float,
    seeds: tuple[int, ...],
    names: tuple[str, ...],
    workers: int | None,
    broker: str | None,
    kept: Path,
    fresh: bool,
    anchors: bool,
    out: Path | None,
) -> None:
    """Compare ways to run a fleet under limits, on the same jobs, and print a table."""
    if bound:
        _bound(data, seeds)
        return
    where, before = spread_of(workers, broker, kept, fresh=fresh)
    if data is not None:
        _judge(data, seeds, where, before, out)
        return
    if trace is None:
        raise click.UsageError("one of --trace and --windows is needed")
    setup = Setup(
        trace=trace,
        from_h=from_h,
        hours=hours,
        gpus=gpus,
        sites=sites,
        power_share=power_share,
        cooling_share=cooling_share,
    )
    try:
        jobs = setup.jobs()
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    chosen = names or NAMES
    runs = []
    total = len(chosen) * len(seeds)
    click.echo(str(jobs))
    with in_one_line(), progress(total, sys.stderr) as show:
        for run in compare(setup, names=chosen, seeds=seeds, where=where, kept=before):
            runs.append(run)
            said = f"{run.figures.approach}, seed {run.figures.seed}"
            show(len(runs), f"{len(runs)} of {total}  {said}")
    runs.sort(key=lambda run: (NAMES.index(run.figures.approach), run.figures.seed))
    click.echo(as_markdown([run.figures for run in runs]))
    if out is not None:
        found = _comparison(setup, runs, seeds)
        if anchors:
            found = msgspec.structs.replace(found, anchors=anchors_of(found.runs, setup))
        for path in write(found, out):
            click.echo(path)


def _bound(data: Path | None, seeds: tuple[int, ...]) -> None:
    if data is None:
        raise click.UsageError("--bound is of windows: give their folder with --windows")
    try:
        click.echo(bounds_table(data, seeds))
    except TraceError as error:
        raise click.ClickException(str(error)) from error


def _judge(
    data: Path, seeds: tuple[int, ...], where: Where, kept: Kept | None, out: Path | None
) -> None:
    """Run all windows, print the tables, and write them with all figures into a folder."""
    try:
        asked = parts_of(data, SEEDS if seeds == (1,) else seeds)
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    with in_one_line(), progress(len(asked), sys.stderr) as show:
        judged = judge(asked, where=where, kept=kept, show=show)
    table = as_table(judged)
    click.echo(table)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "windows.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(judged), indent=1) + b"\n"
        )
        (out / "windows.md").write_text(f"# Windows\n\n{table}\n", encoding="utf-8")


def _comparison(setup: Setup, runs: list[Run], seeds: tuple[int, ...]) -> Comparison:
    return Comparison(
        jobs=setup.jobs_said(),
        fleet=setup.fleet_said(),
        again=shlex.join(setup.again(seeds)),
        hours=setup.hours,
        runs=[run.figures for run in runs],
        seen={run.figures.approach: run.seen for run in runs if run.figures.seed == seeds[0]},
    )
