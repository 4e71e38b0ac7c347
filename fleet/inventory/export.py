"""The fleet as an inventory file."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
import yaml

from fleet.inventory.document import Document, GpuEntry, GpuGroup
from fleet.inventory.kinds import Row, Rows

_Values = dict[str, Any]
_ByOwner = dict[str, list[Row]]


def export(rows: Rows) -> str:
    """Return YAML that asks for exactly ``rows``."""
    # The document's types leave out what is as it would be anyway.
    values = msgspec.to_builtins(document_of(rows))
    return yaml.dump(
        values, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=100
    )


def document_of(rows: Rows) -> Document:
    """Return the document that asks for exactly ``rows``."""
    values = {
        "hardware_models": _sorted(rows["hardware_models"].values()),
        "sites": _sites(rows),
        "links": [{**row, "rack": _name(row["rack"])} for row in _sorted(rows["links"].values())],
        "meters": [_meter(row) for row in _sorted(rows["meters"].values())],
    }
    made: Document = _made(Document, values)
    return made


def _made(kind: Any, value: Any) -> Any:
    """Return plain values as structs, unchecked.

    What is stored may be older than a bound. It is told as it is, and refused where it is read.
    """
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        return [_made(item, each) for each in value]
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        types = _types(kind)
        return kind(**{name: _made(types[name], each) for name, each in value.items()})
    return value


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _sorted(rows: Iterable[Row], *fields: str) -> list[Row]:
    """Return ``rows`` by ``fields`` (missing numbers first), then by name."""

    def place(row: Row) -> list[Any]:
        return [-1 if row[field] is None else row[field] for field in fields]

    return sorted(rows, key=lambda row: (place(row), row["name"]))


def _name(key: str | None) -> str | None:
    """Return the name in "site/name"."""
    return None if key is None else key.partition("/")[2]


def _by(rows: dict[str, Row], owner: str) -> _ByOwner:
    """Return ``rows`` by their owner."""
    found = defaultdict(list)
    for row in rows.values():
        found[row[owner]].append(row)
    return found


def _without(row: Row, *fields: str) -> _Values:
    return {name: value for name, value in row.items() if name not in fields}


def _sites(rows: Rows) -> list[_Values]:
    domains, zones = _by(rows["power_domains"], "site"), _by(rows["cooling_zones"], "site")
    storage, racks = _by(rows["storage_endpoints"], "site"), _by(rows["racks"], "site")
    nodes, gpus = _by(rows["nodes"], "rack"), _by(rows["gpus"], "node")
    return [
        {
            **site,
            "power_domains": [
                {**_without(row, "site"), "parent": _name(row["parent"])}
                for row in _sorted(domains[site["name"]])
            ],
            "cooling_zones": [_without(row, "site") for row in _sorted(zones[site["name"]])],
            "storage_endpoints": [_without(row, "site") for row in _sorted(storage[site["name"]])],
            "racks": [
                _rack(row, nodes, gpus) for row in _sorted(racks[site["name"]], "row", "position")
            ],
        }
        for site in _sorted(rows["sites"].values())
    ]


def _rack(row: Row, nodes: _ByOwner, gpus: _ByOwner) -> _Values:
    return {
        **_without(row, "site"),
        "feed_a": _name(row["feed_a"]),
        "feed_b": _name(row["feed_b"]),
        "cooling_zone": _name(row["cooling_zone"]),
        "nodes": [
            {
                **_without(node, "rack"),
                "storage_endpoint": _name(node["storage_endpoint"]),
                "gpus": _gpus(gpus[node["name"]]),
            }
            for node in _sorted(nodes[f"{row['site']}/{row['name']}"], "position_u")
        ],
    }


def _gpus(rows: list[Row]) -> GpuGroup | list[GpuEntry]:
    """Return GPUs in the short form where they are alike, else one by one."""
    rows = sorted(rows, key=lambda row: row["index"])
    kinds = {(row["model"], tuple(row["slices"])) for row in rows}
    counted = all(place == row["index"] and not row["uuid"] for place, row in enumerate(rows))
    if counted and len(kinds) == 1:
        model, slices = kinds.pop()
        return GpuGroup(model=model, count=len(rows), slices=list(slices))
    return [GpuEntry(**_without(row, "node")) for row in rows]


def _meter(row: Row) -> _Values:
    targets = ("power_domain", "cooling_zone", "rack")
    site = next((row[name].partition("/")[0] for name in targets if row[name] is not None), None)
    return {**row, "site": site, **{name: _name(row[name]) for name in targets}}
