"""Documents that come with Headroom, brought to the database where they are missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from django.db import transaction
from django.utils.module_loading import import_string

from policies.documents import life
from policies.documents.life import Kind
from policies.documents.models import States, Version

__all__ = ["AUTHOR", "REVIEWER", "load"]

AUTHOR = "headroom"
REVIEWER = "system"


def load(
    model: type[Version], texts: Mapping[str, str], kind_at: str, withdrawn: Collection[str] = ()
) -> list[str]:
    """Add missing or newer built-in documents, as active versions, and return their names.

    Those ``withdrawn`` came with Headroom before and do so no more: they are retired. What people
    have touched is left alone: a document that has a version of theirs, or that they have retired.
    One query where nothing is to be done, and then the kind is not imported: its reader may be slow
    to import, and at most starts nothing is to be done.
    """
    known: dict[str, list[Version]] = {}
    for row in model._default_manager.filter(name__in=[*texts, *withdrawn]):
        known.setdefault(row.name, []).append(row)
    wanted = [name for name, text in texts.items() if _is_wanted(text, known.get(name, []))]
    over = [row for name in withdrawn for row in _in_use(known.get(name, []))]
    if not wanted and not over:
        return []
    kind: Kind[Version] = import_string(kind_at)
    with transaction.atomic():
        for name in wanted:
            made = life.draft(kind, AUTHOR, texts[name], note="comes with Headroom")
            life.promote(kind, REVIEWER, made, States.ACTIVE)
        for row in over:
            life.retire(kind, REVIEWER, row, why="does not come with Headroom any more")
    return wanted


def _is_wanted(text: str, versions: list[Version]) -> bool:
    """Say whether ``text`` is new, and the versions before it are Headroom's own, one active."""
    if any(row.text == text for row in versions):
        return False
    is_ours = all(row.author == AUTHOR for row in versions)
    return is_ours and (not versions or any(row.state == States.ACTIVE for row in versions))


def _in_use(versions: list[Version]) -> list[Version]:
    """Return the active versions of a document that is Headroom's own alone."""
    is_ours = all(row.author == AUTHOR for row in versions)
    return [row for row in versions if is_ours and row.state == States.ACTIVE]
