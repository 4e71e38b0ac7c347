"""``headroom submit``, ``queue``, ``explain``, ``cancel``, ``hold``, ``release`` and ``watch``.

What they need is imported when they run, so that help is quick.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headroom.options import server_option, token_file_option

if TYPE_CHECKING:
    from headroom.jobs.asking import Jobs

__all__ = ["COMMANDS"]

Command = TypeVar("Command", bound=Callable[..., Any])

#: Exit status of commands about jobs, besides 0, 1 (an error) and 2 (wrong use).
WOULD_WAIT, FAILED, CANCELLED, STOPPED = 3, 4, 5, 130
_STATUS = {"succeeded": 0, "failed": FAILED, "cancelled": CANCELLED}
_WATCH_EVERY_S = 2.0
_sleep = time.sleep

_json = click.option("--json", "as_json", is_flag=True, help="Print the server's answer, as JSON.")


def _asks(command: Command) -> Command:
    """Add the options that locate the server and the token."""
    return server_option(token_file_option(command))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Say what would become of it; submit nothing.")
@click.option("--watch", "and_watch", is_flag=True, help="Follow it until it is over.")
@click.option(
    "--key",
    default="",
    metavar="KEY",
    help="Sent again with the same key, the same job is answered with: for scripts that try again.",
)
@_json
@_asks
def submit(
    file: Path,
    dry_run: bool,
    and_watch: bool,
    key: str,
    as_json: bool,
    server: str,
    token_file: Path | None,
) -> None:
    """Queue the job that FILE specifies, in YAML or JSON; - is standard input.

    With --dry-run the exit status is 3 where some phase would wait.
    """
    if and_watch and (dry_run or as_json):
        raise click.UsageError("--watch goes neither with --dry-run nor with --json")
    from headroom.jobs import words

    body, is_yaml = _read(file)
    jobs = _jobs(server, token_file)
    if dry_run:
        answer = jobs.dry_run(body, is_yaml=is_yaml)
        _print(answer, words.dry_run(answer), as_json=as_json)
        waits = any(not each["starts"] and not each["after"] for each in answer["phases"])
        sys.exit(WOULD_WAIT if waits else 0)
    answer = jobs.submit(body, is_yaml=is_yaml, key=key)
    _print(answer, [words.submitted(answer)], as_json=as_json)
    if and_watch:
        sys.exit(_follow(jobs, answer["name"]))


@click.command()
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    help="Phases to show, from the first on.",
)
@_json
@_asks
def queue(count: int, as_json: bool, server: str, token_file: Path | None) -> None:
    """Show what waits, why, and when it is likely to begin."""
    from headroom.jobs import words

    answer = _jobs(server, token_file).queue(count)
    _print(answer, words.queue(answer, time.time()), as_json=as_json)


@click.command()
@click.argument("job")
@_json
@_asks
def explain(job: str, as_json: bool, server: str, token_file: Path | None) -> None:
    """Say why JOB does not run, and what would start it now."""
    from headroom.jobs import words

    jobs = _jobs(server, token_file)
    answer = jobs.explain(job)
    lines = [] if as_json else words.explained(answer, jobs.job(job), time.time())
    _print(answer, lines, as_json=as_json)


def _verb(name: str, done: str, text: str, *, says_why: bool) -> click.Command:
    """Return a command that does one thing to jobs."""

    def act(
        jobs: tuple[str, ...],
        as_json: bool,
        server: str,
        token_file: Path | None,
        why: str = "",
    ) -> None:
        asking = _jobs(server, token_file)
        for job in jobs:
            answer = asking.act(job, name, why)
            _print(answer, [f"{answer['name']} {done}."], as_json=as_json)

    command = click.argument("jobs", metavar="JOB...", nargs=-1, required=True)(_json(_asks(act)))
    if says_why:
        command = click.option("--why", default="", help="Kept in its history.")(command)
    return click.command(name, help=text)(command)


cancel = _verb(
    "cancel",
    "is cancelled: what runs of it is told to stop",
    "End jobs. What runs is told to stop.",
    says_why=True,
)
hold = _verb(
    "hold",
    "is held: none of its phases begins",
    "Let no phase of jobs begin. What runs goes on.",
    says_why=True,
)
release = _verb("release", "may begin", "Let held jobs begin.", says_why=False)


@click.command()
@click.argument("job")
@_asks
def watch(job: str, server: str, token_file: Path | None) -> None:
    """Follow JOB until it is over.

    The exit status is 0 where it succeeded, 4 where it failed, and 5 where it was cancelled. Ctrl-C
    ends this command, not the job.
    """
    sys.exit(_follow(_jobs(server, token_file), job))


COMMANDS = (submit, queue, explain, cancel, hold, release, watch)


# --- Shared --------------------------------------------------------------------------------------


def _jobs(server: str, token_file: Path | None) -> Jobs:
    from headroom.client import Client
    from headroom.jobs.asking import Jobs
    from headroom.settings import find_token

    return Jobs(Client(server, find_token(token_file, demo_server=server)))


def _read(file: Path) -> tuple[bytes, bool]:
    """Return a specification and whether it is YAML, checked as far as that goes without a server.

    Whatever is not called .json is YAML, of which JSON is a part.
    """
    from headroom.documents import told
    from headroom.jobs import reading

    is_yaml = file.suffix.lower() != ".json"
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as exc:
        raise click.ClickException(f"{file} cannot be read: {exc.strerror}") from exc
    try:
        reading.read(body, reading.YAML if is_yaml else reading.JSON)
    except reading.SpecError as exc:
        for problem in exc.problems:
            click.echo(f"{file}: {told(problem)}", err=True)
        raise click.ClickException(f"{file} is no job; nothing was submitted") from exc
    return body, is_yaml


def _print(answer: Any, lines: Sequence[str] | Any, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return
    for line in lines:
        click.echo(line)


def _follow(jobs: Jobs, name: str) -> int:
    """Print the events of a job until it is over; return the exit status for its end."""
    from headroom.jobs import words

    def complain(why: str) -> None:
        click.echo(f"waiting for the server: {why}", err=True)

    try:
        for event in jobs.watch(name, every_s=_WATCH_EVERY_S, sleep=_sleep, complain=complain):
            click.echo(words.event(event))
        job = jobs.job(name)
    except KeyboardInterrupt:
        click.echo(f"{name} goes on; to end it: headroom cancel {name}", err=True)
        return STOPPED
    click.echo(words.state(job, time.time()))
    return _STATUS.get(job["state"], 1)
