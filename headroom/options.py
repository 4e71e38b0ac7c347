"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from headroom.settings import DEFAULT_SERVER

__all__ = ["FILE", "server_option", "token_file_option"]

FILE = click.Path(path_type=Path, dir_okay=False)

server_option = click.option(
    "--server",
    metavar="URL",
    envvar="HEADROOM_URL",
    default=DEFAULT_SERVER,
    show_default=True,
    show_envvar=True,
    help="The Headroom server.",
)
token_file_option = click.option(
    "--token-file",
    type=FILE,
    help="File that holds the token. Else the environment variable HEADROOM_TOKEN is used.",
)
