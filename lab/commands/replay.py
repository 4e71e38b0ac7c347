"""``python -m lab replay``: job traces and power series, against a server or on the twin."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from headroom.client import Client
from headroom.replay.command import ReplayOptions, run_replay
from headroom.replay.formats import load as read_recording
from headroom.settings import find_token
from lab.commands.matrix import FOLDER
from lab.commands.shared import in_one_line, progress, server_options, stop_on_signals
from lab.fleet import make_even_fleet
from lab.live.jobs import Manner, Submitter, job_document, set_up_project
from lab.matrix.report import words
from lab.replayed import replayed
from lab.scenarios.policies import load_policy
from lab.traces import JobTrace, TraceError, openb, philly, swf
from lab.traces.arrivals import arrivals
from lab.world import World
from lab.world.record import Record

__all__ = ["replay"]

_READERS: Mapping[str, Callable[[Path], JobTrace]] = {
    "philly": philly.load,
    "openb": openb.load,
    "swf": swf.load,
}
_TICK_S = 0.2
_HOUR_S = 3600.0


@click.group()
def replay() -> None:
    """Play published traces: jobs as they came, or power as it was drawn."""


@replay.command("jobs")
@click.argument("trace", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(sorted(_READERS)), help="[default: by the file's name]"
)
@click.option("--twin", is_flag=True, help="Play it on the twin, in process.")
@server_options(default=None)
@click.option(
    "--speed",
    type=click.FloatRange(min=0.01),
    default=60.0,
    show_default=True,
    help="With --server: seconds of the trace in each second; jobs are as much shorter.",
)
@click.option(
    "--from-h", type=click.FloatRange(min=0.0), default=0.0, help="Begin so far into the trace, h."
)
@click.option("--for-h", type=click.FloatRange(min=0.0), help="So much of it, h.  [default: all]")
@click.option("--most-gpus", type=click.IntRange(min=1), help="Leave out larger jobs.")
@click.option("--job-class", default="high-density-training", show_default=True)
@click.option("--site", "sites", multiple=True, help="Where jobs may run.  [default: anywhere]")
@click.option("--gpus", type=click.IntRange(min=1), default=512, show_default=True,
              help="With --twin: size of the fleet.")  # fmt: skip
@click.option("--tightness", type=click.FloatRange(min=0.1), default=1.0, show_default=True,
              help="With --twin: power budgets over what all GPUs draw at most.")  # fmt: skip
@click.option("--policy", type=FOLDER, help="With --twin: folder of the policy.")
@click.option("--seed", type=int, default=1, show_default=True)
def jobs(
    trace: Path,
    form: str | None,
    twin: bool,
    server: str | None,
    token_file: Path | None,
    speed: float,
    from_h: float,
    for_h: float | None,
    most_gpus: int | None,
    job_class: str,
    sites: tuple[str, ...],
    gpus: int,
    tightness: float,
    policy: Path | None,
    seed: int,
) -> None:
    """Submit the jobs of a TRACE when they came: Philly, OpenB or the standard workload format."""
    if twin == (server is not None):
        raise click.UsageError("give either --twin or --server URL")
    with in_one_line():
        found = _part(_read(trace, form), from_h, for_h, most_gpus)
        click.echo(str(found))
        if server is None:
            fleet = _TwinFleet(gpus, tightness, policy, seed)
            _jobs_on_twin(found, fleet)
            return
        with Client(server, find_token(token_file, local_server=server)) as client:
            manner = Manner(
                run=f"t{secrets.token_hex(3)}",
                project=f"replay-{_form_of(trace, form)}",
                job_class=job_class,
                sites=sites,
                faster=speed,
            )
            _jobs_to_server(client, found, manner, seed)


@replay.command("power")
@click.argument("recording", type=click.Path(exists=True, path_type=Path))
@click.option("--twin", is_flag=True, help="Play it on the twin, in process.")
@server_options(default=None)
@click.option("--speed", type=click.FloatRange(min=0.01), default=1.0, show_default=True,
              help="With --server: recorded seconds in each second.")  # fmt: skip
@click.option("--run", help="Which run of the recording.  [default: the first]")
@click.option("--meter", type=click.Choice(["ac", "dc"]), default="ac", show_default=True)
@click.option("--first-s", type=click.FloatRange(min=1.0), help="Only its first seconds.")
@click.option("--loop", is_flag=True, help="With --server: again and again, until it is stopped.")
@click.option("--step-s", type=click.FloatRange(min=0.1), default=2.0, show_default=True,
              help="With --twin: length of a step.")  # fmt: skip
@click.option("--seed", type=int, default=7, show_default=True)
def power(
    recording: Path,
    twin: bool,
    server: str | None,
    token_file: Path | None,
    speed: float,
    run: str | None,
    meter: str,
    first_s: float | None,
    loop: bool,
    step_s: float,
    seed: int,
) -> None:
    """Play the power that real nodes drew: a RECORDING that headroom replay reads.

    To a server it goes as readings of meters, as with headroom replay. On the twin, nodes want what
    the recorded ones drew, and it is told how near they came.
    """
    if twin == (server is not None):
        raise click.UsageError("give either --twin or --server URL")
    with in_one_line():
        if server is not None:
            options = ReplayOptions(
                path=recording, speed=speed, server=server, token_file=token_file, run=run,
                meter=meter, limit_s=first_s, loop=loop,
            )  # fmt: skip
            raise SystemExit(0 if run_replay(options, sys.stdout) else 1)
        found = read_recording(recording, run=run, meter=meter)
        if first_s is not None:
            found = found.first(first_s)
        with progress(found.duration_s, sys.stderr) as show:
            told = replayed(
                found,
                step_s=step_s,
                seed=seed,
                progress=lambda at_s: show(at_s, words.clock(at_s)),
            )
    click.echo("\n".join(told.lines()))


# Jobs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TwinFleet:
    """Options of the twin's fleet that a trace is played on in process."""

    gpus: int
    tightness: float
    policy: Path | None
    seed: int


