"""Writing to the audit log, with the state before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias
from uuid import UUID

from django.contrib.auth.base_user import AbstractBaseUser
from django.db.models import Model

from accounts.audit_models import AuditEntry

__all__ = ["SYSTEM", "changes", "entry", "masked", "record", "state", "stored"]

SYSTEM = "system"

#: What stands in the place of a secret.
MASK: Final = "(secret)"
#: Fields whose values nobody may read in a log.
_SECRET = ("password", "secret", "digest", "token")

#: Who did it: a user, or the name of an agent or of the system.
Actor: TypeAlias = AbstractBaseUser | str
#: The fields of a row by name, or of anything else that is changed.
State = Mapping[str, Any]


def record(actor: Actor, action: str, target: str = "", **detail: Any) -> AuditEntry:
    """Add one entry. Call it inside the transaction that it tells of.

    Of a change, ``**changes(before, after)`` is to be among the details.
    """
    made = entry(actor, action, target, **detail)
    made.save(force_insert=True)
    return made


def entry(actor: Actor, action: str, target: str = "", **detail: Any) -> AuditEntry:
    """Return an entry with its details, for callers that write it themselves."""
    name = actor if isinstance(actor, str) else actor.get_username()
    return AuditEntry(actor=name, action=action, target=target[:300], detail=_plain(detail))


def state(row: Model, *many: str) -> State:
    """Return the fields of ``row`` as it is in memory, and the names of the relations ``many``.

    One query for each of ``many``. Take it before a row is changed, and again after.
    """
    fields = {each.attname: getattr(row, each.attname) for each in row._meta.concrete_fields}
    named = {name: sorted(map(str, getattr(row, name).all())) for name in many}
    return {name: _guarded(name, value) for name, value in (fields | named).items()}


def stored(row: Model, *many: str) -> State | None:
    """Return the state of a row in the database; None where it has no such row. One query."""
    found = type(row)._base_manager.filter(pk=row.pk).first()
    return None if found is None else state(found, *many)


def changes(before: State | None, after: State | None) -> dict[str, Any]:
    """Return the differences, as ``before`` and ``after``; None where there was, or is, nothing.

    Secrets are masked in both: that one was changed is told, and never what it is.
    """
    if before is None or after is None:
        return {"before": _plain(before), "after": _plain(after)}
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return {
        "before": _plain({name: before.get(name) for name in names}),
        "after": _plain({name: after.get(name) for name in names}),
    }


def masked(state: State, *names: str) -> State:
    """Return a state in which further fields are secret."""
    hidden = {name: _Secret(state[name]) for name in names if state[name]}
    return {**state, **hidden}


@dataclass(frozen=True)
class _Secret:
    """A value that can be compared and is never shown."""

    value: Any

    def __repr__(self) -> str:
        return MASK


def _guarded(name: str, value: Any) -> Any:
    is_secret = isinstance(value, bytes | memoryview) or any(each in name for each in _SECRET)
    if not is_secret or isinstance(value, bool) or value in (None, ""):
        return value
    return _Secret(bytes(value) if isinstance(value, memoryview) else value)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(each) for name, each in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(each) for each in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, _Secret | bytes):
        return MASK
    return str(value) if isinstance(value, UUID) else value
