"""``headroom submit``, ``list``, ``queue``, ``explain``, ``logs``, ``watch`` and what changes jobs.

What they need is imported when they run, so that help is quick.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headroom.options import server_option, token_file_option

if TYPE_CHECKING:
    from headroom.jobs.asking import Jobs
    from headroom.jobs.following import Reader

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
@click.option("--array", metavar="INDICES", help="Many runs of it: 0-99%10 is 100, ten at once.")
@click.option(
    "--needs",
    "wanted",
    multiple=True,
    metavar="JOB[:WHEN[+S]]",
    help="Begin after JOB has succeeded, or has failed, ended or started, S seconds later.",
)
@click.option(
    "--needs-same",
    "wanted_same",
    multiple=True,
    metavar="JOB[:WHEN[+S]]",
    help="The same for each element of an array: it needs that of JOB with its index.",
)
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
    array: str | None,
    wanted: tuple[str, ...],
    wanted_same: tuple[str, ...],
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

    needs = [_need("--needs", text) for text in wanted]
    needs += [_need("--needs-same", text) | {"element": "same"} for text in wanted_same]
    body, is_yaml = _read(file, array, needs)
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


@click.command()
@click.argument("job")
@_json
@_asks
def artifacts(job: str, as_json: bool, server: str, token_file: Path | None) -> None:
    """Show what the phases of JOB make and hand on, and where each artifact is."""
    from headroom.jobs import words

    answer = _jobs(server, token_file).artifacts(job)
    _print(answer, words.artifacts(answer), as_json=as_json)


_ALONE = ("project", "class", "phase", "site", "rack")


def _alone(command: Callable[..., None]) -> Callable[..., None]:
    """Add options for what of the fleet is asked for alone."""
    for name in reversed(_ALONE):
        command = click.option(f"--{name}", f"only_{name}", help=f"Of this {name} alone.")(command)
    return command


@click.command()
@click.argument("job", required=False)
@click.option("--range", "span", metavar="SPAN", help="Of the last 30m, 6h or 2d alone.")
@click.option(
    "--by",
    type=click.Choice(["project", "class", "phase", "site", "rack", "hour", "attempt", "cause"]),
    help="Of the fleet: what it is told by.",
)
@_alone
@_json
@_asks
def goodput(
    job: str | None,
    span: str | None,
    by: str | None,
    as_json: bool,
    server: str,
    token_file: Path | None,
    **only: str | None,
) -> None:
    """Show where the time of JOB's GPUs went, or of the fleet, and what would bring it back."""
    from headroom.jobs import words

    asking, chosen = _jobs(server, token_file), _chosen(span, by, only)
    if job is None:
        answer = asking.fleet_goodput(chosen)
        _print(answer, words.fleet_goodput(answer), as_json=as_json)
        return
    if wrong := chosen.keys() - {"range"}:
        raise click.UsageError(f"--{min(wrong)} is for the fleet: leave out {job}, or leave it out")
    answer = asking.goodput(job, span)
    _print(answer, words.goodput(answer), as_json=as_json)


def _chosen(span: str | None, by: str | None, only: Mapping[str, str | None]) -> dict[str, str]:
    given = {"range": span, "by": by, **{name: only[f"only_{name}"] for name in _ALONE}}
    return {name: value for name, value in given.items() if value}


@click.command()
@click.option("--range", "span", metavar="SPAN", help="Of the last 6h or 30d. [default: 7d]")
@click.option("--project", help="Of this project alone.")
@click.option("--site", help="Of this site alone.")
@click.option("--rank", type=click.Choice(["gpu_h", "kwh", "money"]), help="What stands first.")
@_json
@_asks
def losses(as_json: bool, server: str, token_file: Path | None, **given: str | None) -> None:
    """Show what cost most of GPU time, beside what is usual, and what pays first."""
    from headroom.jobs import words

    given["range"] = given.pop("span")
    chosen = {name: value for name, value in given.items() if value}
    answer = _jobs(server, token_file).losses(chosen)
    _print(answer, words.losses(answer), as_json=as_json)


@click.command()
@click.argument("job")
@_json
@_asks
def diagnose(job: str, as_json: bool, server: str, token_file: Path | None) -> None:
    """Show what binds JOB (why it waits, failed or is slow), and what would help."""
    from headroom.jobs import words

    answer = _jobs(server, token_file).diagnose(job)
    _print(answer, words.diagnosis(answer), as_json=as_json)


