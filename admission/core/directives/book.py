"""The book of directives: leases on the behavior of attempts, with owner, cause and end. Pure.

Some directives last: they hold until their cause ends or their lease runs out, and are undone then.
The others are done once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from django.db.models import TextChoices

from policies.leases import book as leases
from policies.leases.book import Book, Changes, Key, LineKind, Store, Term
from policies.leases.memory import MemoryStore

__all__ = [
    "ENDING",
    "ISSUED",
    "LASTING",
    "Desired",
    "DirectiveBook",
    "Directives",
    "Kind",
    "Lease",
    "MemoryDirectives",
    "Wanted",
    "desired_of",
]


class Kind(TextChoices):
    """The kinds of directives: actions and limits that an attempt is given."""

    #: work on this share of its batch
    SET_BATCH_SCALE = "set_batch_scale", "Set batch scale"
    #: draw at most so many W on each GPU
    SET_POWER_CAP = "set_power_cap", "Set power cap"
    #: stop computing, and keep the GPUs
    PAUSE = "pause", "Pause"
    #: go on: what others wanted paused is over
    RESUME = "resume", "Resume"
    #: save now
    CHECKPOINT = "checkpoint", "Checkpoint"
    #: save, end here, and go on at another site
    RESUME_AT_SITE = "resume_at_site", "Resume at site"
    #: save, end, and wait in the queue again
    STOP = "stop", "Stop"


LASTING = (Kind.SET_BATCH_SCALE, Kind.SET_POWER_CAP, Kind.PAUSE)
#: After these the attempt is over.
ENDING = (Kind.STOP, Kind.RESUME_AT_SITE)
#: The state of a directive of which nothing is known yet but that it was given.
ISSUED = "issued"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A directive that an owner wants. With the key of a live one it renews that one."""

    attempt_id: int
    kind: str
    owner: str
    cause: str
    reason: str
    expires_at: datetime
    value: float | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.owner, self.cause, str(self.kind), self.attempt_id


@dataclass(kw_only=True, eq=False)
class Lease(leases.Lease):
    """A directive in memory."""

    attempt_id: int
    arguments: Mapping[str, Any]
    note: str = ""
    state: str = ISSUED
    #: of the signal by which the executor was told to do it
    signal_seq: int | None = None
    applied_at: datetime | None = None
    outcome: str = ""

    @property
    def key(self) -> Key:
        return self.owner, self.cause, str(self.kind), self.attempt_id


R = TypeVar("R", bound=Lease)


class Directives(Store[R], Protocol[R]):
    """The store of directives."""

    def caps_w(self) -> Iterable[tuple[int, float]]:
        """Return attempt and value of each power cap in force, W per GPU."""


class DirectiveBook(Book[R, Wanted], Generic[R]):
    """All directives."""

    store: Directives[R]

    def __init__(self, store: Directives[R]) -> None:
        super().__init__(store)

    def _fields(self, wanted: Wanted, now: datetime) -> Mapping[str, Any]:
        return {
            "attempt_id": wanted.attempt_id,
            "kind": str(wanted.kind),
            "value": wanted.value,
            "arguments": dict(wanted.arguments),
            "owner": wanted.owner[:200],
            "cause": wanted.cause[:300],
            "reason": wanted.reason[:500],
            "evidence": dict(wanted.evidence),
            "issued_at": now,
            "expires_at": wanted.expires_at,
            "note": wanted.reason[:1000],
        }

    def _issued(self, work: Changes[R], row: R, wanted: Wanted) -> None:
        work.tell(row, LineKind.ISSUED, row.reason, value=row.value)

    def _take_over(self, work: Changes[R], row: R, wanted: Wanted) -> bool:
        if row.value == wanted.value:
            return False
        work.tell(row, LineKind.CHANGED, wanted.reason, value=wanted.value, was=row.value)
        row.value, row.reason = wanted.value, wanted.reason[:500]
        # Another value is followed from the start.
        row.state, row.signal_seq, row.applied_at, row.outcome = ISSUED, None, None, ""
        return True


class MemoryDirectives(MemoryStore[Lease]):
    """All directives of a world."""

    def __init__(self) -> None:
        super().__init__(Lease)

    def terms(self, owner: str) -> Mapping[Key, Term]:
        return {key: term for key, term in super().terms(owner).items() if key[2] in LASTING}

    def caps_w(self) -> Iterable[tuple[int, float]]:
        return [
            (row.attempt_id, row.value)
            for row in self
            if row.kind == Kind.SET_POWER_CAP and row.value is not None
        ]

    def of(self, attempt_id: int) -> list[Lease]:
        """Return the directives to one attempt."""
        return [row for row in self if row.attempt_id == attempt_id]


# --- What they come to ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Desired:
    """The desired state of an attempt: its batch, its power cap, and whether it pauses."""

    batch_scale: float = 1.0
    #: per GPU; None: none beyond that of its placement
    power_cap_w: float | None = None
    is_paused: bool = False


class _Directive(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def value(self) -> float | None: ...


def desired_of(directives: Iterable[_Directive]) -> Desired:
    """Return the desired state under the directives in force: the strictest of each kind."""
    scales, caps, is_paused = [1.0], [], False
    for each in directives:
        if each.kind == Kind.SET_BATCH_SCALE and each.value is not None:
            scales.append(each.value)
        elif each.kind == Kind.SET_POWER_CAP and each.value is not None:
            caps.append(each.value)
        elif each.kind == Kind.PAUSE:
            is_paused = True
    return Desired(min(scales), min(caps, default=None), is_paused)
