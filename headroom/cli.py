"""The command line. Dependencies of a command are imported when it runs, so that help is quick."""

from __future__ import annotations

import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

from headroom import __version__
from headroom.checkpoint_commands import checkpoints
from headroom.errors import HeadroomError
from headroom.jobs.commands import COMMANDS
from headroom.jobs.formats.command import convert
from headroom.options import FILE, machine_options, server_option, token_file_option

__all__ = ["main"]

_POSITIVE = click.FloatRange(min=0, min_open=True)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_SHARED_USER = click.option(
    "--shared-user",
    is_flag=True,
    help="Run all jobs as this command's own user: they can read and end each other.",
)
#: Commands of the distribution headroom-lab, by their modules: an agent is installed without it.
_OF_LAB = {"matrix": "lab.matrix.command", "plan": "lab.plan.command"}


class _Group(click.Group):
    """Ends the command with one line, not a traceback, for every error of ours."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_OF_LAB])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _OF_LAB:
            return _command_of_lab(cmd_name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except HeadroomError as exc:
            raise click.ClickException(str(exc)) from exc


def _command_of_lab(name: str) -> click.Command:
    try:
        found: click.Command = getattr(import_module(_OF_LAB[name]), name)
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] != "lab":
            raise
        return _missing(name)
    return found


def _missing(name: str) -> click.Command:
    """Return a command that fails with the extra to install for it."""
    install = f"pip install 'headroom[{name}]'"

    @click.command(
        name,
        short_help=f"Not installed here: {install}",
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
    )
    @click.argument("given", nargs=-1, type=click.UNPROCESSED)
    def missing(**_: object) -> None:
        raise click.ClickException(f"headroom {name} needs: {install}")

    return missing


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Headroom, outside the server: jobs, node agent, replay of recordings, laws of a fleet."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(__version__)


@main.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--sampled", is_flag=True, help="Of samples: quick for data of any size.")
def digest(path: Path, sampled: bool) -> None:
    """Print the digest of a file or folder, to declare it as an input: docs/reference/inputs.md."""
    from headroom.work.inputs import Refused, digest_of

    try:
        click.echo(digest_of(path, sampled=sampled))
    except Refused as exc:
        raise click.ClickException(str(exc)) from exc


@main.command()
@machine_options
@click.option("--agent", "agent_name", help="The agent's name on the server. [default: the node's]")
@click.option("--spool", type=FILE, help="Where batches wait. [default: in the state folder]")
@click.option(
    "--spool-max-mb",
    type=_POSITIVE,
    help="Over this size the oldest readings are thinned, then dropped. [default: 256]",
)
@click.option(
    "--spool-max-hours",
    type=_POSITIVE,
    help="Batches older than this are dropped, and counted. [default: 72]",
)
@click.option("--sample-s", type=_POSITIVE, help="Seconds between readings. [default: 1]")
@click.option("--push-s", type=_POSITIVE, help="Seconds between batches. [default: 5]")
@click.option(
    "--dcgm",
    metavar="URL",
    help="Read this machine's GPUs from this dcgm-exporter instead of NVML.",
)
@click.option(
    "--allow-actuation",
    is_flag=True,
    help="Let the server limit power and clocks of this machine's GPUs.",
)
@click.option("--allow-jobs", is_flag=True, help="Run the jobs that the server places here.")
@_SHARED_USER
@click.option("--once", is_flag=True, help="Push one batch and end.")
@click.option("--print", "print_", is_flag=True, help="With --once: print it instead, as JSON.")
@click.option("--table", is_flag=True, help="With --once: print it instead, as tables.")
def agent(
    config_file: Path | None,
    server: str | None,
    token_file: Path | None,
    node: str | None,
    agent_name: str | None,
    spool: Path | None,
    spool_max_mb: float | None,
    spool_max_hours: float | None,
    sample_s: float | None,
    push_s: float | None,
    dcgm: str | None,
    allow_actuation: bool,
    allow_jobs: bool,
    shared_user: bool,
    once: bool,
    print_: bool,
    table: bool,
) -> None:
    """Read this machine's GPUs, host, links and storage, and push the readings to the server."""
    from headroom import logs
    from headroom.agent import command, config

    if (print_ or table) and not once:
        raise click.UsageError("--print and --table go with --once")
    if allow_actuation and once:
        raise click.UsageError("--allow-actuation does not go with --once: a lease needs a keeper")
    if allow_jobs and once:
        raise click.UsageError("--allow-jobs does not go with --once: jobs need a keeper")
    logs.set_up()
    given = config.overlaid(
        config.load(config_file),
        server=server,
        token_file=token_file,
        node=node,
        agent=agent_name,
        sample_s=sample_s,
        push_s=push_s,
        allow_actuation=allow_actuation,
        allow_jobs=allow_jobs,
        shared_user=shared_user,
        spool_file=spool,
        spool_max_mb=spool_max_mb,
        spool_max_hours=spool_max_hours,
        dcgm=dcgm,
    )
    options = command.options_of(given, config_file)
    if print_ or table:
        click.echo(command.print_once(options, is_table=table))
    elif not command.run_agent(options, once=once):
        sys.exit(1)


