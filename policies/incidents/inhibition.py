"""Inhibition: a firing that another one explains is not told of, and opens no incident."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.incidents.matchers import Bools, Matcher, Subject, Subjects
from policies.incidents.places import Places
from policies.scopes import Scope

__all__ = ["Inhibition", "Relation", "inhibited", "root_of"]


class Relation(enum.StrEnum):
    """How the two scopes of an inhibition lie to each other."""

    #: the target is a part of the source: a rack of a feed, a node of a rack
    BELOW = "below"
    #: both are at one site
    SAME_SITE = "same_site"


@dataclass(frozen=True)
class Inhibition:
    """A firing of ``source`` hides each firing of ``target`` that lies in ``relation`` to it."""

    name: str
    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    relation: Relation


def inhibited(
    subjects: Sequence[Subject], inhibitions: Iterable[Inhibition], places: Places
) -> dict[str, str]:
    """Return the key of the inhibiting firing by the key of each subject that is inhibited.

    Of several, the one that is the highest: of a site, a feed and a rack, the site. What is source
    and target of the same inhibition is not inhibited by it, so that two never hide each other.
    """
    table = Subjects(subjects)
    found: dict[str, str] = {}
    for inhibition in inhibitions:
        source = table.matching(inhibition.source)
        if not source.any():
            continue
        target = table.matching(inhibition.target)
        find = _FINDERS[inhibition.relation](subjects, source, places)
        for row in np.flatnonzero(_may_hide(inhibition, source, target)).tolist():
            by = find(subjects[row])
            if by is not None and by != subjects[row].key:
                found.setdefault(subjects[row].key, by)
    return _without_circles(found)


def _may_hide(inhibition: Inhibition, source: Bools, target: Bools) -> Bools:
    # One that is below another cannot be above it as well: there both may be sources.
    return target if inhibition.relation is Relation.BELOW else target & ~source


def _below(
    subjects: Sequence[Subject], source: Bools, places: Places
) -> Callable[[Subject], str | None]:
    by_scope: dict[Scope, str] = {}
    for row in np.flatnonzero(source).tolist():
        by_scope.setdefault(subjects[row].scope, subjects[row].key)

    def find(target: Subject) -> str | None:
        above = reversed(places.above(target.scope))
        return next((by_scope[scope] for scope in above if scope in by_scope), None)

    return find


def _same_site(
    subjects: Sequence[Subject], source: Bools, _places: Places
) -> Callable[[Subject], str | None]:
    by_site: dict[str, str] = {}
    for row in np.flatnonzero(source).tolist():
        by_site.setdefault(subjects[row].site, subjects[row].key)
    by_site.pop("", None)
    return lambda target: by_site.get(target.site)


_FINDERS: Mapping[
    Relation,
    Callable[[Sequence[Subject], Bools, Places], Callable[[Subject], str | None]],
] = {Relation.BELOW: _below, Relation.SAME_SITE: _same_site}


def _without_circles(found: dict[str, str]) -> dict[str, str]:
    """Break circles of inhibitions, in which each would hide itself: of a circle, one shows."""
    kept = dict(found)
    for key in found:
        seen = {key}
        by = kept.get(key)
        while by is not None and by not in seen:
            seen.add(by)
            by = kept.get(by)
        if by == key:
            del kept[key]
    return kept


def root_of(key: str, by: Mapping[str, str]) -> str:
    """Return the key of the firing that explains ``key`` in the end, or ``key`` itself."""
    while key in by:
        key = by[key]
    return key
