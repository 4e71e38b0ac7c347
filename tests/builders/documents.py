"""Documents of any kind, as versions that count."""

from __future__ import annotations

from typing import TypeVar

from admission.policy.catalog import POLICIES
from policies.documents import life
from policies.documents.life import Kind
from policies.documents.models import States, Version

V = TypeVar("V", bound=Version)


def put_in_force(
    kind: Kind[V], text: str, *, author: str = "anna", reviewer: str = "boris", note: str = ""
) -> V:
    """Add a version that one wrote and another has let count."""
    draft = life.draft(kind, author, text, note=note)
    return life.promote(kind, reviewer, draft, States.ACTIVE)


def grant(project: str, *classes: str) -> None:
    """Have the admission policy in force let a project use classes beside those open to all."""
    text = f"name: grants\nprojects: {{{project}: {{granted: [{', '.join(classes)}]}}}}\n"
    put_in_force(POLICIES, text)