def _verb(name: str, done: str, text: str, *, says_why: bool) -> click.Command:
    """Return a command that does one thing to jobs."""

    def act(
        jobs: tuple[str, ...],
        as_json: bool,
        server: str,
        token_file: Path | None,
        **given: str,
    ) -> None:
        asking = _jobs(server, token_file)
        what = f", elements {given['elements']}," if given.get("elements") else ""
        for job in jobs:
            answer = asking.act(job, name, {key: value for key, value in given.items() if value})
            _print(answer, [f"{answer['name']}{what} {done}."], as_json=as_json)

    command = click.argument("jobs", metavar="JOB...", nargs=-1, required=True)(_json(_asks(act)))
    if says_why:
        command = click.option("--why", default="", help="Kept in its history.")(command)
    if name == "cancel":
        command = click.option(
            "--elements", default="", metavar="INDICES",
            help="Of an array, these alone: 3,7-9. The others go on.",
        )(command)  # fmt: skip
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
waive = _verb(
    "waive",
    "no longer waits for other jobs",
    "Let jobs begin without what they need of other jobs.",
    says_why=True,
)


@click.command("list")
@click.option("--state", "states", help="queued, running, succeeded, failed or cancelled.")
@click.option("--open", "is_open", is_flag=True, help="Those that are not over.")
@click.option("--project", help="Those of one project.")
@click.option("--class", "job_class", help="Those of one class.")
@click.option("--mine", is_flag=True, help="Those that the user of the token has submitted.")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Jobs to show, the newest first.",
)
@_json
@_asks
def list_jobs(
    states: str | None,
    is_open: bool,
    project: str | None,
    job_class: str | None,
    mine: bool,
    count: int,
    as_json: bool,
    server: str,
    token_file: Path | None,
) -> None:
    """Show jobs, the newest first."""
    from headroom.jobs import words

    asking = _jobs(server, token_file)
    chosen = {"state": states, "project": project, "job_class": job_class}
    params = {name: value for name, value in chosen.items() if value}
    if is_open:
        params["open"] = "1"
    if mine:
        params["submitted_by"] = asking.me()
    found = asking.newest(count, params)
    _print(found, words.listed(found, time.time()), as_json=as_json)


@click.command()
@click.argument("job")
@click.argument("value", metavar="N", type=click.IntRange(-100, 100))
@_json
@_asks
def priority(job: str, value: int, as_json: bool, server: str, token_file: Path | None) -> None:
    """Give JOB the priority N: one point is worth ten minutes of waiting.

    What waits may be lowered by its project; to raise it above 0 takes an operator. Before a number
    below 0 write --, as in: headroom priority NAME -- -20
    """
    answer = _jobs(server, token_file).priority(job, value)
    _print(answer, [f"{answer['name']} has priority {answer['priority']}."], as_json=as_json)


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the attempt has ended.")
@click.option("--all", "whole", is_flag=True, help="From the beginning, as far as it is kept.")
@click.option("--phase", help="Of this phase; else the one that failed, or was dispatched last.")
@click.option("--attempt", type=click.IntRange(1), help="Of this attempt; else the last.")
@click.option(
    "--rank", type=click.IntRange(0), help="Of this node; else the one that failed first."
)
@click.option("--node", help="The same, by its name.")
@click.option("--raw", is_flag=True, help="On a terminal: print control characters as they are.")
@_json
@_asks
def logs(
    job: str,
    follow: bool,
    whole: bool,
    phase: str | None,
    attempt: int | None,
    rank: int | None,
    node: str | None,
    raw: bool,
    as_json: bool,
    server: str,
    token_file: Path | None,
) -> None:
    """Print what JOB says, on standard output and standard error together: its last 64 KiB.

    Ctrl-C ends this command, not the job. With --json each stretch is an answer of the server, on
    a line of its own.
    """
    if rank is not None and node:
        raise click.UsageError("give --rank or --node, not both")
    from headroom.jobs.following import Reader

    given = {"phase": phase, "attempt": attempt, "rank": rank, "node": node}
    chosen = {name: str(value) for name, value in given.items() if value is not None}

    def complain(why: str) -> None:
        click.echo(f"waiting for the server: {why}", err=True)

    reader = Reader(_jobs(server, token_file), job, chosen, _sleep, complain)
    try:
        _say(_stretches(reader, whole=whole, follow=follow), raw=raw, as_json=as_json)
    except KeyboardInterrupt:
        sys.exit(STOPPED)


def _stretches(reader: Reader, *, whole: bool, follow: bool) -> Iterator[dict[str, Any]]:
    offset = 0
    if not whole:
        found = reader.end()
        yield found
        if found["over"] or not follow:
            return
        offset = found["next_offset"]
    yield from reader.on_from(offset, follow=follow)