@main.command()
@machine_options
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where jobs are kept. [default: in the state folder]",
)
@click.option("--allow-jobs", is_flag=True, help="Run the jobs that the server places here.")
@_SHARED_USER
def work(
    config_file: Path | None,
    server: str | None,
    token_file: Path | None,
    node: str | None,
    folder: Path | None,
    allow_jobs: bool,
    shared_user: bool,
) -> None:
    """Run jobs that the server places on this machine, and read nothing of it.

    For machines that send their readings otherwise. Jobs outlive this command: started again, it
    finds them.
    """
    from headroom import logs
    from headroom.agent import command, config

    logs.set_up()
    given = config.overlaid(
        config.load(config_file),
        server=server,
        token_file=token_file,
        node=node,
        allow_jobs=allow_jobs,
        shared_user=shared_user,
        work_folder=folder,
    )
    if not given.allow_jobs:
        raise click.UsageError(
            "running commands of the server is off: give --allow-jobs, or allow_jobs = true in the "
            "configuration file"
        )
    command.run_jobs(command.options_of(given, config_file))


@main.group()
def slurm() -> None:
    """Stand between a Slurm cluster and the server: see docs/how-to/turn-on-beside-slurm.md."""


@slurm.command("run")
@server_option
@token_file_option
@click.option("--name", required=True, help="The cluster's name on the server.")
@click.option(
    "--run-dir",
    type=_FOLDER,
    default=Path("/run/headroom-slurm"),
    show_default=True,
    help="What job_submit.lua and PrologSlurmctld read.",
)
@click.option("--shared-dir", type=_FOLDER, help="Where jobs find directives. [default: none]")
@click.option(
    "--when-away",
    type=click.Choice(["open", "closed"]),
    default="closed",
    show_default=True,
    help="Without the server: let jobs start, or have them wait.",
)
@click.option(
    "--away-s",
    type=_POSITIVE,
    default=60.0,
    show_default=True,
    help="With --when-away open: seconds without the server until held jobs are let go.",
)
@click.option(
    "--node-name",
    default="{node}",
    show_default=True,
    help="The inventory's name of a node; {node} stands for Slurm's.",
)
def slurm_run(
    server: str,
    token_file: Path | None,
    name: str,
    run_dir: Path,
    shared_dir: Path | None,
    when_away: str,
    away_s: float,
    node_name: str,
) -> None:
    """Report the cluster's jobs and nodes to the server, and carry out what it decides.

    On the machine of slurmctld, as SlurmUser or root.
    """
    from headroom import logs
    from headroom.client import Client
    from headroom.schedulers.contract import WhenAway
    from headroom.settings import find_token
    from headroom.signals import call_on_stop
    from headroom.slurm.bridge import Bridge, BridgeSettings

    logs.set_up()
    settings = BridgeSettings(
        name=name,
        when_away=WhenAway(when_away),
        away_s=away_s,
        run_dir=run_dir,
        shared_dir=shared_dir,
        node_name=node_name,
    )
    with Client(server, find_token(token_file)) as client:
        bridge = Bridge(settings, client)
        call_on_stop(bridge.stop.set)
        bridge.run()


@slurm.command("let-go")
@click.option(
    "--run-dir", type=_FOLDER, default=Path("/run/headroom-slurm"), help="As given to run."
)
def slurm_let_go(run_dir: Path) -> None:
    """Lift all holds and drains of Headroom, as if it had never been there.

    Stop "headroom slurm run" and take job_submit.lua out before: new jobs would be held again.
    """
    from headroom.slurm.bridge import let_all_go
    from headroom.slurm.commands import Slurm

    done = let_all_go(Slurm(), run_dir)
    click.echo(f"{done.jobs} jobs and {done.nodes} nodes were let go")


