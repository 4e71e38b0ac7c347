"""Versions of playbooks: written by one person, reviewed by another, and never changed."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from accounts import audit
from fleet import locks
from policies.playbooks.models import PlaybookVersion
from policies.playbooks.parse import parse

#: Any number: numbers of versions are given one after the other.
_LOCK = 0x504C4159

State = PlaybookVersion.State


class VersionError(Exception):
    """A version is not where this can be done with it."""


class SameAuthor(VersionError):
    """Who wrote a version cannot review it."""


@transaction.atomic
def create_draft(text: str, *, author: str, now: datetime) -> PlaybookVersion:
    """Keep ``text`` as the next version of the playbook that it names. Raises PlaybookError."""
    name = parse(text).playbook.name
    locks.wait_until_commit(_LOCK)
    newest = PlaybookVersion.objects.filter(name=name).order_by("-number").first()
    version = PlaybookVersion.objects.create(
        name=name,
        number=1 if newest is None else newest.number + 1,
        text=text,
        author=author,
        created_at=now,
    )
    told = audit.changes(None, audit.state(version))
    audit.record(author, "playbook.draft", str(version), **told)
    return version


@transaction.atomic
def activate(version: PlaybookVersion, *, reviewer: str, now: datetime) -> PlaybookVersion:
    """Start new runs by a draft; what was active is retired. Raises :class:`VersionError`."""
    locks.wait_until_commit(_LOCK)
    version.refresh_from_db()
    if version.state != State.DRAFT:
        raise VersionError(f"{version} is {version.state}: only a draft can be activated")
    if version.author == reviewer:
        raise SameAuthor(f"{reviewer} wrote {version}: somebody else has to review it")
    return _activate(version, reviewer, now)


def _activate(version: PlaybookVersion, reviewer: str, now: datetime) -> PlaybookVersion:
    for old in PlaybookVersion.objects.active().filter(name=version.name):
        _retire(old, reviewer, now)
    before = audit.state(version)
    version.state, version.reviewer, version.activated_at = State.ACTIVE, reviewer, now
    version.save(update_fields=["state", "reviewer", "activated_at"])
    told = audit.changes(before, audit.state(version))
    audit.record(reviewer, "playbook.activate", str(version), author=version.author, **told)
    return version


@transaction.atomic
def retire(version: PlaybookVersion, *, by: str, now: datetime) -> PlaybookVersion:
    """Start no new runs by a version. Those under way go on by it."""
    locks.wait_until_commit(_LOCK)
    version.refresh_from_db()
    if version.state == State.RETIRED:
        raise VersionError(f"{version} is retired already")
    _retire(version, by, now)
    return version


def _retire(version: PlaybookVersion, by: str, now: datetime) -> None:
    before = audit.state(version)
    version.state, version.retired_at = State.RETIRED, now
    version.save(update_fields=["state", "retired_at"])
    told = audit.changes(before, audit.state(version))
    audit.record(by, "playbook.retire", str(version), **told)


@transaction.atomic
def adopt(text: str, *, author: str, now: datetime) -> PlaybookVersion | None:
    """Make ``text``, which came with the program, the active version of its playbook.

    What people wrote, activated or retired stays as they left it: then nothing is done.
    """
    name = parse(text).playbook.name
    locks.wait_until_commit(_LOCK)
    known = list(PlaybookVersion.objects.filter(name=name))
    if any(each.author != author for each in known):
        return None
    if known and (known[0].text == text or known[0].state != State.ACTIVE):
        return None
    return _activate(create_draft(text, author=author, now=now), author, now)
