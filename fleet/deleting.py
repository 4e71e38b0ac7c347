"""Obstacles to deleting a row of the inventory by hand. Asked before anything is loaded."""

from __future__ import annotations

from django.db import models

from fleet.models import Gpu, Node, Rack, Site

__all__ = ["MOST_BELOW", "obstacle"]

#: A row with more racks, nodes and GPUs below it goes by an inventory only.
MOST_BELOW = 5_000
_NAMED = 3
#: How racks, nodes and GPUs lead to what they stand in.
_PATHS: dict[type[models.Model], dict[type[models.Model], str]] = {
    Site: {Rack: "site", Node: "rack__site", Gpu: "node__rack__site"},
    Rack: {Node: "rack", Gpu: "node__rack"},
    Node: {Gpu: "node"},
}


def obstacle(row: models.Model) -> str:
    """Return why ``row`` cannot be deleted, as a sentence; empty: it can. Some queries."""
    return _in_use(row) or _too_large(row)


def _in_use(row: models.Model) -> str:
    names: list[str] = []
    count = 0
    for relation in row._meta.related_objects:
        if relation.on_delete in (models.PROTECT, models.RESTRICT):
            users = relation.related_model._default_manager.filter(**{relation.field.name: row})
            names += map(str, users[: _NAMED - len(names)])
            count += users.count()
    if not count:
        return ""
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"It is in use by {', '.join(names)}{more}."


def _too_large(row: models.Model) -> str:
    below = sum(
        kind._default_manager.filter(**{path: row}).count()
        for kind, path in _PATHS.get(type(row), {}).items()
    )
    if below <= MOST_BELOW:
        return ""
    return (
        f"{below:,} racks, nodes and GPUs are below it, more than the {MOST_BELOW:,} that go at"
        " once: apply an inventory without it."
    )
