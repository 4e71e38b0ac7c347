"""What happened at a place, as the chart of it marks it and the table under it lists it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from accounts.visibility import Visibility
from admission.annotations.happenings import Happening, happenings
from admission.jobs.models import Attempt
from dashboard import conditions, exports
from fleet.tables import FleetArrays
from policies.about import AboutPlace
from policies.firings import Severity
from policies.scopes import Scope, ScopeKind
from telemetry.spans import Span

__all__ = ["MOST", "Annotated", "Annotation", "of_place"]

#: So many are marked and listed, the newest; a file has all that are known.
MOST = 24
#: What has all tags of one of these is bad news.
_BAD = (
    ("incident", Severity.CRITICAL.value, "begin"),
    ("job", Attempt.Outcome.FAILED.value, "end"),
    ("job", Attempt.Outcome.LOST.value, "end"),
)
_PAGES: dict[str, str] = {
    "incident": "incident",
    "restriction": "restriction",
    "playbook": "playbook-run",
    "job": "job-page",
    "rollout": "rollout",
}


@dataclass(frozen=True, slots=True)
class Annotation:
    """One thing that happened. ``number`` is that of its mark, in order of time.

    ``href`` is empty where the reader may not know what it is about, or that is gone.
    """

    number: int
    at: datetime
    kind: str
    text: str
    why: str
    href: str
    is_bad: bool

    @property
    def unix(self) -> str:
        """When it happened, Unix s, for the chart."""
        return f"{self.at.timestamp():.3f}"


@dataclass(frozen=True, slots=True)
class Annotated:
    """What happened, the newest first; ``all``: how much there was."""

    shown: list[Annotation]
    all: int


def of_place(fleet: FleetArrays, scope: Scope, span: Span, visibility: Visibility) -> Annotated:
    """Return what happened at a place, its parts, and what it is a part of, in ``span``.

    Some fifteen queries. Raises :class:`~policies.scopes.UnknownScope`.
    """
    about = AboutPlace(fleet, scope)
    found = happenings(span.start_at, span.end_at, visibility, about=about)
    kept = found[: exports.most(MOST)]
    return Annotated(
        [_annotation(fleet, len(kept) - at, each) for at, each in enumerate(kept)], len(found)
    )


def _annotation(fleet: FleetArrays, number: int, each: Happening) -> Annotation:
    return Annotation(
        number=number,
        at=each.at,
        kind=each.kind,
        text=each.what,
        why=each.data,
        href=_href(fleet, each),
        is_bad=_is_bad(each),
    )


def _is_bad(each: Happening) -> bool:
    return any({*tags} <= {*each.tags} for tags in _BAD)


def _href(fleet: FleetArrays, each: Happening) -> str:
    if not each.key:
        return ""
    if each.kind == "cap":
        kind, _, name = each.key.partition(" ")
        return conditions.place_url(fleet, Scope(ScopeKind(kind), name))
    return reverse(_PAGES[each.kind], args=[each.key])
