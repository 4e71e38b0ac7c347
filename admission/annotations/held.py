"""Which attempts hold, or held, GPUs at a place, or rely on it."""

from __future__ import annotations

from django.db.models import Q

from admission.outages.foreseeing import relying
from policies.about import RELIED_ON, AboutPlace
from policies.scopes import ScopeKind

__all__ = ["held_at"]


def held_at(about: AboutPlace, now: float) -> Q:
    """Return the condition for attempts on the GPUs of a place, whatever became of them.

    Of a link and of storage they are those that rely on it at ``now`` (Unix s): who did so before
    is not known. Queries for these. Raises UnknownScope.
    """
    scope = about.scope
    if scope.kind in RELIED_ON:
        return Q(key__in=[each.key for each in relying(scope, now)])
    found = Q(placement__racks__has_any_keys=about.rack_names)
    if scope.kind is ScopeKind.NODE:
        found &= Q(placement__nodes__contains=[scope.name])
    if scope.kind is ScopeKind.GPU:
        node, _, index = scope.name.rpartition("/")
        found &= Q(placement__gpus__contains={node: [int(index)]})
    return found
