"""The commands of ``headroom matrix``. Their dependencies are imported when they run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from headroom.errors import HeadroomError

if TYPE_CHECKING:
    from lab.matrix.scenario import Scenario

__all__ = ["matrix"]

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}
_WRONG_USE = 2


class _WrongUse(click.ClickException):
    """It cannot be run like this: one line, status 2."""

    exit_code = _WRONG_USE


def _address(text: str, default_port: int | None = None) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host and default_port is not None:
        host, port = text, str(default_port)
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise _WrongUse(f"{text}: not HOST:PORT, such as 10.0.0.5:9000")
    return host, int(port)


def _storage(url: str | None) -> tuple[str, int] | None:
    if url is None:
        return None
    scheme, _, rest = url.partition("://")
    if scheme != "http" or not rest:
        raise _WrongUse(f"--storage {url}: only http://HOST:PORT can be led through a relay")
    return _address(rest.strip("/"), 80)


def _links(given: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    found = {}
    for each in given:
        name, equals, address = each.partition("=")
        if not equals or not name.replace("-", "").isalnum() or name in ("sync", "storage"):
            raise _WrongUse(f"--link {each}: not NAME=HOST:PORT, with a NAME of your own")
        found[name] = _address(address)
    return found


@click.group()
def matrix() -> None:
    """Test a training command under the limits of real machines."""


@matrix.command(context_settings=_PASS_ON)
@click.option("--standard", "is_standard", is_flag=True, help="Run the standard matrix.")
@click.option("--only", multiple=True, metavar="NAME", help="Of the standard matrix, only this.")
@click.option(
    "--scenario",
    "files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Run the scenario in this file.",
)
@click.option(
    "--repeat",
    type=click.IntRange(1, 20),
    default=2,
    show_default=True,
    help="Runs of each scenario. With one, determinism is not judged.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("matrix"),
    show_default=True,
    help="Folder for the result, its reports, and the files of the runs.",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="How far losses may be apart that are to be equal.",
)
@click.option(
    "--margin",
    type=click.FloatRange(min=0, max=1),
    default=None,
    show_default="0.2, by the scenarios",
    help="Share of the throughput that faults leave which may be missing.",
)
@click.option(
    "--step-pattern", metavar="REGEX", help="Names step, loss, sync_s, retries in a line."
)
@click.option("--storage", metavar="URL", help="Your storage. [default: one is started]")
@click.option("--link", multiple=True, metavar="NAME=HOST:PORT", help="Something it reaches.")
@click.option(
    "--restarts",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    help="Starts after the command failed by itself. Each is a failed exit all the same.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=3_600,
    show_default=True,
    help="Seconds after which a run is ended.",
)
@click.option("--keep", is_flag=True, help="Keep the checkpoints of the runs.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(
    is_standard: bool,
    only: tuple[str, ...],
    files: tuple[Path, ...],
    repeat: int,
    out: Path,
    tolerance: float,
    margin: float | None,
    step_pattern: str | None,
    storage: str | None,
    link: tuple[str, ...],
    restarts: int,
    timeout: float,
    keep: bool,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND under faults on this machine, and judge it by its steps and checkpoints.

    Exit code 0: all that was run passed. 1: something failed. 2: wrong use. 3: nothing failed,
    and not all could be measured, or no fault could be brought about here.
    """
    from lab.matrix import report, running, steps
    from lab.matrix.playing import Subject
    from lab.matrix.reading import ScenarioError, load

    if not command:
        raise _WrongUse("no command: headroom matrix run --standard -- python train.py")
    try:
        own = {path: load(path) for path in files}
        running.check_own(own)
        pattern = steps.pattern_of(step_pattern) if step_pattern else None
        chosen = _chosen(is_standard, only, has_own=bool(own))
    except (ScenarioError, HeadroomError) as error:
        raise _WrongUse(str(error)) from error
    subject = Subject(command, pattern, _storage(storage), _links(link), restarts)
    plan = running.Plan(chosen, own, repeat, tolerance, timeout, margin, keep)
    with running.holding() as journal:
        result = running.run_matrix(subject, plan, folder=out, journal=journal, progress=_say)
    for path in report.write(result, out):
        click.echo(f"written: {path}")
    click.echo(f"grade {result.grade.letter}: {result.grade.said}")
    sys.exit(running.exit_code(result))


def _say(text: str) -> None:
    click.echo(text)
    sys.stdout.flush()


def _chosen(is_standard: bool, only: tuple[str, ...], *, has_own: bool) -> list[Scenario]:
    from lab.matrix import running

    found = running.standard()
    unknown = sorted(set(only) - {each.name for each in found})
    if unknown:
        names = ", ".join(each.name for each in found)
        raise _WrongUse(f"--only {unknown[0]}: not in the standard matrix: {names}")
    if only:
        return [each for each in found if each.name in only]
    return found if is_standard or not has_own else []


@matrix.command()
def ways() -> None:
    """Say what can be done to a command on this machine, and why not where it cannot."""
    from lab.matrix import running
    from lab.matrix.machine import Machine

    with running.holding() as journal:
        for name, said in running.ways(Machine(journal, Path.cwd())).items():
            click.echo(f"{name}: {said}")


@matrix.command()
def undo() -> None:
    """Undo what runs left on this machine that were ended by force."""
    from lab.matrix import leases

    undone = leases.undo_all(leases.abandoned())
    for lease in undone:
        click.echo(f"undone: {lease.said}")
    if not undone:
        click.echo("nothing was left")
