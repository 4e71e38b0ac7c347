"""Runs for what fires: started, and started again, for as long as it does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

from headroom.numbers import plain
from policies.firings import MOST_RUNS, Firing
from policies.incidents import follow
from policies.incidents.models import Incident, IncidentMember
from policies.incidents.rows import firing_of
from policies.playbooks import pursuit, runs
from policies.playbooks.models import PlaybookRun
from policies.playbooks.pursuit import Decision, Way

__all__ = ["decisions", "newest", "pursue"]


def pursue(begun: Iterable[tuple[Firing, Incident]], now: datetime) -> None:
    """Start a run for each firing that has a playbook and for which none is under way.

    ``begun`` are the firings of which incidents have just heard: what cannot be started for them is
    noted in their incident, once.
    """
    new = {(incident.pk, firing.key) for firing, incident in begun if firing.playbook}
    members = _firing_members()
    free = _free([each.incident_id for each in members])
    left: Counter[int] = Counter()
    for member, decided in decisions(members, now):
        if decided.way is not Way.START:
            continue
        is_new = (member.incident_id, firing_of(member).key) in new
        if free[member.incident_id] > 0:
            free[member.incident_id] -= _start(member, decided.attempt, now, is_new=is_new)
        elif is_new:
            left[member.incident_id] += 1
    for incident_id, count in left.items():
        text = f"Playbooks were started on {MOST_RUNS} scopes and not on {count} more."
        follow.note(incident_id, "playbook", text, {"left": count}, "system", now)


def decisions(
    members: Sequence[IncidentMember], now: datetime
) -> list[tuple[IncidentMember, Decision]]:
    """Return what is to be done about each of ``members`` that fires. One query."""
    since = min([now - pursuit.FORGET_AFTER, *(each.fired_at for each in members)])
    rows = PlaybookRun.objects.filter(scope_name__in={each.scope_name for each in members})
    by_place: dict[tuple[str, str, str], list[PlaybookRun]] = {}
    for row in rows.exclude(ended_at__lt=since).order_by("-started_at", "-id"):
        by_place.setdefault((row.playbook, row.scope_kind, row.scope_name), []).append(row)
    found = []
    for each in members:
        here = by_place.get((each.playbook, each.scope_kind, each.scope_name), [])
        about = [row for row in here if _is_about(row, each)]
        found.append((each, pursuit.decide(each.fired_at, about, now)))
    return found


def newest(member: IncidentMember, runs: Iterable[PlaybookRun]) -> PlaybookRun | None:
    """Return the first of ``runs`` that is, or was, for ``member``."""
    place = member.playbook, member.scope_kind, member.scope_name
    here = (row for row in runs if (row.playbook, row.scope_kind, row.scope_name) == place)
    return next((row for row in here if _is_about(row, member)), None)


def _is_about(row: PlaybookRun, member: IncidentMember) -> bool:
    """Say whether a run is, or was, for a firing: by its rule, or by a person in its incident."""
    return row.rule == member.rule if row.rule else row.incident_id == member.incident_id


def _firing_members() -> list[IncidentMember]:
    members = IncidentMember.objects.filter(
        cleared_at=None, dismissed=False, inhibited_by="", handed_over=True
    )
    return list(members.exclude(playbook="").order_by("id"))


def _free(incidents: Iterable[int]) -> Counter[int]:
    """Return by incident how many runs it may still have at once. One query."""
    ids = set(incidents)
    live = PlaybookRun.objects.live().filter(incident_id__in=ids).order_by()
    count = Counter(live.values_list("incident_id", flat=True))
    return Counter({each: max(MOST_RUNS - count[each], 0) for each in ids})


def _start(member: IncidentMember, attempt: int, now: datetime, *, is_new: bool) -> int:
    """Start a run; return 1, or 0 where it cannot be started."""
    firing = firing_of(member)
    try:
        runs.start(
            firing.playbook,
            scope=firing.scope,
            values=plain(firing.values),
            incident_id=member.incident_id,
            by=f"rule:{firing.rule}",
            now=now,
            rule=firing.rule,
            attempt=attempt,
        )
    except runs.BadStart as error:
        if is_new:
            text = f"Playbook {firing.playbook} could not be started: {error}."
            follow.note(member.incident_id, "playbook", text, {"field": error.field}, "system", now)
        return 0
    return 1
