"""What people do with rules. Each is one transaction with its line in the audit log.

Two that change one rule at once wait for each other: every action locks the rule's row first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from accounts import audit
from accounts.models import User
from policies.rules import document
from policies.rules.models import Rule, RuleProgress, RuleReplay, RuleVersion
from policies.rules.states import handed_over

States = RuleVersion.States

#: The share of racks on which a canary counts, where nobody says.
CANARY_SHARE = 0.1
_ORDER = [States.DRAFT, States.SHADOW, States.CANARY, States.ACTIVE]
#: The longest span that one replay covers, s.
LONGEST_REPLAY_S = 31 * 86_400.0


@dataclass
class Refused(Exception):
    """Something cannot be done with a version as it stands. Says why, and the way out."""

    message: str
    field: str = ""
    hint: str = ""

    def __str__(self) -> str:
        return self.message


@transaction.atomic
def create_draft(actor: User | str, text: str, *, note: str = "") -> RuleVersion:
    """Add a version of the rule that ``text`` names. Raises :class:`document.RuleError`."""
    name = document.read(text).name
    now = timezone.now()
    Rule.objects.get_or_create(name=name, defaults={"created_at": now})
    rule = _locked(name)
    newest = rule.versions.aggregate(newest=Max("number"))["newest"] or 0
    version = RuleVersion.objects.create(
        rule=rule, number=newest + 1, text=text, note=note[:500],
        author=_name(actor), created_at=now, changed_at=now,
    )  # fmt: skip
    told = audit.changes(None, audit.state(version))
    audit.record(actor, "rule.draft", str(version), note=note[:500], **told)
    return version


@transaction.atomic
def promote(
    actor: User | str, version: RuleVersion, to: str, *, share: float | None = None
) -> RuleVersion:
    """Bring a version further: to shadow, canary or active. Raises :class:`Refused`.

    Whoever has a version count cannot be its author. An active one retires the one before, and a
    canary the canary before.
    """
    rule = _locked(version.rule.name)
    version = RuleVersion.objects.get(pk=version.pk)
    before = audit.state(version)
    _check_step(version, to)
    counts = to in (States.CANARY, States.ACTIVE)
    if counts and _name(actor) == version.author:
        raise Refused(
            f"{version.author} wrote this version, so somebody else has to let it count",
            hint="ask another operator to review it; shadow needs no review",
        )
    if to == States.CANARY:
        share = CANARY_SHARE if share is None else share
        if not 0 < share < 1:
            raise Refused(f"{share:g} is no share of the racks", "share", "between 0 and 1")
    retired = _make_room(actor, rule, version, to)
    was = version.state
    version.state, version.changed_at = States(to), timezone.now()
    version.share = share if to == States.CANARY else None
    if counts and not version.reviewer:
        version.reviewer = _name(actor)
    _hand_over(version, was, retired)
    version.save(update_fields=["state", "share", "reviewer", "changed_at"])
    audit.record(
        actor, f"rule.{to}", str(version), was=was, share=version.share,
        author=version.author, reviewer=version.reviewer,
        retired=[old.number for old in retired], **audit.changes(before, audit.state(version)),
    )  # fmt: skip
    return version


def _check_step(version: RuleVersion, to: str) -> None:
    if to not in _ORDER[1:]:
        raise Refused(f"there is no state {to!r} to go to", "to", "shadow, canary or active")
    if version.state == States.RETIRED:
        raise Refused(
            f"{version} is retired", "to", "make a new draft from its text to bring it back"
        )
    if _ORDER.index(States(to)) <= _ORDER.index(States(version.state)):
        raise Refused(f"{version} is {version.state} already", "to", "versions never go back")


def _make_room(actor: User | str, rule: Rule, version: RuleVersion, to: str) -> list[RuleVersion]:
    """Retire what counts in the place that ``version`` is to take."""
    if to == States.SHADOW:
        return []
    states = [States.CANARY] if to == States.CANARY else [States.CANARY, States.ACTIVE]
    found = list(rule.versions.filter(state__in=states).exclude(pk=version.pk))
    for old in found:
        _retire(actor, old, f"version {version.number} takes its place")
    return found


def _hand_over(version: RuleVersion, was: str, retired: Iterable[RuleVersion]) -> None:
    """Give ``version`` what is under way in those that it takes over from."""
    if version.state == States.SHADOW:
        return
    before = list(retired)
    if version.state == States.CANARY:
        # The active version goes on beside it; on the canary's racks, this one does.
        before += version.rule.versions.filter(state=States.ACTIVE)
    progress, _ = RuleProgress.objects.get_or_create(
        version=version, defaults={"at": timezone.now().timestamp()}
    )
    scopes = handed_over(progress.scopes, {}, counted=was == States.CANARY)
    for row in RuleProgress.objects.filter(version__in=before):
        scopes = handed_over(scopes, row.scopes, counted=True)
        # The time of the last evaluation, by the clock of who did it.
        progress.at = row.at
    progress.scopes = scopes
    progress.save(update_fields=["scopes", "at"])


@transaction.atomic
def retire(actor: User | str, version: RuleVersion, *, why: str) -> RuleVersion:
    """Take a version out of use; what it restricts ends with the next evaluation."""
    rule = _locked(version.rule.name)
    version = RuleVersion.objects.get(pk=version.pk)
    if version.state == States.RETIRED:
        raise Refused(f"{version} is retired already")
    active = rule.versions.filter(state=States.ACTIVE).first()
    was = version.state
    _retire(actor, version, why)
    if was == States.CANARY and active is not None:
        _give_back(version, active)
    return version


def _give_back(canary: RuleVersion, active: RuleVersion) -> None:
    """Have the active version go on with what the canary fires on."""
    given = RuleProgress.objects.filter(version=canary).first()
    if given is None:
        return
    progress, _ = RuleProgress.objects.get_or_create(version=active, defaults={"at": given.at})
    progress.scopes = handed_over(progress.scopes, given.scopes, counted=True)
    progress.save(update_fields=["scopes"])


def _retire(actor: User | str, version: RuleVersion, why: str) -> None:
    before = audit.state(version)
    version.state, version.changed_at, version.share = States.RETIRED, timezone.now(), None
    version.save(update_fields=["state", "share", "changed_at"])
    told = audit.changes(before, audit.state(version))
    audit.record(actor, "rule.retire", str(version), why=why[:500], **told)


@transaction.atomic
def ask_for_replay(
    actor: User | str, version: RuleVersion, start_at: float, end_at: float
) -> RuleReplay:
    """Ask for a replay over a span, Unix s. The task of that is sent off by the caller."""
    now = timezone.now()
    if not start_at < end_at <= now.timestamp() + 1.0:
        raise Refused("a replay is of a span in the past", "end", "start < end, end not after now")
    if end_at - start_at > LONGEST_REPLAY_S:
        raise Refused("the span is longer than 31 days", "start", "replay it in parts")
    replay = RuleReplay.objects.create(
        version=version, by=_name(actor), created_at=now,
        start_at=datetime.fromtimestamp(start_at, UTC), end_at=datetime.fromtimestamp(end_at, UTC),
    )  # fmt: skip
    told = audit.changes(None, audit.state(replay))
    audit.record(actor, "rule.replay", str(version), start=start_at, end=end_at, **told)
    return replay


def _locked(name: str) -> Rule:
    return Rule.objects.select_for_update().get(name=name)


def _name(actor: User | str) -> str:
    return actor if isinstance(actor, str) else actor.get_username()
