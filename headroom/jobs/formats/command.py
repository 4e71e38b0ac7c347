"""``headroom convert``: a job of another scheduler as a specification, and the other way round.

What it needs is imported when it runs, so that help is quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from headroom.jobs.formats.brought import Brought, Owner

__all__ = ["convert"]

_SPEC, _SBATCH, _KUEUE = "spec", "sbatch", "kueue"


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option(
    "--to",
    "target",
    type=click.Choice([_SPEC, _SBATCH, _KUEUE]),
    default=_SPEC,
    show_default=True,
    help="What to print: a specification, or of a specification something else.",
)
@click.option("--project", help="Its project; left out: its account, or its namespace.")
@click.option("--class", "job_class", help="Its scheduling class; left out: what its words say.")
@click.option(
    "--walltime", "walltime_s", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="After so long it is stopped; left out: its own limit.",
)  # fmt: skip
@click.option("--phase", "phase_name", help="Of a specification, this phase.")
def convert(
    file: Path,
    target: str,
    project: str | None,
    job_class: str | None,
    walltime_s: float | None,
    phase_name: str | None,
) -> None:
    """Print FILE, an sbatch script or a manifest of Kubernetes or Argo, as a specification.

    "-" is standard input. With --to a specification is printed as one of these. What cannot come
    along is told on standard error, each in a line.
    """
    from headroom.documents import told
    from headroom.jobs.formats.brought import FormatError, Owner
    from headroom.jobs.reading import SpecError

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file} cannot be read: {error}") from error
    try:
        if target == _SPEC:
            owner = Owner(project=project, job_class=job_class, walltime_s=walltime_s)
            brought = _brought(text, owner)
            for each in brought.lost:
                click.echo(f"{file}: {each}", err=True)
            _print_spec(brought)
        else:
            written, lost = _written(text, target, phase_name)
            for each in lost:
                click.echo(f"{file}: {each}", err=True)
            click.echo(written, nl=False)
    except SpecError as error:
        for problem in error.problems:
            click.echo(f"{file}: {told(problem)}", err=True)
        raise click.ClickException(f"{file} cannot be converted") from error
    except FormatError as error:
        raise click.ClickException(f"{file}: {error}") from error


def _brought(text: str, owner: Owner) -> Brought:
    """Return what a script or a manifest asks for. Raises FormatError."""
    from headroom.jobs.formats import kubernetes, sbatch
    from headroom.jobs.formats.brought import FormatError

    if sbatch.is_script(text):
        return sbatch.spec_of(text, owner)
    found = [each for each in _documents(text) if kubernetes.is_manifest(each)]
    if len(found) != 1:
        what = "more than one object of Kubernetes" if found else "neither script nor manifest"
        raise FormatError(f"it is {what}: give one job at a time")
    return kubernetes.spec_of(found[0], owner)


def _documents(text: str) -> list[Any]:
    import yaml

    from headroom.jobs.formats.brought import FormatError

    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise FormatError(f"it is no YAML: {error}") from error


def _print_spec(brought: Brought) -> None:
    from headroom.jobs import reading

    click.echo(_as_yaml(reading.as_json(brought.spec)), nl=False)


def _written(text: str, target: str, phase_name: str | None) -> tuple[str, list[str]]:
    """Return one phase of a specification as a script or a manifest, and what it leaves out."""
    from headroom.jobs import reading
    from headroom.jobs.formats import kubernetes, sbatch
    from headroom.jobs.formats.brought import FormatError

    spec = reading.read(text.encode(), reading.YAML)
    names = [each.name for each in spec.phases]
    if phase_name is None and len(names) > 1:
        raise FormatError(f"it has the phases {', '.join(names)}: name one by --phase")
    phase = next((each for each in spec.phases if phase_name in (None, each.name)), None)
    if phase is None:
        raise FormatError(f"it has no phase {phase_name!r}, only {', '.join(names)}")
    if target == _SBATCH:
        return sbatch.script_of(spec, phase), []
    return _as_yaml(kubernetes.manifest_of(spec, phase)), kubernetes.left_of(phase)


def _as_yaml(values: Any) -> str:
    """Return plain values as YAML, scripts as blocks that people can read."""
    import yaml

    class Blocks(yaml.SafeDumper):
        """Writes texts of several lines as they are."""

    def text_of(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = "|" if "\n" in text else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Blocks.add_representer(str, text_of)
    found: str = yaml.dump(values, Dumper=Blocks, sort_keys=False, allow_unicode=True)
    return found
