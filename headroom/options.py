"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from headroom.settings import DEFAULT_SERVER

__all__ = ["FILE", "machine_options", "server_option", "token_file_option"]

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


def machine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands of a machine; the configuration has those left out."""
    for option in reversed(_OF_MACHINES):
        command = option(command)
    return command


_OF_MACHINES = (
    click.option(
        "--config",
        "config_file",
        type=FILE,
        envvar="HEADROOM_AGENT_CONFIG",
        show_envvar=True,
        help="Configuration file. [default: /etc/headroom/agent.toml, where there is one]",
    ),
    click.option(
        "--server",
        metavar="URL",
        envvar="HEADROOM_URL",
        show_envvar=True,
        help=f"The Headroom server. [default: {DEFAULT_SERVER}]",
    ),
    token_file_option,
    click.option("--node", help="This machine's name in the inventory. [default: its host name]"),
)
