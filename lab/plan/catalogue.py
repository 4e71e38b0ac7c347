"""``headroom plan hardware``: the catalogue, its profiles side by side or one with its sources."""

from __future__ import annotations

import click

from lab.plan.answers import Line, as_json, as_table, as_text
from lab.plan.groups import ListingGroup, WrongUse
from physics.errors import UnknownKeyError
from physics.hardware import PROFILES, Entry, Figure
from physics.hardware.reading import SECTIONS

__all__ = ["hardware_command"]

_json_option = click.option("--json", is_flag=True, help="Print JSON: units are in its keys.")


def hardware_command(text: str) -> ListingGroup:
    """Return the command that shows the catalogue."""
    return ListingGroup("hardware", {"list": _list, "show": _show}, text)


@click.command("list")
@_json_option
def _list(json: bool) -> None:
    """List the names in the catalogue."""
    names = {
        section: tuple(dict.fromkeys(n for p in PROFILES.values() for n in p.section(section)))
        for section in SECTIONS
    }
    lines = [Line(section, held) for section, held in names.items()]
    click.echo(as_json(names) if json else as_text(lines, []))


@click.command("show")
@click.argument("name")
@click.option(
    "--profile",
    type=click.Choice([*PROFILES]),
    help="One profile, with its sources. [default: all profiles side by side]",
)
@_json_option
def _show(name: str, profile: str | None, json: bool) -> None:
    """Show the figures of one entry.

    NAME is one of those that `list` prints, or an alias, in any case: "h100", "NVLink 4.0".
    """
    entries = _entries(name, [profile] if profile else [*PROFILES])
    if json:
        click.echo(as_json(entries))
    elif profile:
        click.echo(_with_sources(entries[profile]))
    else:
        click.echo(_side_by_side(entries))


def _entries(name: str, profiles: list[str]) -> dict[str, Entry]:
    """Return the entry of that name from each of the profiles that has it."""
    found: dict[str, Entry] = {}
    for profile in profiles:
        try:
            found[profile] = PROFILES[profile].find(name)
        except UnknownKeyError as exc:
            unknown = exc
    if not found:
        hint = f"did you mean {unknown.closest}?" if unknown.closest else "see: hardware list"
        raise WrongUse(f"the catalogue has no {name}; {hint}")
    return found


def _side_by_side(entries: dict[str, Entry]) -> str:
    figures = {
        profile: {figure.name: figure for figure in entry.figures()}
        for profile, entry in entries.items()
    }
    names = [*dict.fromkeys(name for held in figures.values() for name in held)]
    columns = [
        Line(profile, [_text(held.get(name)) for name in names])
        for profile, held in figures.items()
    ]
    return as_table([Line("figure", names), *columns])


def _with_sources(entry: Entry) -> str:
    figures = entry.figures()
    sources = [figure.source for figure in figures]
    return as_table(
        [
            Line("figure", [figure.name for figure in figures]),
            Line("value", [_text(figure) for figure in figures]),
            Line("as of", [source.as_of for source in sources]),
            Line("source", [f"{source.publisher}: {source.document}" for source in sources]),
        ]
    )


def _text(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    mark = " (estimated)" if figure.source.estimated else ""
    return f"{Line(figure.name, figure.value).cell(figure.value)}{mark}"
