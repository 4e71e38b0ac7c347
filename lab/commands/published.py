"""Options of commands that hold the twin, or a method, against published data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from lab.calibration.sources import DATA_FOLDER

__all__ = ["data_option", "json_option"]

Command = TypeVar("Command", bound=Callable[..., Any])


def data_option(*names: str) -> Callable[[Command], Command]:
    """Add the option that says where the data sets are: those of ``names``, or all of them."""
    which = f" {' and '.join(names)}" if names else ""
    return click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HEADROOM_TEST_DATA",
        default=DATA_FOLDER,
        show_default=True,
        help=f"Folder that holds the data sets{which}.",
    )


def json_option(command: Command) -> Command:
    """Add the option that says where results are written as JSON."""
    return click.option(
        "--json",
        "json_file",
        metavar="FILE",
        help="Write all of it there as JSON, too; -: to standard output, instead of the table.",
    )(command)
