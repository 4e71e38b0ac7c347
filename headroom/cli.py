"""The command line. What a command needs is imported when it runs, so that help is quick."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headroom import __version__
from headroom.errors import HeadroomError
from headroom.settings import DEFAULT_SERVER

__all__ = ["main"]

_FILE = click.Path(path_type=Path, dir_okay=False)
_POSITIVE = click.FloatRange(min=0, min_open=True)

_server = click.option(
    "--server",
    metavar="URL",
    envvar="HEADROOM_URL",
    default=DEFAULT_SERVER,
    show_default=True,
    show_envvar=True,
    help="The Headroom server.",
)
_token_file = click.option(
    "--token-file",
    type=_FILE,
    help="File that holds the token. Else the environment variable HEADROOM_TOKEN is used.",
)


class _Group(click.Group):
    """Ends the command with one line, not a traceback, for every error of ours."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HeadroomError as exc:
            raise click.ClickException(str(exc)) from exc


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Headroom, outside the server: the node agent and the replay of recordings."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@main.command()
@_server
@_token_file
@click.option("--node", help="This machine's name in the inventory. [default: its host name]")
@click.option("--agent", "agent_name", help="The agent's name on the server. [default: the node's]")
@click.option("--spool", type=_FILE, help="Where batches wait. [default: in the state folder]")
@click.option(
    "--spool-max-mb",
    type=_POSITIVE,
    default=256,
    show_default=True,
    help="Over this size the oldest batches are dropped, and counted.",
)
@click.option(
    "--spool-max-hours",
    type=_POSITIVE,
    default=72,
    show_default=True,
    help="Batches older than this are dropped, and counted.",
)
@click.option(
    "--sample-s", type=_POSITIVE, default=1, show_default=True, help="Seconds between readings."
)
@click.option(
    "--push-s", type=_POSITIVE, default=5, show_default=True, help="Seconds between batches."
)
@click.option("--once", is_flag=True, help="Push one batch and end.")
@click.option("--print", "print_", is_flag=True, help="With --once: print it instead, as JSON.")
def agent(
    server: str,
    token_file: Path | None,
    node: str | None,
    agent_name: str | None,
    spool: Path | None,
    spool_max_mb: float,
    spool_max_hours: float,
    sample_s: float,
    push_s: float,
    once: bool,
    print_: bool,
) -> None:
    """Read this machine's GPUs and host, and push the readings to the server."""
    import socket

    from headroom import logs
    from headroom.agent import command
    from headroom.agent.loop import AgentSettings

    if print_ and not once:
        raise click.UsageError("--print goes with --once")
    logs.set_up()
    node = node or socket.gethostname()
    settings = AgentSettings(agent=agent_name or node, node=node, sample_s=sample_s, push_s=push_s)
    if print_:
        click.echo(command.print_once(settings))
        return
    options = command.AgentOptions(
        server=server,
        token_file=token_file,
        settings=settings,
        spool=spool or command.default_spool(),
        spool_max_mb=spool_max_mb,
        spool_max_hours=spool_max_hours,
    )
    if not command.run_agent(options, once=once):
        sys.exit(1)


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@_server
@_token_file
@click.option(
    "--speed", type=_POSITIVE, default=1, show_default=True, help="Recorded seconds per second."
)
@click.option("--run", metavar="RUN_ID", help="Which run. [default: the first, or all of one node]")
@click.option(
    "--meter",
    type=click.Choice(["ac", "dc"]),
    default="ac",
    show_default=True,
    help="Which meter, where there are two.",
)
@click.option("--limit-s", type=_POSITIVE, help="Play only the first so many recorded seconds.")
@click.option("--loop", is_flag=True, help="Begin anew at the end, until Ctrl-C.")
def replay(
    path: Path,
    server: str,
    token_file: Path | None,
    speed: float,
    run: str | None,
    meter: str,
    limit_s: float | None,
    loop: bool,
) -> None:
    """Play a recording of real machines into a fleet made for it.

    PATH is a folder or a file of published readings: node power during MLPerf training, or wall
    power during MLPerf inference. On a server that `make run` started on this machine, the token of
    its demo is used when none is given.
    """
    from headroom.replay import command

    options = command.ReplayOptions(
        path=path,
        speed=speed,
        server=server,
        token_file=token_file,
        run=run,
        meter=meter,
        limit_s=limit_s,
        loop=loop,
    )
    if not command.run_replay(options, sys.stdout):
        sys.exit(130)
