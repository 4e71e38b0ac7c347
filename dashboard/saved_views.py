"""Pages whose filters can be saved, and what their addresses may say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from django.urls import reverse

from accounts.models import SavedView, User
from accounts.saved_views.actions import ViewRefused
from accounts.visibility import Visibility, sees_all
from dashboard import exports, incidents, queue, throttling
from headroom.contracts import PLAIN_IN_WORDS, odd_character

__all__ = ["PAGES", "SavedPage", "address", "checked", "lasting", "shown_to"]

_MOST_QUERY = 2_000


def _nothing(_: Mapping[str, str]) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class SavedPage:
    """A page: its URL, what its filters are called, and what is wrong with values of them.

    ``naming``: filters whose values may be names of jobs and projects.
    """

    url_name: str
    params: frozenset[str]
    fault: Callable[[Mapping[str, str]], str] = _nothing
    naming: frozenset[str] = frozenset()


PAGES: Mapping[str, SavedPage] = {
    "queue": SavedPage(
        "queue-page",
        frozenset({"state", "reason", "class", "project", "site", "search", "mine"}),
        lambda given: queue.read(given).error,
        frozenset({"project", "search"}),
    ),
    "incidents": SavedPage(
        "incidents",
        frozenset({"state", "severity", "site", "rule", "assignee", "scope", "mine"}),
        lambda given: incidents.read(given).error,
        frozenset({"scope"}),
    ),
    "restrictions": SavedPage(
        "restrictions",
        frozenset({"kind", "search", "show", "mine"}),
        naming=frozenset({"search"}),
    ),
    "throttling": SavedPage(
        "throttle-events",
        frozenset(
            {"range", "from", "to", "zone", "class", "severity", "cause", "site", "rack", "node"}
            | {"open", "by"}
        ),
        lambda given: throttling.read(given, time.time()).error,
    ),
    "rules": SavedPage("rules", frozenset({"show", "search"})),
    "lemons": SavedPage("lemons", frozenset({"state"})),
    "agents": SavedPage("agents", frozenset({"state", "search"})),
}


def checked(page: str, query: str) -> str:
    """Return a query string of a page, with its filters and hidden columns alone.

    Raises :class:`ViewRefused`, with the field at fault.
    """
    if page not in PAGES:
        raise ViewRefused("page", f"there is none of that name; there are {', '.join(PAGES)}")
    if len(query) > _MOST_QUERY:
        raise ViewRefused("query", f"it has more than {_MOST_QUERY} characters")
    pairs = parse_qsl(query)
    known = PAGES[page].params
    for name, value in pairs:
        if name != exports.HIDE and name not in known:
            raise ViewRefused("query", f"{name[:40]!r} is none of {', '.join(sorted(known))}")
        if odd_character(value):
            raise ViewRefused("query", f"{name} has to be {PLAIN_IN_WORDS}")
    given = {name: value for name, value in pairs if name != exports.HIDE}
    if fault := PAGES[page].fault(given):
        raise ViewRefused("query", fault)
    hidden = [pair for pair in pairs if pair[0] == exports.HIDE][: exports.MOST_HIDDEN]
    return urlencode([*sorted(given.items()), *hidden])


def shown_to(reader: Visibility, user: User, page: str) -> list[SavedView]:
    """Return the views of a page that a user may open: the own ones, and those that are shared.

    A shared one that may name a job or project is left out for who does not see all jobs. One
    query, and one more for names of jobs in the names of views.
    """
    rows = SavedView.objects.seen_by(user.pk).filter(page=page).select_related("owner")
    if sees_all(user):
        return list(rows)
    naming = PAGES[page].naming
    return [
        row
        for row in rows
        if row.owner_id == user.pk
        or (
            reader.text(row.name) == row.name
            and not naming & {name for name, _ in parse_qsl(row.query)}
        )
    ]


def lasting(page: str, params: Mapping[str, str]) -> str:
    """Return what a page shows now as a query string that can be saved."""
    known = PAGES[page].params
    given = [(name, value) for name, value in params.items() if name in known and value]
    return urlencode([*sorted(given), *exports.hides()])


def address(page: str, query: str) -> str:
    """Return the address of a saved view: always one of our own pages."""
    url = reverse(PAGES[page].url_name)
    return f"{url}?{query}" if query else url
