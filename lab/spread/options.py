"""The options of commands that run parts side by side, and ``python -m lab worker``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headroom.errors import HeadroomError
from lab.spread.kept import Kept
from lab.spread.running import Where

__all__ = ["spread_of", "spread_options", "worker"]

Command = TypeVar("Command", bound=Callable[..., Any])

_FOLDER = Path("build/runs")
_BROKER_VARIABLE = "HEADROOM_LAB_BROKER"


def spread_options(command: Command) -> Command:
    """Add ``--workers``, ``--broker``, ``--kept`` and ``--fresh``: see :func:`spread_of`."""
    for option in (
        click.option(
            "--fresh", is_flag=True, help="Run all of it again, also what was run before."
        ),
        click.option(
            "--kept",
            type=click.Path(path_type=Path, file_okay=False),
            default=_FOLDER,
            show_default=True,
            help="Folder of results by content: what was run before is not run again.",
        ),
        click.option(
            "--broker",
            metavar="URL",
            envvar=_BROKER_VARIABLE,
            help="Redis or Valkey of workers on any hosts: python -m lab worker.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            help="Processes on this machine.  [default: one for each core]",
        ),
    ):
        command = option(command)
    return command


def spread_of(
    workers: int | None, broker: str | None, kept: Path, *, fresh: bool
) -> tuple[Where, Kept | None]:
    """Return where parts run, and what is kept of earlier ones, by the options of a command."""
    if workers is not None and broker is not None:
        raise click.UsageError("--workers are processes here: with --broker, workers say how many")
    where = Where(workers, broker, say=lambda said: click.echo(said, err=True))
    return where, None if fresh else Kept(kept)


@click.command("worker")
@click.option("--broker", metavar="URL", envvar=_BROKER_VARIABLE, required=True,
              help="Redis or Valkey. What is in a command line can be read by others on the host: "
              f"with a password, take {_BROKER_VARIABLE}.")  # fmt: skip
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=lambda: os.cpu_count() or 1,
    show_default="one for each core",
)
def worker(broker: str, processes: int) -> None:
    """Run parts of matrices, comparisons and calibrations for others, until SIGTERM.

    It takes only tasks of the very code that it has itself, and whose last bits it computes alike.
    """
    # Celery is imported only where there is a broker.
    from lab.spread.broker import serve

    try:
        serve(broker, processes=processes)
    except HeadroomError as error:
        raise click.ClickException(str(error)) from error
