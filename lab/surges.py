"""Surges: load of no known owner that goes up over a place of the demo, by surprise.

``python -m lab surge`` writes them into a file beside the demo's token, and the demo looks at it
before each step. What runs on the nodes of the place, and was not placed by the server, then works
as hard as is said.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray

from lab.twin import Twin

__all__ = ["PLACES", "Surge", "Surges", "add", "file_of_demo", "nodes_in", "surge"]

PLACES = ("site", "zone", "feed", "rack")


class Surge(Struct, frozen=True, forbid_unknown_fields=True):
    """All GPUs that work in ``place`` do at least ``activity``, until ``until`` (Unix s)."""

    place: str
    name: str
    activity: Annotated[float, Meta(gt=0, le=1.2)]
    until: float


def file_of_demo() -> Path:
    """Return the file in which the demo on this machine looks."""
    return Path(os.environ.get("HEADROOM_STATE_DIR", ".headroom")) / "demo-surges.json"


def add(path: Path, surge: Surge, now: float) -> None:
    """Add a surge to those that go on at ``now`` (Unix s)."""
    going_on = [each for each in _read(path) if each.until > now]
    aside = path.with_suffix(".new")
    aside.write_bytes(msgspec.json.encode([*going_on, surge]))
    aside.replace(path)


def _read(path: Path) -> Sequence[Surge]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Surge])
    except FileNotFoundError:
        return []


def nodes_in(twin: Twin, place: str, name: str) -> NDArray[np.bool_]:
    """Return the nodes of a place, as a mask. Raises ValueError for one that is not there."""
    fleet, domains = twin.fleet, twin.domains
    known: dict[str, tuple[list[str], NDArray[np.intp]]] = {
        "site": (list(fleet.sites), fleet.site_of_rack),
        "zone": (_zones(twin), fleet.row_of_rack),
        "rack": ([f"{rack.site}/{rack.name}" for rack in fleet.racks], np.arange(len(fleet.racks))),
    }
    if place == "feed":
        sites = [fleet.sites[row] for row in domains.site]
        feeds = [f"{site}/{each}" for site, each in zip(sites, domains.names, strict=True)]
        row = _row(feeds, name, place)
        mine = _under(twin, domains.rack_a, row) | _under(twin, domains.rack_b, row)
    elif place in known:
        names, of_rack = known[place]
        mine = of_rack == _row(names, name, place)
    else:
        raise ValueError(f"{place} is none of {', '.join(PLACES)}")
    return np.asarray(mine[fleet.rack_of_node])


def _zones(twin: Twin) -> list[str]:
    found = {(rack.site, rack.row): f"{rack.site}/{rack.zone}" for rack in twin.fleet.racks}
    return [found[row] for row in twin.fleet.rows]


def _row(names: list[str], name: str, place: str) -> int:
    if name not in names:
        raise ValueError(f"the fleet has no {place} {name}; it has {', '.join(names[:12])}")
    return names.index(name)


def _under(twin: Twin, domain: NDArray[np.intp], wanted: int) -> NDArray[np.bool_]:
    """Say of each rack whether ``domain``, or what it hangs on, is ``wanted``."""
    found = np.zeros(len(domain), dtype=np.bool_)
    while (domain >= 0).any():
        found |= domain == wanted
        domain = np.where(domain >= 0, twin.domains.parent[domain], -1)
    return found


class Surges:
    """The surges of a demo, as its file has them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: float | None = None
        self._going_on: Sequence[Surge] = ()

    def step(self, twin: Twin, now: float) -> None:
        """Have the twin do what the file says at ``now`` (Unix s)."""
        self._look()
        least = twin.conditions.least_activity
        least[:] = 0.0
        for each in self._going_on:
            if each.until > now:
                mine = nodes_in(twin, each.place, each.name) & ~twin.queued
                least[mine] = np.maximum(least[mine], each.activity)

    def _look(self) -> None:
        changed = self._path.stat().st_mtime if self._path.exists() else None
        if changed != self._seen:
            self._seen, self._going_on = changed, _read(self._path)


@click.command()
@click.argument("place", type=click.Choice(PLACES))
@click.argument("name")
@click.option("--activity", type=click.FloatRange(min=0.05, max=1.2), default=1.0)
@click.option("--minutes", type=click.FloatRange(min=0.1), default=60.0, show_default=True)
def surge(place: str, name: str, activity: float, minutes: float) -> None:
    """Have the load that the server did not place go up over a PLACE of the demo.

    NAME as in the inventory: oslo, oslo/zone-a, oslo/feed-a, oslo/A01.
    """
    now = time.time()
    path = file_of_demo()
    if not path.parent.is_dir():
        raise click.ClickException(f"{path.parent} is not there: make run starts a demo here")
    add(path, Surge(place, name, activity, now + 60.0 * minutes), now)
    click.echo(f"{place} {name}: activity at least {activity:g} for {minutes:g} min")
