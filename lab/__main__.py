"""``python -m lab``: the demo fleet, a recording on a fleet that obeys, and the load generator."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import click

from headroom import logs
from headroom.client import HeadroomError
from headroom.replay.formats import load as read_recording
from lab import demo, load
from lab.commands.shared import server_of, server_options, stop_on_signals
from lab.enroll import Stopped
from lab.recorded import recorded_stage

#: Commands that need the pure cores of policies and admission, by their modules. They are imported
#: when they run: the demo, which goes on for months, does without.
_LATER = {
    "approaches": "lab.approaches.command",
    "calibrate": "lab.commands.calibrate",
    "curtail": "lab.curtailing.command",
    "forecasts": "lab.commands.forecasts",
    "matrix": "lab.commands.matrix",
    "power-curves": "lab.commands.power_curves",
    "replay": "lab.commands.replay",
    "scenario": "lab.commands.scenario",
    "surge": "lab.surges",
    "worker": "lab.spread.options",
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *_LATER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _LATER:
            found: click.Command = getattr(
                import_module(_LATER[cmd_name]), cmd_name.replace("-", "_")
            )
            return found
        return super().get_command(ctx, cmd_name)


@click.group(cls=_Commands)
def main() -> None:
    """A simulated GPU fleet that talks to a Headroom server as a real one does."""
    logs.set_up()


@main.command("demo")
@server_options()
@click.option("--gpus", type=click.IntRange(min=1), default=1536, show_default=True)
@click.option(
    "--sample-s",
    type=click.FloatRange(min=0.1),
    default=5.0,
    show_default=True,
    help="Seconds between two readings of one GPU.",
)
@click.option("--seed", type=int, default=7, show_default=True)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.0),
    default=1.0,
    show_default=True,
    help="Seconds of the twin in each second.",
)
@click.option(
    "--teams/--no-teams",
    default=True,
    show_default=True,
    help="Let a quarter of the nodes run what is queued, and ML teams queue jobs for them.",
)
def run_demo(
    server: str,
    token_file: Path | None,
    gpus: int,
    sample_s: float,
    seed: int,
    speed: float,
    teams: bool,
) -> None:
    """Run the demo fleet until SIGTERM or Ctrl-C."""
    settings = demo.Settings(gpus=gpus, sample_s=sample_s, seed=seed, speed=speed, teams=teams)
    stop = stop_on_signals()
    try:
        made = server_of(server, token_file, connections=demo.CONNECTIONS)
        demo.Demo(made, settings, stop=stop).run()
    except Stopped:
        return
    except HeadroomError as exc:
        raise click.ClickException(str(exc)) from exc


@main.command("recorded")
@server_options()
@click.argument("recording", type=click.Path(exists=True, path_type=Path))
@click.option("--run", help="Which run of the recording.  [default: the first]")
@click.option(
    "--feed-shares",
    type=(click.FloatRange(min=0.1), click.FloatRange(min=0.1)),
    default=(0.92, 1.2),
    show_default=True,
    help="What feeds A and B may carry, as shares of the most that their nodes want.",
)
@click.option("--sample-s", type=click.FloatRange(min=0.1), default=2.0, show_default=True)
@click.option("--seed", type=int, default=7, show_default=True)
def run_recorded(
    server: str,
    token_file: Path | None,
    recording: Path,
    run: str | None,
    feed_shares: tuple[float, float],
    sample_s: float,
    seed: int,
) -> None:
    """Play a recording on a fleet whose agents obey limits, until SIGTERM or Ctrl-C."""
    settings = demo.Settings(sample_s=sample_s, seed=seed)
    stop = stop_on_signals()
    try:
        stage = recorded_stage(
            read_recording(recording, run=run), feed_shares=feed_shares, seed=seed
        )
        made = server_of(server, token_file, connections=demo.CONNECTIONS)
        demo.Demo(made, settings, stop=stop, stage=stage).run()
    except Stopped:
        return
    except HeadroomError as exc:
        raise click.ClickException(str(exc)) from exc


@main.command("load")
@server_options()
@click.option("--gpus", type=click.IntRange(min=1), required=True)
@click.option("--sample-s", type=click.FloatRange(min=0.01), default=10.0, show_default=True)
@click.option(
    "--batch-gpus",
    type=click.IntRange(min=8),
    default=64,
    show_default=True,
    help="GPUs in one batch, a multiple of 8.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0.0),
    help="Rows per second; 0: as fast as the server takes them.  [default: gpus / sample-s]",
)
@click.option("--duration-s", type=click.FloatRange(min=0.0), default=30.0, show_default=True)
@click.option("--drain-timeout-s", type=click.FloatRange(min=0.0), default=120.0, show_default=True)
@click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--max-batches", type=click.IntRange(min=0), default=0, help="0: no limit.")
def run_load(
    server: str,
    token_file: Path | None,
    gpus: int,
    sample_s: float,
    batch_gpus: int,
    rate: float | None,
    duration_s: float,
    drain_timeout_s: float,
    threads: int,
    max_batches: int,
) -> None:
    """Push load, wait until all of it is stored, and print what was done as one JSON object.

    The exit status is 1 when some of it was not stored in time.
    """
    settings = load.Settings(
        gpus=gpus,
        batch_gpus=batch_gpus,
        rate=gpus / sample_s if rate is None else rate,
        duration_s=duration_s,
        threads=threads,
        drain_timeout_s=drain_timeout_s,
        max_batches=max_batches,
    )
    try:
        made = server_of(server, token_file, connections=threads + 1)
        result = load.Load(made, settings, stop=stop_on_signals()).run()
    except HeadroomError as exc:
        raise click.ClickException(str(exc)) from exc
    click.echo(json.dumps(result))
    if result["batches_stored"] != result["batches_made"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
