"""The life of a version, for every kind: draft, shadow, canary, active, retired.

Each step is one transaction with its line in the audit log. Two who do something to one document
at once wait for each other at one lock; the second is refused where what counts has changed since
it was asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from accounts import audit
from accounts.models import User
from fleet import locks
from policies.documents.models import States, Version

__all__ = ["BadStep", "Kind", "Refused", "draft", "promote", "retire"]

V = TypeVar("V", bound=Version)

#: The share of the fleet on which a canary counts, where nobody says.
CANARY_SHARE = 0.1
_ORDER = [States.DRAFT, States.SHADOW, States.CANARY, States.ACTIVE]
#: Of the advisory locks, with one number for each document.
_LOCK = 0x444F4353


class Refused(Exception):
    """A step is not possible in the version's present state. Says why, and the way out."""

    def __init__(self, message: str, field: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.field, self.hint = message, field, hint


class BadStep(Refused):
    """There is no such step, whatever the state of the version."""


def _nothing(*_: Any) -> None:
    """Do nothing: most kinds have nothing to hand over."""


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[V]):
    """One kind of document: its table, its reader, and the hooks that follow a step."""

    #: in the audit log, in codes and in sentences, such as "rule"
    noun: str
    model: type[V]
    #: reads and checks a text, and returns its name; raises DocumentError
    name_of: Callable[[str], str]
    #: where a draft may go
    steps: Sequence[States] = (States.ACTIVE,)
    #: one version counts, whatever its name; else one of each name
    is_single: bool = False
    #: called with the version, its state before, and those that were retired for it
    promoted: Callable[[V, str, list[V]], None] = _nothing
    #: called with the version and its state before
    retired: Callable[[V, str], None] = _nothing
    #: called before a version is retired by hand; raises Refused
    may_retire: Callable[[V], None] = _nothing

    @property
    def rows(self) -> QuerySet[V]:
        """All versions of all documents."""
        return cast("QuerySet[V]", self.model._default_manager.all())

    def peers(self, name: str) -> QuerySet[V]:
        """Return the versions of which at most one counts."""
        return self.rows if self.is_single else self.rows.filter(name=name)

    def lock(self, name: str) -> None:
        """Wait until nobody else changes this document, and keep others out until the commit."""
        locks.wait_until_commit(_LOCK, f"{self.noun}:{'' if self.is_single else name}")


@transaction.atomic
def draft(kind: Kind[V], actor: User | str, text: str, *, note: str = "") -> V:
    """Add a version of the document that ``text`` names. Raises DocumentError."""
    name = kind.name_of(text)
    kind.lock(name)
    rows = kind.rows.filter(name=name)
    now, newest = timezone.now(), rows.aggregate(newest=Max("number"))["newest"] or 0
    version = kind.rows.create(
        name=name, number=newest + 1, text=text, note=note[:500], author=_name(actor),
        created_at=now, changed_at=now,
    )  # fmt: skip
    told = audit.changes(None, audit.state(version))
    audit.record(actor, f"{kind.noun}.draft", str(version), note=note[:500], **told)
    return version


@transaction.atomic
def promote(
    kind: Kind[V], actor: User | str, version: V, to: str, *, share: float | None = None
) -> V:
    """Bring a version further. Raises :class:`Refused`.

    Whoever has a version count cannot be its author. An active one retires the one before, and a
    canary the canary before. What counts is to be the same as when this was called: whoever was
    faster has put something in force that the caller has not seen.
    """
    seen = _counting(kind, version)
    kind.lock(version.name)
    version = kind.rows.get(pk=version.pk)
    _check_step(kind, version, to)
    counts = to in (States.CANARY, States.ACTIVE)
    if counts and _counting(kind, version) != seen:
        raise Refused(
            f"somebody else has just changed what counts of {version.name}",
            hint="compare with what is in force now, and try again",
        )
    if counts and _name(actor) == version.author:
        raise Refused(
            f"{version.author} wrote this version, so somebody else has to let it count",
            hint="ask another operator to review it",
        )
    before, was = audit.state(version), version.state
    version.share = _share(share) if to == States.CANARY else None
    retired = _make_room(kind, actor, version, to)
    version.state, version.changed_at = States(to), timezone.now()
    if to == States.ACTIVE:
        version.activated_at = version.changed_at
    if counts and not version.reviewer:
        version.reviewer = _name(actor)
    version.save(update_fields=["state", "share", "reviewer", "changed_at", "activated_at"])
    kind.promoted(version, was, retired)
    audit.record(
        actor, f"{kind.noun}.{to}", str(version), was=was, share=version.share,
        author=version.author, reviewer=version.reviewer,
        retired=[old.number for old in retired], **audit.changes(before, audit.state(version)),
    )  # fmt: skip
    return version


def _counting(kind: Kind[V], version: V) -> set[int]:
    peers = kind.peers(version.name).filter(state__in=[States.CANARY, States.ACTIVE])
    return set(peers.values_list("pk", flat=True))


def _check_step(kind: Kind[V], version: V, to: str) -> None:
    if to not in kind.steps:
        known = " or ".join(kind.steps)
        raise BadStep(f"a {kind.noun} has no state {to!r} to go to", "to", known)
    if version.state == States.RETIRED:
        raise Refused(
            f"{version} is retired", "to", "make a new draft from its text to bring it back"
        )
    if _ORDER.index(States(to)) <= _ORDER.index(States(version.state)):
        raise Refused(f"{version} is {version.state} already", "to", "versions never go back")


def _share(given: float | None) -> float:
    share = CANARY_SHARE if given is None else given
    if not 0 < share < 1:
        raise BadStep(f"{share:g} is no share of the racks", "share", "between 0 and 1")
    return share


def _make_room(kind: Kind[V], actor: User | str, version: V, to: str) -> list[V]:
    """Retire the versions in force whose place ``version`` is to take."""
    if to == States.SHADOW:
        return []
    states = [States.CANARY] if to == States.CANARY else [States.CANARY, States.ACTIVE]
    found = list(kind.peers(version.name).filter(state__in=states).exclude(pk=version.pk))
    for old in found:
        _retire(kind, actor, old, f"version {version.number} takes its place")
    return found


@transaction.atomic
def retire(kind: Kind[V], actor: User | str, version: V, *, why: str) -> V:
    """Take a version out of use. Raises :class:`Refused`."""
    kind.lock(version.name)
    version = kind.rows.get(pk=version.pk)
    if version.state == States.RETIRED:
        raise Refused(f"{version} is retired already")
    kind.may_retire(version)
    was = version.state
    _retire(kind, actor, version, why)
    kind.retired(version, was)
    return version


def _retire(kind: Kind[V], actor: User | str, version: V, why: str) -> None:
    before = audit.state(version)
    version.state, version.changed_at, version.share = States.RETIRED, timezone.now(), None
    version.save(update_fields=["state", "share", "changed_at"])
    told = audit.changes(before, audit.state(version))
    audit.record(actor, f"{kind.noun}.retire", str(version), why=why[:500], **told)


def _name(actor: User | str) -> str:
    return actor if isinstance(actor, str) else actor.get_username()
