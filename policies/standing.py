"""What is so of an incident now, in words: the same for pages, for the API and for whoever asks.

:func:`told` and :func:`line` are pure: from a firing, what is decided about it, and its run, to
words. :func:`of` reads what they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from policies import current
from policies.headroom.columns import FIELDS
from policies.headroom.evaluate import Headroom
from policies.incidents.models import Incident, IncidentMember
from policies.playbooks import starting
from policies.playbooks.keeping import restrictions_of
from policies.playbooks.machine import RunState, StepState
from policies.playbooks.models import PlaybookRun, StepRun
from policies.playbooks.pursuit import Decision, Way
from policies.rules import document, words
from policies.rules.models import RuleVersion
from policies.scopes import ScopeKind

__all__ = ["Answer", "IncidentNow", "line", "of", "told"]


@dataclass(frozen=True)
class Answer:
    """What is done about one firing. ``token`` is stable."""

    token: str
    text: str
    run: int | None = None


@dataclass(frozen=True)
class IncidentNow:
    """An incident as it is now."""

    #: one line: what it is now, beside the title, which says what it was
    text: str
    #: by member: what is done about it
    answers: Mapping[int, Answer] = field(default_factory=dict)
    #: by member: the summary of its rule with today's values
    summaries: Mapping[int, str] = field(default_factory=dict)


def told(member: IncidentMember, decided: Decision, run: PlaybookRun | None) -> Answer:
    """Say what is done about a firing. ``run``: its newest; its steps are looked at."""
    if member.cleared_at is not None:
        return Answer("cleared", f"clear since {member.cleared_at:%H:%M} UTC")
    if member.dismissed:
        return Answer("dismissed", "a person has closed its incident")
    if member.inhibited_by:
        return Answer("explained", f"explained by {member.inhibited_by}")
    if not member.playbook:
        return Answer("no_playbook", "its rule has no playbook: it is for a person")
    if run is None or decided.way is Way.START:
        return Answer("starting", f"playbook {member.playbook} is to start")
    if decided.way is Way.ACTIVE:
        return _active(run)
    if decided.way is Way.GIVEN_UP:
        text = f"given up: {run.ended_by} ended run {run.pk}; none starts until it fires anew"
        return Answer("given_up", text, run.pk)
    at = "" if decided.at is None else f" at {decided.at:%H:%M:%S} UTC"
    text = f"run {run.pk} gave up ({run.why}); attempt {decided.attempt} starts{at}"
    return Answer("back_off", text, run.pk)


def _active(run: PlaybookRun) -> Answer:
    asking = next((step for step in run.steps.all() if _asks(step)), None)
    named = f"run {run.pk} of {run.playbook}"
    if run.state == RunState.PAUSED:
        return Answer("waits_for_a_person", f"{named} is paused: {run.why}", run.pk)
    if asking is not None:
        text = f"{named} waits for a person: step {asking.step}"
        return Answer("waits_for_a_person", text, run.pk)
    why = f": {run.why}" if run.why else ""
    return Answer("active", f"{named} is {run.state}{why}", run.pk)


def _asks(step: StepRun) -> bool:
    if step.state == StepState.HELD:
        return step.lease_until is not None
    return step.state == StepState.WAITING and step.kind in ("approve", "manual")


def line(
    incident: Incident,
    members: Sequence[IncidentMember],
    summaries: Mapping[int, str],
    runs: Sequence[PlaybookRun],
    restrictions: int,
) -> str:
    """Say in one line what an incident is now. ``restrictions``: how many it has in force."""
    firing = [each for each in members if each.cleared_at is None and not each.dismissed]
    live = [each for each in runs if not RunState(each.state).is_over]
    held = f"{restrictions} restriction{'s' * (restrictions != 1)} in force" if restrictions else ""
    under_way = ", ".join(f"run {each.pk} {each.state}" for each in live[:3])
    left = ", ".join(part for part in (under_way, held) if part)
    if incident.state == Incident.State.RESOLVED:
        return f"resolved {incident.resolved_at:%H:%M} UTC" + (f"; {left}" if left else "")
    if incident.state == Incident.State.CLOSED:
        fires = sum(each.cleared_at is None for each in members)
        said = f"closed by {incident.resolved_by}, not resolved: {fires} fire"
        return f"{said}, {left}" if left else said
    if not firing:
        since = "" if incident.quiet_since is None else f" since {incident.quiet_since:%H:%M} UTC"
        return f"clear{since}" + (f"; {left}" if left else "")
    now = next((summaries[each.pk] for each in firing if summaries.get(each.pk)), "no reading")
    return f"{now}" + (f" ({left})" if left else "")


def of(incident: Incident, members: Iterable[IncidentMember], now: datetime) -> IncidentNow:
    """Return what ``incident`` is at ``now``, and each of those of its ``members``."""
    rows = list(members)
    runs = list(
        PlaybookRun.objects.filter(incident_id=incident.pk)
        .select_related("version").prefetch_related("steps").order_by("-started_at", "-id")
    )  # fmt: skip
    summaries = _summaries(rows, now)
    answers = {
        each.pk: told(each, decided, starting.newest(each, runs))
        for each, decided in starting.decisions(rows, now)
    }
    in_force = restrictions_of(incident.pk).in_force(now).count()
    return IncidentNow(line(incident, rows, summaries, runs, in_force), answers, summaries)


def _summaries(members: Iterable[IncidentMember], now: datetime) -> dict[int, str]:
    """Return by member the summary of its rule with today's values, where both are known."""
    firing = [each for each in members if each.cleared_at is None]
    texts = _texts({(each.rule, each.version) for each in firing})
    if not texts:
        return {}
    headroom = current.headroom(now.timestamp())
    found = {each.pk: _summary(each, texts, headroom) for each in firing}
    return {pk: said for pk, said in found.items() if said}


def _texts(versions: set[tuple[str, int]]) -> dict[tuple[str, int], str]:
    rows = RuleVersion.objects.filter(name__in={name for name, _ in versions})
    return {(row.name, row.number): row.text for row in rows if (row.name, row.number) in versions}


def _summary(
    member: IncidentMember, texts: Mapping[tuple[str, int], str], headroom: Headroom
) -> str:
    kind, text = ScopeKind(member.scope_kind), texts.get((member.rule, member.version))
    if text is None or kind not in FIELDS:
        return ""
    table = headroom.table(kind)
    if member.scope_name not in table.index_by_name:
        return ""
    return words.filled(_template(text), table.row(member.scope_name), FIELDS[kind])


@lru_cache(maxsize=512)
def _template(text: str) -> str:
    return document.read(text).summary
