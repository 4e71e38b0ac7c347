"""Playbooks as one kind of document: runs under way go on by the version that began them."""

from __future__ import annotations

from policies.documents.life import Kind
from policies.playbooks.models import PlaybookVersion
from policies.playbooks.parse import parse

__all__ = ["PLAYBOOKS"]

PLAYBOOKS = Kind(
    noun="playbook",
    model=PlaybookVersion,
    name_of=lambda text: parse(text).playbook.name,
)
