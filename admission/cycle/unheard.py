"""Attempts of which something is not known: a machine that runs them is not heard.

It is said long before the machine may be given up. Until then nothing of theirs is free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from django.db import transaction

from admission.executors import runners
from admission.executors.runners import Unheard
from admission.jobs import history
from admission.jobs.models import Attempt, JobEvent
from telemetry.models import Agent

__all__ = ["note", "said"]

#: Kinds of events.
UNHEARD, HEARD = "unheard", "heard"
#: So many machines are named.
_NAMED = 3


def note(at: datetime) -> int:
    """Write down whose machines are not heard at ``at``; return how many attempts changed.

    Three queries where nothing has changed, two where all are heard.
    """
    machines = runners.unheard(at)
    names = {each.agent for each in machines}
    readings = dict(Agent.objects.filter(name__in=names).values_list("name", "last_seen_at"))
    texts = {
        key: said(list(found), readings, at)
        for key, found in groupby(machines, key=lambda each: each.key)
    }
    known = Attempt.objects.exclude(unheard="") | Attempt.objects.open().filter(key__in=texts)
    changed = [
        row
        for row in known.select_related("phase").defer("phase__request")
        if row.unheard != _text_of(row, texts)
    ]
    if not changed:
        return 0
    events = [event for row in changed if (event := _event(row, _text_of(row, texts), at))]
    for row in changed:
        row.unheard = _text_of(row, texts)
    with transaction.atomic():
        Attempt.objects.bulk_update(changed, ["unheard"])
        JobEvent.objects.bulk_create(events)
    return len(changed)


def _text_of(row: Attempt, texts: Mapping[str, str]) -> str:
    return texts.get(row.key, "") if row.state in Attempt.OPEN else ""


def _event(row: Attempt, text: str, at: datetime) -> JobEvent | None:
    """Return the event of a change; None where it only goes on, or ended."""
    if bool(row.unheard) == bool(text) or row.state not in Attempt.OPEN:
        return None
    kind, what = (UNHEARD, text) if text else (HEARD, "all of its machines are heard again")
    phase = row.phase
    return history.event(phase.job_id, kind, what, at, phase=phase.name, attempt=row.key)


def said(machines: Sequence[Unheard], readings: Mapping[str, datetime | None], at: datetime) -> str:
    """Return what is not known of an attempt, in a sentence. Pure.

    ``readings``: when each agent's last batch of readings came, by name.
    """
    first = min(machines, key=lambda each: each.since)
    names = [each.node for each in machines]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    which = ", ".join(names[:_NAMED]) + more
    lately = at - timedelta(seconds=runners.UNKNOWN_AFTER_S)
    read_at = max((found for each in machines if (found := readings.get(each.agent))), default=None)
    still = "" if read_at is None or read_at < lately else ", though readings still come from there"
    stands = first.since + timedelta(seconds=runners.fence_s(first.lease_s))
    given_up = first.since + timedelta(seconds=first.lease_s)
    return (
        f"unknown: nothing heard of {which} since {_clock(first.since)}{still}; what runs there "
        f"stands still from {_clock(stands)} on, and is given up after {_clock(given_up)}"
    )


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S} UTC"