def _say(stretches: Iterator[dict[str, Any]], *, raw: bool, as_json: bool) -> None:
    """Print stretches of output; on standard error what there is to be said of them."""
    from headroom.jobs import words

    is_shown_plain = sys.stdout.isatty() and not raw
    last: dict[str, Any] | None = None
    has_said = False
    for found in stretches:
        if as_json:
            click.echo(json.dumps(found, ensure_ascii=False))
        elif found["text"]:
            text = found["text"]
            click.echo(words.harmless(text) if is_shown_plain else text, nl=False)
        has_said = has_said or bool(found["text"])
        last = found
    if last is None or as_json:
        return
    if not has_said and last["tail"]:
        tail = last["tail"]
        click.echo(words.harmless(tail) if is_shown_plain else tail, nl=False)
    for line in words.said(last, has_said=has_said):
        click.echo(line, err=True)


@click.command()
@click.argument("job")
@_asks
def watch(job: str, server: str, token_file: Path | None) -> None:
    """Follow JOB until it is over.

    The exit status is 0 where it succeeded, 4 where it failed, and 5 where it was cancelled. Ctrl-C
    ends this command, not the job.
    """
    sys.exit(_follow(_jobs(server, token_file), job))


@click.command()
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--phase", default="", help="Else the one that was dispatched last.")
@click.option("--rank", type=click.IntRange(0), help="Of the gang; else its first node.")
@_asks
def shell(
    job: str,
    command: tuple[str, ...],
    phase: str,
    rank: int | None,
    server: str,
    token_file: Path | None,
) -> None:
    """Open a terminal in what your running JOB holds, or run COMMAND there, behind --.

    It has the job's GPUs, limits and environment, and ends with it. The exit status is that of
    what runs there.
    """
    from headroom.jobs import terminal

    chosen: dict[str, Any] = {"phase": phase, **({} if rank is None else {"rank": rank})}
    sys.exit(terminal.run(_jobs(server, token_file), job, command, chosen))


@click.command(name="run")
@click.option("--interactive", is_flag=True, help="For this terminal; what needs none: submit.")
@click.option("--project", required=True, help="Whose quota and share it uses.")
@click.option(
    "--class", "job_class", default="low-power-experimentation", show_default=True, metavar="CLASS"
)
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True)
@click.option(
    "--slice", "part", default="", metavar="PROFILE",
    help="A slice of a GPU in place of GPUs, by its MIG profile, such as 1g.10gb.",
)  # fmt: skip
@click.option("--model", "models", multiple=True, help="Of GPU; may be given again. Else any.")
@click.option(
    "--walltime-s", type=click.FloatRange(60.0), default=3600.0, show_default=True,
    help="After so many seconds it is stopped, whatever runs in it.",
)  # fmt: skip
@click.option("--name", default="", help="Of the job; else the server gives one.")
@click.argument("command", nargs=-1)
@_asks
def run_job(
    interactive: bool,
    project: str,
    job_class: str,
    gpus: int,
    part: str,
    models: tuple[str, ...],
    walltime_s: float,
    name: str,
    command: tuple[str, ...],
    server: str,
    token_file: Path | None,
) -> None:
    """Queue a job for this terminal, and open a shell in it, or run COMMAND, once it runs.

    While it waits it says why; Ctrl-C gives it up. The job ends with the shell, whose exit status
    this command has.
    """
    if not interactive:
        raise click.UsageError("give --interactive; what needs no terminal goes by headroom submit")
    from headroom.jobs import interactive as session

    asking = _jobs(server, token_file)
    spec = session.spec_of(
        project=project, job_class=job_class, gpus=gpus, models=models, walltime_s=walltime_s,
        name=name, part=part,
    )  # fmt: skip
    job = asking.submit(json.dumps(spec).encode(), is_yaml=False, key="")["name"]

    def say(text: str) -> None:
        click.echo(text, err=True)

    try:
        sys.exit(session.run(asking, job, command, say, _sleep))
    except KeyboardInterrupt:
        say(f"{job} is given up")
        sys.exit(STOPPED)


@click.command()
@click.argument("project")
@_json
@_asks
def limits(project: str, as_json: bool, server: str, token_file: Path | None) -> None:
    """Show what you may have of PROJECT at once, and what you have."""
    from headroom.jobs import words

    found = _jobs(server, token_file).project(project)
    _print(found["per_user"], words.limits(found), as_json=as_json)


@click.command()
@_json
@_asks
def bookings(as_json: bool, server: str, token_file: Path | None) -> None:
    """Show which hosts are kept for a project or for maintenance, and when."""
    from headroom.jobs import words

    found = _jobs(server, token_file).bookings()
    _print(found, words.bookings(found), as_json=as_json)