@slurm.command("measure")
@click.option(
    "--shared-dir",
    type=_FOLDER,
    envvar="HEADROOM_SLURM_SHARED_DIR",
    required=True,
    help="As given to run. [env: HEADROOM_SLURM_SHARED_DIR]",
)
@click.option("--job", envvar="SLURM_JOB_ID", required=True, help="[default: the one it is in]")
def slurm_measure(shared_dir: Path, job: str) -> None:
    """Measure the artifacts that this job says it makes, once its command has succeeded.

    The last line of a batch script: it ends with 126 where one is not there.
    """
    from headroom.slurm.commands import Slurm
    from headroom.slurm.measuring import measure_of
    from headroom.work.inputs import Refused

    try:
        measure_of(job, shared_dir, Slurm())
    except Refused as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(126)


@main.group()
def kueue() -> None:
    """Stand between a cluster with Kueue and the server: docs/how-to/turn-on-beside-kueue.md."""


_KUBECONFIG = click.option(
    "--kubeconfig",
    metavar="FILE",
    help="How the cluster is reached. [default: KUBECONFIG, or the pod's service account]",
)


@kueue.command("run")
@server_option
@token_file_option
@click.option("--name", required=True, help="The cluster's name on the server.")
@_KUBECONFIG
@click.option(
    "--namespace",
    default="headroom",
    show_default=True,
    help="Where the Lease is by which one of several leads.",
)
@click.option("--lease", default="headroom-kueue", show_default=True, help="That Lease's name.")
@click.option("--identity", help="Who this is among several. [default: the host's name]")
def kueue_run(
    server: str,
    token_file: Path | None,
    name: str,
    kubeconfig: str | None,
    namespace: str,
    lease: str,
    identity: str | None,
) -> None:
    """Report the cluster's workloads and nodes to the server, and carry out what it decides.

    Several may run: one of them leads. What operators choose is in a HeadroomCheck.
    """
    import socket

    from headroom import logs
    from headroom.client import Client
    from headroom.settings import find_token
    from headroom.signals import call_on_stop

    api, bridges = _kueue()
    logs.set_up()
    settings = bridges.BridgeSettings(
        name=name,
        identity=identity or socket.gethostname(),
        leading=bridges.Leading(name=lease, namespace=namespace),
    )
    with Client(server, find_token(token_file)) as client, closing(api.Api(kubeconfig)) as cluster:
        bridge = bridges.Bridge(settings, client, cluster)
        call_on_stop(bridge.stop.set)
        bridge.run()


@kueue.command("let-go")
@_KUBECONFIG
def kueue_let_go(kubeconfig: str | None) -> None:
    """Admit what waits, and undo cordons, taints and labels of Headroom.

    Take the check out of all ClusterQueues and stop "headroom kueue run" before: new workloads
    would wait again.
    """
    api, bridges = _kueue()
    with closing(api.Api(kubeconfig)) as cluster:
        done = bridges.let_all_go(cluster)
    click.echo(f"{done.workloads} workloads and {done.nodes} nodes were let go")


def _kueue() -> tuple[ModuleType, ModuleType]:
    """Return the modules of the API and of the bridge, which not every machine can import."""
    try:
        return import_module("headroom.kueue.api"), import_module("headroom.kueue.bridge")
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] == "headroom":
            raise
        raise click.ClickException("headroom kueue needs: pip install 'headroom[kueue]'") from exc


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@server_option
@token_file_option
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
@click.option("--machine", default="", help="The machines recorded. [default: as described]")
@click.option("--description", type=FILE, help="What was recorded. [default: beside it]")
@click.option("--limit-s", type=_POSITIVE, help="Play only the first so many recorded seconds.")
@click.option("--loop", is_flag=True, help="Begin anew at the end, until Ctrl-C.")
def replay(
    path: Path,
    server: str,
    token_file: Path | None,
    speed: float,
    run: str | None,
    meter: str,
    machine: str,
    description: Path | None,
    limit_s: float | None,
    loop: bool,
) -> None:
    """Play a recording of real machines into a fleet made for it.

    PATH is a folder or a file of published readings: node power during MLPerf training, or wall
    power during MLPerf inference; or any CSV file of power that a description beside it explains.
    On a server that `make run` started on this machine, the token of its demo is used when none is
    given.
    """
    from headroom.replay import command

    options = command.ReplayOptions(
        path=path,
        speed=speed,
        server=server,
        token_file=token_file,
        run=run,
        meter=meter,
        machine=machine,
        description=description,
        limit_s=limit_s,
        loop=loop,
    )
    if not command.run_replay(options, sys.stdout):
        sys.exit(130)


for _command in (checkpoints, convert, *COMMANDS):
    main.add_command(_command)
