"""Saving, sharing and deleting views, each with its line in the audit log."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction

from accounts import audit
from accounts.edge.names import plain
from accounts.models import SavedView, User
from accounts.roles import Capability

__all__ = ["MAY_SHARE", "MOST_VIEWS", "ViewRefused", "delete", "save"]

#: A user keeps no more.
MOST_VIEWS = 200
#: What everybody sees, operators decide.
MAY_SHARE = Capability.EDIT_POLICIES
_MOST_NAME = 200


class ViewRefused(Exception):
    """A view that may not be saved like this. ``field``: the field at fault."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@transaction.atomic
def save(actor: User, page: str, name: str, query: str, *, is_shared: bool) -> SavedView:
    """Keep ``query`` of ``page`` under a name; one of the actor's of that name is replaced.

    What ``query`` may say is for the caller to check. Raises :class:`ViewRefused`.
    """
    name = _named(name)
    if is_shared and not actor.can(MAY_SHARE):
        raise ViewRefused("shared", actor.why_not(MAY_SHARE))
    # One save of a user after the other: the number of views is counted, and one of a name.
    User.objects.select_for_update(of=("self",)).get(pk=actor.pk)
    mine = SavedView.objects.filter(owner=actor)
    row = mine.filter(page=page, name=name).first()
    if row is None and mine.count() >= MOST_VIEWS:
        raise ViewRefused("name", f"you keep {MOST_VIEWS} views, which is the most: delete one")
    before = None if row is None else audit.state(row)
    row = row or SavedView(owner=actor, page=page, name=name)
    row.query, row.is_shared = query, is_shared
    row.save()
    told = audit.changes(before, audit.state(row))
    audit.record(actor, "saved_view.save", str(row), **told)
    return row


@transaction.atomic
def delete(actor: User, view_id: int) -> str:
    """Delete a view of the actor's own; return its name. Raises ``SavedView.DoesNotExist``."""
    row = SavedView.objects.select_for_update(of=("self",)).get(pk=view_id, owner=actor)
    audit.record(actor, "saved_view.delete", str(row), **audit.changes(audit.state(row), None))
    row.delete()
    return row.name


def _named(name: str) -> str:
    name = name.strip()
    if not name:
        raise ViewRefused("name", "give it a name")
    if len(name) > _MOST_NAME:
        raise ViewRefused("name", f"it has {len(name)} characters, and {_MOST_NAME} at most")
    try:
        plain(name)
    except ValidationError as error:
        raise ViewRefused("name", error.messages[0]) from error
    return name
