"""Storing the results of an evaluation: states, episodes and faults. Shells around the engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from fleet.tables import FleetArrays
from headroom.numbers import number_of, plain
from policies.firings import Firing, Severity
from policies.rules import effects, states
from policies.rules.document import Notify, OpenIncident
from policies.rules.engine import Changes, Evaluated, LiveRule, RuleState
from policies.rules.models import RuleEpisode, RuleFault, RuleProgress, RuleReplay

#: Episodes and replays that ended are kept for this long.
EPISODES_KEPT = timedelta(days=90)
#: Rows that one statement writes.
_BATCH = 2_000


# --- States --------------------------------------------------------------------------------------


def load_states(rules: Iterable[LiveRule]) -> dict[int, RuleState]:
    """Return the state of each version. One query."""
    rows = RuleProgress.objects.filter(version__in=[live.version_id for live in rules])
    return {row.version_id: states.unpacked(row.scopes, row.at) for row in rows}


def save_states(before: Mapping[int, RuleState], after: Mapping[int, RuleState]) -> None:
    """Write the states of versions on which something is under way, or was.

    Of the rest nothing has to be kept: a version that never saw anything starts as it is.
    """
    rows = []
    for version_id, state in after.items():
        scopes = states.packed(state)
        if scopes or (version_id in before and len(before[version_id].names)):
            rows.append(RuleProgress(version_id=version_id, at=state.at, scopes=scopes))
    RuleProgress.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["version"],
        update_fields=["at", "scopes"],
        batch_size=_BATCH,
    )


# --- Episodes ------------------------------------------------------------------------------------


#: The fields of an episode by which it is told whether it goes on.
_FOLLOWED = ("version_id", "rule", "mode", "scope_kind", "scope_name", "told_fired")


def follow_episodes(changes: Changes, fleet: FleetArrays, now: datetime) -> bool:
    """Begin episodes of new firings, end those of old ones; say whether there was any.

    By what is so now, not by what has just changed: whatever was missed before is made up for.
    """
    # Not their texts and values: thousands may be open, and this is done every other second.
    open_ones = list(RuleEpisode.objects.filter(cleared_at=None).only(*_FOLLOWED))
    known = {(row.version_id, row.scope_name): row for row in open_ones}
    firing = {
        (version_id, name): one
        for version_id, one in changes.evaluated.items()
        for name in one.fires_on
    }
    counting = {(row.rule, row.scope): row for row in open_ones if row.mode != "shadow"}
    begun = [
        _episode(one, one.firing(name), fleet, counting)
        for (version_id, name), one in firing.items()
        if (version_id, name) not in known
    ]
    goes_on = {(row.rule, row.scope) for row in begun if row.mode != "shadow"}
    ended = [row for key, row in known.items() if key not in firing]
    for row in ended:
        row.cleared_at = now
        # Another version goes on with it: nobody is to hear that it is over.
        row.told_cleared = row.mode == "shadow" or (row.rule, row.scope) in goes_on
        row.told_fired = row.told_fired or row.told_cleared
    RuleEpisode.objects.bulk_update(
        ended, ["cleared_at", "told_cleared", "told_fired"], batch_size=_BATCH
    )
    RuleEpisode.objects.bulk_create(begun, batch_size=_BATCH)
    return bool(begun or ended)


def _episode(
    one: Evaluated,
    firing: Firing,
    fleet: FleetArrays,
    counting: Mapping[tuple[str, Any], RuleEpisode],
) -> RuleEpisode:
    rule = one.live.rule
    counts = one.live.counts
    earlier = counting.get((rule.name, firing.scope)) if counts else None
    return RuleEpisode(
        version_id=one.live.version_id,
        rule=rule.name,
        mode=one.live.mode.value,
        scope_kind=firing.scope.kind.value,
        scope_name=firing.scope.name,
        severity=firing.severity.value,
        since=firing.since,
        fired_at=firing.at,
        summary=firing.summary,
        values=plain(firing.values),
        labels=firing.labels,
        restricts=effects.restricts(one, firing, fleet),
        has_incident=any(isinstance(e, OpenIncident) for e in rule.effects),
        playbook=firing.playbook,
        channels=[name for e in rule.effects if isinstance(e, Notify) for name in e.channels],
        told_fired=not counts or (earlier is not None and earlier.told_fired),
        told_cleared=not counts,
    )


def firing_of(row: RuleEpisode, number: int) -> Firing:
    """Return the firing of an episode."""
    values = {key: number_of(value) for key, value in row.values.items() if value is not None}
    return Firing(
        rule=row.rule,
        version=number,
        scope=row.scope,
        severity=Severity(row.severity),
        since=row.since,
        at=row.fired_at,
        summary=row.summary,
        values=values,
        labels=row.labels,
        playbook=row.playbook,
    )


# --- Faults --------------------------------------------------------------------------------------


def save_faults(changes: Changes, rules: Sequence[LiveRule], now: datetime) -> None:
    """Save the faults of this evaluation, and delete those that are gone."""
    seen = {(fault.version_id, fault.status.name.lower()) for fault in changes.faults}
    rows = [
        RuleFault(
            version_id=fault.version_id,
            status=fault.status.name.lower(),
            message=fault.status.phrase,
            count=fault.count,
            names=list(fault.names),
            first_at=now,
            last_at=now,
        )
        for fault in changes.faults
    ]
    RuleFault.objects.bulk_create(
        rows,
        update_conflicts=True,
        unique_fields=["version", "status"],
        update_fields=["message", "count", "names", "last_at"],
    )
    gone = [
        row.pk
        for row in RuleFault.objects.filter(version__in=[live.version_id for live in rules])
        if (row.version_id, row.status) not in seen
    ]
    if gone:
        RuleFault.objects.filter(pk__in=gone).delete()


@transaction.atomic
def prune(now: datetime) -> int:
    """Drop episodes and replays that ended long ago; return how many rows that was."""
    old = now - EPISODES_KEPT
    episodes, _ = RuleEpisode.objects.filter(cleared_at__lt=old).delete()
    replays, _ = RuleReplay.objects.filter(finished_at__lt=old).delete()
    return episodes + replays


def moment(now: float) -> datetime:
    """Return a Unix time as a datetime, UTC."""
    return datetime.fromtimestamp(now, UTC)
