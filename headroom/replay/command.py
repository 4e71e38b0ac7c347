"""``headroom replay``: make the fleet, play the recording, sum it up."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click

from headroom.client import Client
from headroom.replay.fleet import ReplayFleet, make_fleet
from headroom.replay.formats import load
from headroom.replay.player import Frame, Player, Progress
from headroom.replay.recording import GAP_S, Recording, summarize
from headroom.settings import find_token
from headroom.signals import call_on_stop

__all__ = ["ReplayOptions", "run_replay"]

#: How often a line is printed where there is no terminal, s.
_LINE_EVERY_S = 5.0


@dataclass(frozen=True)
class ReplayOptions:
    """The options of ``headroom replay``."""

    path: Path
    speed: float
    server: str
    token_file: Path | None
    run: str | None
    meter: str
    limit_s: float | None
    loop: bool
    machine: str = ""
    description: Path | None = None


def run_replay(options: ReplayOptions, out: TextIO) -> bool:
    """Play a recording; return False when it was stopped before its end."""
    recording = load(
        options.path,
        run=options.run,
        meter=options.meter,
        machine=options.machine,
        description=options.description,
    )
    if options.limit_s is not None:
        recording = recording.first(options.limit_s)
    fleet = make_fleet(recording)
    token = find_token(options.token_file, local_server=options.server, local_file="replay-token")
    with Client(options.server, token) as user:
        _announce(recording, fleet, options, out)
        user.post_yaml("/api/v1/fleet/apply", fleet.inventory)
        enrolled = _enroll(user, fleet, any_job=bool(recording.job))
        agent = user.with_token(enrolled["token"])
        with _quiet(), _progress(recording, out) as progress:
            player = Player(recording, fleet, agent, speed=options.speed, progress=progress)
            call_on_stop(player.stop)
            started = time.monotonic()
            player.play(loop=options.loop)
            player.settle()
            took_s = time.monotonic() - started
        _retire(user, make_fleet(recording, is_over=True), enrolled["id"])
    _report(recording, player, took_s, out)
    return not player.stopped


def _enroll(user: Client, fleet: ReplayFleet, *, any_job: bool) -> dict[str, Any]:
    """Return id and token of the agent of the fleet's site. A token of an earlier replay ends.

    ``any_job``: the recording is of a job, which Headroom has placed nowhere.
    """
    document = {"name": fleet.site, "nodes": [], "sites": [fleet.site], "any_job": any_job}
    enrolled: dict[str, Any] = user.post("/api/v1/agents", document, {"rotate": "1"})
    return enrolled


def _retire(user: Client, fleet: ReplayFleet, agent: int) -> None:
    """Take the site out of the fleet: what was recorded draws nothing here, and fell not silent.

    Its readings stay. The next replay puts it back.
    """
    user.post_yaml("/api/v1/fleet/apply", fleet.inventory)
    user.post(f"/api/v1/agents/{agent}/revoke", None)


def _announce(
    recording: Recording, fleet: ReplayFleet, options: ReplayOptions, out: TextIO
) -> None:
    runs = recording.runs[0] if len(recording.runs) == 1 else f"{len(recording.runs)} runs"
    nodes = f"{len(recording.nodes)} node{'s' * (len(recording.nodes) != 1)}"
    what = f"{len(recording):,} readings of {nodes}"
    if not recording.nodes:
        what = f"{len(recording.job_points):,} reports of job {recording.job}"
    click.echo(
        f"Playing {options.path} ({runs}): {what}, {_clock(recording.duration_s)} at "
        f"{options.speed:g}x, into site {fleet.site} at {options.server}",
        file=out,
    )


def _report(recording: Recording, player: Player, took_s: float, out: TextIO) -> None:
    verb = "Stopped after" if player.stopped else "Played"
    ended = (
        f"{verb} {_clock(player.recorded_s)} of {_clock(recording.duration_s)} in {took_s:.1f} s."
    )
    if not recording.nodes:
        told = f"  reports of the job  {player.steps:,} sent, all durable on the server"
        click.echo(f"{ended}\n{told}", file=out)
        return
    summary = summarize(recording, player.position)
    lines = [
        ended,
        f"  readings          {player.sent:,} sent, {player.durable:,} durable on the server",
        f"  energy            {summary.energy_kwh:,.2f} kWh",
        f"  gaps over {GAP_S:.0f} s    {summary.gaps} (longest {summary.longest_gap_s:.1f} s)",
        f"  zero or negative  {summary.non_positive}",
        "Its site is no part of the fleet any more; its nodes' pages keep what was read.",
    ]
    click.echo("\n".join(lines), file=out)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


def _describe(frame: Frame | None) -> str:
    if frame is None:
        return ""
    text = (
        f"{_clock(frame.recorded_s)}  {frame.sent:,} sent  {frame.durable:,} durable  "
        f"{frame.power_w / 1000:,.1f} kW"
    )
    return f"{text}  WAITING: {frame.obstacle}" if frame.obstacle else text


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold the logs back: errors are shown as progress, and a line would tear the bar."""
    logger = logging.getLogger("headroom")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _progress(recording: Recording, out: TextIO) -> Iterator[Progress]:
    """Yield a bar on a terminal, and lines now and then elsewhere."""
    if not out.isatty():
        yield _Lines(out)
        return
    length = max(1, round(recording.duration_s))
    with click.progressbar(
        length=length,
        file=out,
        width=24,
        show_eta=False,
        show_percent=True,
        item_show_func=_describe,
    ) as bar:
        yield _Bar(bar)


class _Bar:
    def __init__(self, bar: Any) -> None:  # click does not export the type
        self._bar = bar

    def show(self, frame: Frame) -> None:
        """Move the bar; back to its start when a loop begins anew."""
        self._bar.pos = 0
        self._bar.finished = False
        self._bar.update(round(frame.recorded_s), frame)


class _Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._next_at = 0.0

    def show(self, frame: Frame) -> None:
        if time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + _LINE_EVERY_S
            click.echo(_describe(frame), file=self._out)