@click.command()
@click.option("--from", "starts_at", required=True, metavar="TIME", help="As 2026-12-01T14:00Z.")
@click.option("--to", "ends_at", required=True, metavar="TIME")
@click.option("--for", "project", metavar="PROJECT", help="Whose jobs; else it is maintenance.")
@click.option("--place", nargs=2, metavar="KIND NAME", help="Such as: rack oslo/A01.")
@click.option("--gpus", type=click.IntRange(1), help="Hosts with so many GPUs, wherever.")
@click.option("--model", default="", help="Of those GPUs.")
@click.option("--why", required=True, help="Told to those who have to wait.")
@_json
@_asks
def book(
    starts_at: str,
    ends_at: str,
    project: str | None,
    place: tuple[str, str] | None,
    gpus: int | None,
    model: str,
    why: str,
    as_json: bool,
    server: str,
    token_file: Path | None,
) -> None:
    """Keep hosts from one time to another, for a project or for maintenance. For operators.

    Refused where jobs may still run there at the start: then it says from when on it is possible.
    """
    from headroom.jobs import words

    if (place is None) == (gpus is None):
        raise click.UsageError("give either --place or --gpus")
    given = {"starts_at": starts_at, "ends_at": ends_at, "project": project, "reason": why}
    given |= {"scope_kind": place[0], "scope_name": place[1]} if place else {}
    answer = _jobs(server, token_file).book(
        {**given, **({} if gpus is None else {"gpus": gpus, "model": model})}
    )
    _print(answer, [words.booked(answer)], as_json=as_json)


@click.command()
@_json
@_asks
def budgets(as_json: bool, server: str, token_file: Path | None) -> None:
    """List budgets of energy, carbon and money: what is used, and what is forecast."""
    from headroom.jobs import words

    answer = _jobs(server, token_file).budgets()
    _print({"results": answer}, words.budgets(answer), as_json=as_json)


@click.command()
@click.argument("number", type=click.IntRange(1))
@click.option("--why", default="", help="Kept in the audit log.")
@_json
@_asks
def unbook(number: int, why: str, as_json: bool, server: str, token_file: Path | None) -> None:
    """End booking NUMBER before its time. For operators."""
    answer = _jobs(server, token_file).unbook(number, why)
    _print(answer, [f"Booking {number}, {answer['what']}, is ended."], as_json=as_json)


COMMANDS = (
    *(
        submit,
        list_jobs,
        queue,
        explain,
        goodput,
        losses,
        diagnose,
        artifacts,
        logs,
        cancel,
        hold,
        release,
        waive,
        priority,
        watch,
    ),
    *(run_job, shell, limits, budgets, bookings, book, unbook),
)


# --- Shared --------------------------------------------------------------------------------------


def _jobs(server: str, token_file: Path | None) -> Jobs:
    from headroom.client import Client
    from headroom.jobs.asking import Jobs
    from headroom.settings import find_token

    return Jobs(Client(server, find_token(token_file, local_server=server)))


def _read(file: Path, array: str | None, needs: Sequence[Mapping[str, Any]]) -> tuple[bytes, bool]:
    """Return a specification and whether it is YAML, checked as far as that goes without a server.

    Whatever is not called .json is YAML, of which JSON is a part. With ``array``, and with more
    ``needs``, it is another one.
    """
    from headroom.documents import told
    from headroom.jobs import reading

    is_yaml = file.suffix.lower() != ".json"
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as exc:
        raise click.ClickException(f"{file} cannot be read: {exc.strerror}") from exc
    try:
        spec = reading.read(body, reading.YAML if is_yaml else reading.JSON)
        if array is not None or needs:
            values = reading.as_json(spec)
            if array is not None:
                values["array"] = array
            values["needs"] = [*values.get("needs", []), *map(dict, needs)]
            reading.convert(values)
            return json.dumps(values).encode(), False
    except reading.SpecError as exc:
        for problem in exc.problems:
            click.echo(f"{file}: {told(problem)}", err=True)
        raise click.ClickException(f"{file} is no job; nothing was submitted") from exc
    return body, is_yaml


def _need(option: str, text: str) -> dict[str, Any]:
    """Return the need that ``JOB[:WHEN[+S]]`` is."""
    job, _, rest = text.partition(":")
    when, plus, seconds = rest.partition("+")
    try:
        after_s = float(seconds) if plus else 0.0
    except ValueError:
        raise click.UsageError(f"{option} {text}: {seconds!r} is no number of seconds") from None
    return {"job": job, "when": when or "succeeded", "after_s": after_s}


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
