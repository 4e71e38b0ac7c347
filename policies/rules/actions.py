"""Actions on rules besides the life of their versions: handing over, and replays."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.models import User
from policies.documents.life import BadStep, Kind
from policies.documents.models import States
from policies.rules import document
from policies.rules.models import RuleProgress, RuleReplay, RuleVersion
from policies.rules.states import handed_over

__all__ = ["RULES", "ask_for_replay"]

#: The longest span that one replay covers, s.
LONGEST_REPLAY_S = 31 * 86_400.0


def _hand_over(version: RuleVersion, was: str, retired: list[RuleVersion]) -> None:
    """Give ``version`` the pending and firing scopes of those that it takes over from."""
    if version.state == States.SHADOW:
        return
    before = list(retired)
    if version.state == States.CANARY:
        # The active version goes on beside it; on the canary's racks, this one does.
        before += RuleVersion.objects.active().filter(name=version.name)
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


def _give_back(version: RuleVersion, was: str) -> None:
    """Have the active version go on with the scopes on which a canary fires."""
    active = RuleVersion.objects.active().filter(name=version.name).first()
    given = RuleProgress.objects.filter(version=version).first()
    if was != States.CANARY or active is None or given is None:
        return
    progress, _ = RuleProgress.objects.get_or_create(version=active, defaults={"at": given.at})
    progress.scopes = handed_over(progress.scopes, given.scopes, counted=True)
    progress.save(update_fields=["scopes"])


RULES = Kind(
    noun="rule",
    model=RuleVersion,
    name_of=lambda text: document.read(text).name,
    steps=(States.SHADOW, States.CANARY, States.ACTIVE),
    promoted=_hand_over,
    retired=_give_back,
)


@transaction.atomic
def ask_for_replay(
    actor: User | str, version: RuleVersion, start_at: float, end_at: float
) -> RuleReplay:
    """Ask for a replay over a span, Unix s. The task of that is sent off by the caller."""
    now = timezone.now()
    if not start_at < end_at <= now.timestamp() + 1.0:
        raise BadStep("a replay is of a span in the past", "end", "start < end, end not after now")
    if end_at - start_at > LONGEST_REPLAY_S:
        raise BadStep("the span is longer than 31 days", "start", "replay it in parts")
    by = actor if isinstance(actor, str) else actor.get_username()
    replay = RuleReplay.objects.create(
        version=version, by=by, created_at=now,
        start_at=datetime.fromtimestamp(start_at, UTC), end_at=datetime.fromtimestamp(end_at, UTC),
    )  # fmt: skip
    told = audit.changes(None, audit.state(replay))
    audit.record(actor, "rule.replay", str(version), start=start_at, end=end_at, **told)
    return replay
