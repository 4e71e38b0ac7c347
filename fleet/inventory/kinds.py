"""The kinds of rows that an inventory is made of: one table that all the rest goes by.

A row is a dict of a model's fields. It is known by its key, and it refers to others by theirs:
``oslo``, ``oslo/feed-a1``, ``oslo/A01``, a node's name, ``NODE/INDEX`` for a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from django.db import models

from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    Link,
    Meter,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)

Row: TypeAlias = dict[str, Any]
#: Rows by kind and key.
Rows: TypeAlias = dict[str, dict[str, Row]]


@dataclass(frozen=True)
class Kind:
    name: str
    label: str
    model: type[models.Model]
    #: the fields that make the key, joined by slashes
    key: tuple[str, ...]
    #: fields that hold plain values
    values: tuple[str, ...]
    #: fields that refer to other rows, and the kind of these; what the row belongs to comes first
    refs: dict[str, str] = field(default_factory=dict)

    def key_of(self, row: Row) -> str:
        return "/".join([str(row[name]) for name in self.key])


_HARDWARE = "hardware_models"

#: Each kind comes after those that it refers to.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            _HARDWARE,
            "hardware model",
            HardwareModel,
            ("name",),
            (
                "name",
                "kind",
                "vendor",
                "rated_w",
                "idle_w",
                "slowdown_c",
                "slowdown_mem_c",
                "shutdown_c",
                "sm_max_mhz",
                "mem_bytes",
                "cores",
            ),
        ),
        Kind("sites", "site", Site, ("name",), ("name", "budget_w", "time_zone")),
        Kind(
            "power_domains",
            "power domain",
            PowerDomain,
            ("site", "name"),
            ("name", "kind", "capacity_w", "derating", "pair", "side"),
            {"site": "sites", "parent": "power_domains"},
        ),
        Kind(
            "cooling_zones",
            "cooling zone",
            CoolingZone,
            ("site", "name"),
            ("name", "kind", "capacity_w", "supply_c"),
            {"site": "sites"},
        ),
        Kind(
            "storage_endpoints",
            "storage endpoint",
            StorageEndpoint,
            ("site", "name"),
            ("name", "capacity_bytes_per_s"),
            {"site": "sites"},
        ),
        Kind(
            "racks",
            "rack",
            Rack,
            ("site", "name"),
            ("name", "row", "position", "height_u", "budget_w"),
            {
                "site": "sites",
                "feed_a": "power_domains",
                "feed_b": "power_domains",
                "cooling_zone": "cooling_zones",
            },
        ),
        Kind(
            "nodes",
            "node",
            Node,
            ("name",),
            ("name", "position_u", "height_u", "switch_domain", "labels"),
            {"rack": "racks", "model": _HARDWARE, "storage_endpoint": "storage_endpoints"},
        ),
        Kind(
            "gpus",
            "GPU",
            Gpu,
            ("node", "index"),
            ("index", "uuid", "slices"),
            {"node": "nodes", "model": _HARDWARE},
        ),
        Kind(
            "links",
            "link",
            Link,
            ("name",),
            ("name", "kind", "capacity_bits_per_s", "latency_s", "control_share"),
            {"site": "sites", "rack": "racks", "node": "nodes", "peer_site": "sites"},
        ),
        Kind(
            "meters",
            "meter",
            Meter,
            ("name",),
            ("name", "kind"),
            {
                "power_domain": "power_domains",
                "cooling_zone": "cooling_zones",
                "rack": "racks",
                "node": "nodes",
            },
        ),
    )
}


def sites_of(rows: Rows) -> dict[str, dict[str, str]]:
    """Return the site of each row by kind and key; hardware models have none."""
    sites: dict[str, dict[str, str]] = {"sites": {name: name for name in rows["sites"]}}
    for kind in KINDS.values():
        if kind.name not in (_HARDWARE, "sites"):
            sites[kind.name] = {
                key: _owners_site(kind, row, sites) for key, row in rows[kind.name].items()
            }
    return sites


def _owners_site(kind: Kind, row: Row, sites: dict[str, dict[str, str]]) -> str:
    owner, key = next((field, row[field]) for field in kind.refs if row[field] is not None)
    return sites[kind.refs[owner]][key]
