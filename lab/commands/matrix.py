"""``python -m lab matrix``: play the matrix under a policy, show a result again, compare two."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from lab.commands.shared import in_one_line, progress
from lab.matrix import reading, report
from lab.matrix.report.compare import compare, write_comparison
from lab.matrix.report.text import comparison_lines, lines
from lab.matrix.result import MatrixResult, Verdict
from lab.matrix.scenario import Scenario
from lab.scenarios import catalog
from lab.scenarios.matrix import run_matrix
from lab.spread.options import spread_of, spread_options

__all__ = ["EXIT_CODES", "matrix", "scenario_of"]

FOLDER = click.Path(path_type=Path, file_okay=False)
#: of a matrix, by its verdict; 2 is wrong use
EXIT_CODES = {
    Verdict.PASSED: 0,
    Verdict.FAILED: 1,
    Verdict.ERROR: 1,
    Verdict.NOT_RUN: 3,
    Verdict.NOT_MEASURED: 3,
}


@click.group()
def matrix() -> None:
    """The constraint matrix: scenarios by seeds on the twin, and what came of them."""


@matrix.command("run")
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    metavar="NAME|FILE",
    help="A standard scenario, or a file. May be given again.  [default: all standard ones]",
)
@click.option("--quick", is_flag=True, help="Only the standard scenarios that find most.")
@click.option(
    "--policy",
    type=click.Path(exists=True, path_type=Path, file_okay=False),
    help="Folder of the policy.  [default: the built-in one]",
)
@click.option("--seed", "seeds", type=int, multiple=True, default=(1, 2), show_default=True)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Runs of each cell: all have to come to the same.",
)
@spread_options
@click.option("--out", type=FOLDER, default=Path("build/matrix"), show_default=True)
def run(
    scenarios: tuple[str, ...],
    quick: bool,
    policy: Path | None,
    seeds: tuple[int, ...],
    repeat: int,
    workers: int | None,
    broker: str | None,
    kept: Path,
    fresh: bool,
    out: Path,
) -> None:
    """Play scenarios under a policy, and write the result and its reports.

    The exit status is 0 when all that was run passed, 1 when something failed, 3 when nothing could
    be run.
    """
    with in_one_line():
        chosen = _chosen(scenarios, quick=quick)
        where, before = spread_of(workers, broker, kept, fresh=fresh)
        with progress(1.0, sys.stderr) as show:
            result = run_matrix(
                chosen,
                policy=policy,
                seeds=seeds,
                repeats=repeat,
                where=where,
                kept=before,
                progress=lambda done, total, said: show(done / total, f"{done} of {total}  {said}"),
            )
        files = report.write(result, out)
    click.echo("\n".join(lines(result)))
    click.echo(f"Report: {files[1]}")
    raise SystemExit(EXIT_CODES[result.verdict])


@matrix.command("report")
@click.argument("result", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=FOLDER, help="Folder for the reports.  [default: that of the result]")
def show_report(result: Path, out: Path | None) -> None:
    """Write the reports of a RESULT again: result.json, or the folder that it is in."""
    with in_one_line():
        found = report.read(result)
        folder = out or (result if result.is_dir() else result.parent)
        files = report.write(found, folder)
    click.echo("\n".join(lines(found)))
    click.echo(f"Report: {files[1]}")


@matrix.command("compare")
@click.argument("before", type=click.Path(exists=True, path_type=Path))
@click.argument("after", type=click.Path(exists=True, path_type=Path))
@click.option("--out", type=FOLDER, help="Folder for the comparison as HTML and Markdown.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 when a cell is worse.")
def show_comparison(before: Path, after: Path, out: Path | None, fail_on_worse: bool) -> None:
    """Say what is better and what is worse in the result AFTER than in BEFORE."""
    with in_one_line():
        comparison = compare(_read(before), _read(after))
        files = write_comparison(comparison, out) if out is not None else []
    click.echo("\n".join(comparison_lines(comparison)))
    for file in files[:1]:
        click.echo(f"Report: {file}")
    raise SystemExit(1 if fail_on_worse and comparison.worse else 0)


def _read(path: Path) -> MatrixResult:
    return report.read(path)


def _chosen(names: Sequence[str], *, quick: bool) -> list[Scenario]:
    if names:
        return [scenario_of(name) for name in names]
    return [catalog.by_name(name) for name in catalog.QUICK] if quick else catalog.standard()


def scenario_of(name: str) -> Scenario:
    """Return the scenario in a file, or the standard one of that name."""
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return reading.load(Path(name))
    return catalog.by_name(name)