def _form_of(path: Path, form: str | None) -> str:
    """Return the format of a trace, by the names of its file and folder where it is not given."""
    names = f"{path.parent.name}/{path.name}".lower()
    marks = {"philly": "philly", "openb": "openb", "pods": "openb", ".swf": "swf"}
    found = form or next((each for mark, each in marks.items() if mark in names), None)
    if found is None:
        raise click.UsageError(f"{path} does not tell its format by its name: give --format")
    return found


def _read(path: Path, form: str | None) -> JobTrace:
    try:
        return _READERS[_form_of(path, form)](path)
    except TraceError as exc:
        raise click.ClickException(str(exc)) from exc


def _part(trace: JobTrace, from_h: float, for_h: float | None, most_gpus: int | None) -> JobTrace:
    until_s = np.inf if for_h is None else (from_h + for_h) * _HOUR_S
    part = trace.between(from_h * _HOUR_S, until_s)
    if most_gpus is not None:
        rows = np.flatnonzero(part.gpus <= most_gpus)
        left = dict(part.left_out) | {f"of more than {most_gpus} GPUs": len(part) - len(rows)}
        part = replace(part.take(rows), left_out=left)
    if not len(part):
        raise click.ClickException("no job of the trace is in this part of it")
    return part


def _jobs_on_twin(trace: JobTrace, fleet: _TwinFleet) -> None:
    """Play the jobs until the last one has come, in as many steps as the bar shows."""
    world = World(
        make_even_fleet(gpus=fleet.gpus, sites=2, power_share=fleet.tightness),
        arrivals(trace, seed=fleet.seed),
        load_policy(fleet.policy),
        seed=fleet.seed,
    )
    until_s = float(trace.submit_s[-1]) + _HOUR_S
    begun = time.monotonic()
    with progress(until_s, sys.stderr) as show:
        record = world.run(until_s, lambda at_s: show(at_s, words.length(at_s)))
    click.echo("\n".join(_told(record, time.monotonic() - begun)))


def _told(record: Record, took_s: float) -> list[str]:
    waits = [job.wait_s for job in record.jobs if job.wait_s is not None]
    states = dict.fromkeys(sorted({job.state for job in record.jobs}), 0)
    for job in record.jobs:
        states[job.state] += 1
    waited = [f"p{share} {words.length(float(np.percentile(waits, share)))}" for share in (50, 95)]
    return [
        f"{words.length(record.until_s)} in {words.length(took_s)}"
        f" ({record.until_s / max(took_s, 1e-9):,.0f} x real time)",
        f"  jobs         {', '.join(f'{count:,} {state}' for state, count in states.items())}",
        f"  work         {words.quantity(record.work_gpu_s, 'GPU s')} done,"
        f" {words.quantity(record.lost_gpu_s, 'GPU s')} lost",
        f"  waits        {', '.join(waited) if waits else 'nothing began'}",
        f"  energy       {words.quantity(record.energy_j, 'J')}",
        f"  over budget  {words.length(record.over_budget_s['any'])}",
        f"  throttled    {words.quantity(record.unexpected_throttle_gpu_s, 'GPU s')} unexpected",
        f"  digest       {record.digest[:16]}",
    ]


def _jobs_to_server(client: Client, trace: JobTrace, manner: Manner, seed: int) -> None:
    """Submit the jobs at the trace's times, until the last one is in or a signal comes."""
    found = arrivals(trace, seed=seed)
    submitter = Submitter(
        client, [job_document(each, manner) for each in found], [each.at_s for each in found]
    )
    set_up_project(client, manner.project, f"Replay of {trace.name}")
    stop = stop_on_signals()
    begun = time.monotonic()
    with progress(max(found[-1].at_s, 1.0), sys.stderr) as show:
        while not submitter.done and not stop.is_set():
            at_s = (time.monotonic() - begun) * manner.faster
            submitter.step(at_s)
            show(at_s, _submitted(submitter, at_s))
            stop.wait(_TICK_S)
    click.echo(f"{_submitted(submitter, (time.monotonic() - begun) * manner.faster)}.")
    for refusal in submitter.refusals:
        click.echo(f"  {refusal}")
    if submitter.accepted:
        click.echo(f"Jobs are named {manner.run}-…, in project {manner.project}.")
    if not submitter.accepted:
        raise SystemExit(1)


def _submitted(submitter: Submitter, at_s: float) -> str:
    waits = sum(due_s <= at_s for due_s in submitter.due_s[submitter.place :])
    behind = f", {waits:,} due" if waits else ""
    played_s = min(at_s, submitter.due_s[-1])
    return (
        f"{words.length(played_s)} of the trace, {len(submitter.accepted):,} of "
        f"{len(submitter.documents):,} jobs in, {submitter.refused:,} refused{behind}"
    )
