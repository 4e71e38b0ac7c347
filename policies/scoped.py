"""Rows of the database that are about scopes: those with ``scope_kind`` and ``scope_name``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from django.db.models import Q

from policies.scopes import Scope, ScopeKind

__all__ = ["on"]


def on(scopes: Iterable[Scope]) -> Q:
    """Return the condition under which a row is about one of ``scopes``; of none, no row is."""
    names: dict[ScopeKind, list[str]] = defaultdict(list)
    for scope in scopes:
        names[scope.kind].append(scope.name)
    here = Q(pk__in=[])
    for kind, each in names.items():
        here |= Q(scope_kind=kind, scope_name__in=each)
    return here
