"""``python -m lab scenario``: one scenario, on the twin or against a server."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from headroom import __version__
from lab import demo
from lab.commands.matrix import EXIT_CODES, FOLDER, scenario_of
from lab.commands.shared import (
    in_one_line,
    progress,
    server_of,
    server_options,
    stop_on_signals,
)
from lab.live.running import LiveSettings, run_live
from lab.matrix import report
from lab.matrix.report import words
from lab.matrix.report.text import cell_lines
from lab.matrix.result import MatrixResult, SubjectKind, make_result
from lab.matrix.scenario import Runner, Scenario
from lab.scenarios import catalog
from lab.scenarios.matrix import run_matrix

__all__ = ["scenario"]


@click.group()
def scenario() -> None:
    """One scenario, on the twin or against a server."""


@scenario.command("list")
def show_list() -> None:
    """List the standard scenarios."""
    found = catalog.standard()
    width = max(len(each.name) for each in found)
    for each in found:
        length = words.length(each.duration_s)
        click.echo(f"{each.name:{width}}  {length:>7}  {each.title}")


@scenario.command("run")
@click.argument("name", metavar="NAME|FILE")
@server_options(default=None)
@click.option(
    "--policy",
    type=click.Path(exists=True, path_type=Path, file_okay=False),
    help="Folder of the policy, on the twin.  [default: the built-in one]",
)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.1, max=60.0),
    default=1.0,
    show_default=True,
    help="With --server: seconds of the scenario in each second.",
)
@click.option("--out", type=FOLDER, help="Folder for the result and its reports.")
def run(
    name: str,
    server: str | None,
    token_file: Path | None,
    policy: Path | None,
    seed: int,
    speed: float,
    out: Path | None,
) -> None:
    """Run a standard scenario, or the one in a FILE, and say whether what it expects holds.

    Without --server in process, on the twin, with the pure cores of policies and admission; then
    nothing is left behind. With --server a fleet of the scenario's own is put into that server,
    which decides, and is asked through its public API. Faults are over when this command is,
    however it ends.

    The exit status is 0 when it passed, 1 when it failed, 3 when it could not be run.
    """
    if server is not None and policy is not None:
        raise click.UsageError("--policy goes with the twin: a server has its own policies")
    with in_one_line():
        chosen = scenario_of(name)
        if server is None:
            result = _on_twin(chosen, policy, seed)
        else:
            settings = LiveSettings(seed=seed, speed=speed)
            result = _on_server(chosen, server, token_file, settings)
        files = report.write(result, out) if out is not None else []
    for cell in result.cells:
        click.echo("\n".join(cell_lines(cell)))
    for file in files[1:2]:
        click.echo(f"Report: {file}")
    raise SystemExit(EXIT_CODES[result.verdict])


def _on_twin(chosen: Scenario, policy: Path | None, seed: int) -> MatrixResult:
    with progress(1.0, sys.stderr) as show:
        return run_matrix(
            [chosen],
            policy=policy,
            seeds=[seed],
            progress=lambda done, total, said: show(done / total, f"{done} of {total}  {said}"),
        )


def _on_server(
    chosen: Scenario, url: str, token_file: Path | None, settings: LiveSettings
) -> MatrixResult:
    if Runner.TWIN not in chosen.runs_on:
        raise click.UsageError(f"{chosen.name} runs on a command: use headroom matrix run")
    stop = stop_on_signals()
    made = server_of(url, token_file, connections=demo.CONNECTIONS)
    with progress(chosen.duration_s, sys.stderr) as show:
        cell = run_live(made, chosen, settings, is_stopped=stop.is_set, show=show)
    return make_result(
        subject=f"server {url}",
        kind=SubjectKind.POLICY,
        at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        cells=[cell],
        machine={"server": url, "speed": f"{settings.speed:g}"},
        versions={"headroom": __version__},
    )
