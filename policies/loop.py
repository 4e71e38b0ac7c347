"""The loop of policies: headroom, then rules, then their restrictions, incidents and playbooks.

Last it publishes what Prometheus is shown of headroom.

:func:`evaluate_once` is done every other second by whichever worker gets to it; of two at once, one
does nothing. Each of its parts is a transaction of its own and brings about what is so *now*: what
fires is compared with the episodes that are open, those with the restrictions that are held, and
what nobody has told incidents yet is told. So it may die anywhere: the next round finds the same
differences and makes them good. And what fails in one part holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

import structlog
from django.db import transaction

from fleet import locks
from policies import current
from policies.firings import Firing, Severity
from policies.headroom import exposition
from policies.headroom.evaluate import Headroom
from policies.incidents import follow, notify
from policies.playbooks import starting
from policies.restrictions import store
from policies.restrictions.book import RestrictionBook
from policies.rules import catalog, effects, engine, places
from policies.rules import store as rule_store
from policies.rules.models import RuleEpisode
from policies.scopes import ScopeKind

log = structlog.get_logger(__name__)

#: Of the advisory lock: there is one loop for a database.
_LOCK = 0x504F4C49
#: Firings that one round tells.
_MOST_TOLD = 20_000


@dataclass(frozen=True)
class Round:
    """The outcome of one round."""

    rules: int
    firing: int
    #: the parts that failed; the log says how, and the next round tries again
    failed: tuple[str, ...]


def evaluate_once(now: float) -> Round | None:
    """Do one round at ``now`` (Unix s). None: another process is at it."""
    with only_one() as held:
        return _round(now) if held else None


def only_one() -> AbstractContextManager[bool]:
    """Hold the loop's lock; the value is False where another process holds it."""
    return locks.only_one(_LOCK)


def _round(now: float) -> Round:
    at = rule_store.moment(now)
    failed: list[str] = []
    found = (0, 0)

    def part(name: str, work: Callable[[], None]) -> None:
        try:
            with transaction.atomic():
                work()
        except Exception:
            log.exception("policy_loop_part_failed", part=name)
            failed.append(name)

    @cache
    def seen() -> Headroom:
        return current.headroom(now)

    def rules() -> None:
        nonlocal found
        found = follow_rules(seen(), now)

    part("rules", rules)
    part("restrictions", lambda: restrict(store.book(), at))
    part("incidents", lambda: tell(at))
    part("exposition", lambda: exposition.publish(seen()))
    return Round(*found, tuple(failed))


# --- Rules ---------------------------------------------------------------------------------------


def follow_rules(headroom: Headroom, now: float) -> tuple[int, int]:
    """Move all rules on; return how many there are, and on how many scopes they fire."""
    rules = catalog.live_rules()
    tables = places.scopes_of(headroom, {ScopeKind(each.rule.scope) for each in rules})
    before = rule_store.load_states(rules)
    after, changes = engine.step(rules, tables, before, now)
    at = rule_store.moment(now)
    rule_store.save_states(before, after)
    rule_store.follow_episodes(changes, headroom.fleet, at)
    rule_store.save_faults(changes, rules, at)
    return len(rules), sum(len(one.fires_on) for one in changes.evaluated.values())


# --- Restrictions --------------------------------------------------------------------------------


def restrict(book: RestrictionBook[Any], now: datetime) -> None:
    """Hold the restrictions of open episodes, renew those about to expire, and end the rest."""
    counting = RuleEpisode.objects.filter(cleared_at=None).exclude(mode="shadow")
    effects.keep(book, counting.exclude(restricts=[]).only(*_RESTRICTING), now)


#: The fields of an episode that its restrictions are made of (``effects.Episode``).
_RESTRICTING = ("rule", "scope_kind", "scope_name", "since", "summary", "values", "restricts")


# --- Incidents, playbooks, channels --------------------------------------------------------------


def tell(now: datetime) -> None:
    """Hand fired and cleared episodes to incidents and channels, and start playbooks."""
    fired = _untold(told_fired=False)
    cleared = _untold(cleared_at__isnull=False, told_cleared=False)
    known = {row.pk for row in fired}
    follow.cleared(_firings([row for row in cleared if row.pk not in known]), now=now)
    followed = follow.take(_firings(fired), now=now)
    # What has come and gone since the last round is told as both.
    follow.cleared(_firings([row for row in cleared if row.pk in known]), now=now)
    starting.pursue(followed.begun, now)
    for row in fired:
        _notify(row, now)
    RuleEpisode.objects.filter(pk__in=list(known)).update(told_fired=True)
    RuleEpisode.objects.filter(pk__in=[row.pk for row in cleared]).update(told_cleared=True)


def _untold(**which: object) -> list[RuleEpisode]:
    rows = RuleEpisode.objects.filter(**which).exclude(mode="shadow")
    return list(rows.select_related("version").order_by("id")[:_MOST_TOLD])


def _firings(rows: Sequence[RuleEpisode]) -> list[Firing]:
    return [rule_store.firing_of(row, row.version.number) for row in rows if row.has_incident]


def _notify(row: RuleEpisode, now: datetime) -> None:
    if not row.channels:
        return
    subject = f"{row.rule} on {row.scope}"
    body = f"{row.summary}\nSince {row.since:%Y-%m-%d %H:%M:%S} UTC."
    for channel in row.channels:
        try:
            notify.send(
                [channel], subject, body, key=f"rule-episode-{row.pk}", now=now,
                severity=Severity(row.severity),
            )  # fmt: skip
        except notify.UnknownChannel:
            log.warning("rule_names_unknown_channel", rule=row.rule, channel=channel)
