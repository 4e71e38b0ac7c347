"""Which nodes run which version, as their agents reported it last."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from telemetry.versions.models import NodeVersions
from telemetry.versions.store import FIELDS

__all__ = ["Running", "running"]


class Running(NamedTuple):
    """The nodes that report one version of one field, by name."""

    field: str
    version: str
    nodes: list[str]


def running() -> list[Running]:
    """Return the versions of each field, that of most nodes first. One query."""
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    rows = NodeVersions.objects.order_by("node__name").values_list("node__name", *FIELDS)
    for node, *versions in rows.iterator():
        for field, version in zip(FIELDS, versions, strict=True):
            if version:
                found[field, version].append(node)
    every = [Running(*key, nodes) for key, nodes in found.items()]
    return sorted(every, key=lambda one: (FIELDS.index(one.field), -len(one.nodes), one.version))
