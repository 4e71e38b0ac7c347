"""Applying a plan, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from django.db import models, transaction

from accounts import audit
from fleet import snapshot
from fleet.inventory.exceptions import StalePlanError
from fleet.inventory.kinds import KINDS, Kind, Row
from fleet.inventory.plan import KindPlan, Plan
from fleet.models import InventoryGeneration, PowerDomain

if TYPE_CHECKING:
    from accounts.models import User

T = TypeVar("T")

#: Rows in one statement.
_BATCH = 2000
#: Rows of a plan that its entry in the audit log holds.
_TOLD = 2000

#: Hears how many more rows are written.
Told: TypeAlias = Callable[[int], object]

_Ids = dict[str, dict[str, int]]


@transaction.atomic
def apply(plan: Plan, actor: User | str, *, told: Told = lambda _rows: None) -> None:
    """Apply ``plan`` to the fleet, or raise StalePlanError where the inventory has changed since.

    ``told`` is called after each batch, with its rows: ``plan.rows`` in all.
    All other writers of the inventory wait until the transaction ends.
    """
    if InventoryGeneration.lock() != plan.state.generation:
        raise StalePlanError
    if not plan:
        return
    ids: _Ids = {name: dict(of) for name, of in plan.state.ids.items()}
    _let_go(plan.kinds["power_domains"], ids["power_domains"])
    for name, kind in KINDS.items():
        _create(kind, plan.kinds[name].created, ids, told)
        changed = {key: each.after for key, each in plan.kinds[name].changed.items()}
        _change(kind, changed, ids, told)
    for name, kind in reversed(KINDS.items()):
        _remove(kind, [ids[name][key] for key in plan.kinds[name].removed], told)
    audit.record(actor, "fleet.apply", ", ".join(plan.sites), counts=plan.counts, **_told(plan))
    snapshot.invalidate()
    transaction.on_commit(snapshot.invalidate)


def _told(plan: Plan) -> dict[str, Any]:
    """Return rows before and after, by kind and key; of a large plan the first rows.

    Changes come first, then what goes, then what is new, since the inventory has that now.
    """
    rows = [
        *_rows_of(plan, lambda kind: {k: (c.before, c.after) for k, c in kind.changed.items()}),
        *_rows_of(plan, lambda kind: {key: (row, None) for key, row in kind.removed.items()}),
        *_rows_of(plan, lambda kind: {key: (None, row) for key, row in kind.created.items()}),
    ]
    told: dict[str, Any] = {"before": {}, "after": {}}
    for name, before, after in rows[:_TOLD]:
        changed = audit.changes(before, after)
        told["before"][name], told["after"][name] = changed["before"], changed["after"]
    return told | ({"rows_left_out": len(rows) - _TOLD} if len(rows) > _TOLD else {})


_Sides = tuple[Row | None, Row | None]


def _rows_of(
    plan: Plan, sides: Callable[[KindPlan], Mapping[str, _Sides]]
) -> Iterator[tuple[str, Row | None, Row | None]]:
    for name, kind in plan.kinds.items():
        for key, (before, after) in sides(kind).items():
            yield f"{name} {key}", before, after


def _let_go(domains: KindPlan, ids: dict[str, int]) -> None:
    """Take power domains that go or change out of their pairs, and those that go from the tree.

    Else a pair could not swap its sides, nor a domain take the place of one that goes.
    """
    leaving = [ids[key] for key in domains.removed]
    changing = [ids[key] for key in domains.changed]
    PowerDomain.objects.filter(pk__in=leaving + changing).update(pair="", side="")
    PowerDomain.objects.filter(pk__in=leaving).update(parent=None)


def _create(kind: Kind, rows: dict[str, Row], ids: _Ids, told: Told) -> None:
    """Insert ``rows`` in their order, so that ids follow it, and note their ids."""
    for level in _levels(kind, rows):
        made: dict[str, int] = {}
        for keys in _batches(level):
            instances = [_instance(kind, rows[key], ids) for key in keys]
            kind.model._default_manager.bulk_create(instances)
            made.update(zip(keys, [each.pk for each in instances], strict=True))
            told(len(keys))
        ids[kind.name].update(made)


def _levels(kind: Kind, rows: dict[str, Row]) -> Iterator[list[str]]:
    """Yield the keys of ``rows`` in batches, of which each refers to those before it only."""
    own = [ref for ref, target in kind.refs.items() if target == kind.name]
    waiting = rows
    while waiting:
        ready = [key for key, row in waiting.items() if not any(row[ref] in waiting for ref in own)]
        yield ready
        done = set(ready)
        waiting = {key: row for key, row in waiting.items() if key not in done}


def _change(kind: Kind, rows: dict[str, Row], ids: _Ids, told: Told) -> None:
    for keys in _batches(list(rows)):
        instances = [_instance(kind, rows[key], ids) for key in keys]
        for key, instance in zip(keys, instances, strict=True):
            instance.pk = ids[kind.name][key]
        # Not bulk_update(), whose statements grow with the square of the batch.
        kind.model._default_manager.bulk_create(
            instances,
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=[*kind.values, *kind.refs],
        )
        told(len(keys))


def _instance(kind: Kind, row: Row, ids: _Ids) -> models.Model:
    values = {name: row[name] for name in kind.values}
    for ref, target in kind.refs.items():
        key = row[ref]
        values[f"{ref}_id"] = None if key is None else ids[target][key]
    return kind.model(**values)


def _remove(kind: Kind, ids: Sequence[int], told: Told) -> None:
    for some in _batches(ids):
        kind.model._default_manager.filter(pk__in=some).delete()
        told(len(some))


def _batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), _BATCH):
        yield items[start : start + _BATCH]
