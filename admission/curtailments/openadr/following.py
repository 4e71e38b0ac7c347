"""Follows the events of a VTN: what it asks is held, what it takes back ends, results go back."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.core.cache import cache
from django.db import transaction

from admission.curtailments import actions
from admission.curtailments.models import Curtailment
from admission.curtailments.openadr.client import Access, Vtn, VtnError
from admission.curtailments.openadr.events import Asked, NotAsked, Program, asked_by
from fleet import locks
from policies.restrictions import store
from policies.restrictions.kinds import LONGEST

__all__ = ["follow", "invalidate", "report_of"]

log = structlog.get_logger(__name__)

_LOCK = 0x4F414452
_POLLED = "openadr.polled"
#: What has no end ends so long before the longest lease.
_SPARE = timedelta(hours=1)
_vtns = threading.local()


def invalidate() -> None:
    """Have the next call begin anew, as in a process that has just begun."""
    _vtns.found = None
    cache.delete(_POLLED)


def follow(now: datetime) -> bool:
    """Ask the VTN and do what it says, where one is set and it is time; False: in vain of late.

    Raises :class:`VtnError`. What is in force stays as it is while the VTN is away.
    """
    if not settings.OPENADR_VTN_URL:
        return True
    if not cache.add(_POLLED, True, settings.OPENADR_POLL_S):
        return bool(cache.get(_POLLED, True))
    with locks.only_one(_LOCK) as held:
        if held:
            try:
                _follow(_vtn(), now)
            except VtnError:
                cache.set(_POLLED, False, settings.OPENADR_POLL_S)
                raise
    return held


def _vtn() -> Vtn:
    known: Vtn | None = getattr(_vtns, "found", None)
    if known is None:
        known = _vtns.found = Vtn(
            Access(
                url=settings.OPENADR_VTN_URL,
                token_url=settings.OPENADR_TOKEN_URL or f"{settings.OPENADR_VTN_URL}/auth/token",
                client_id=settings.OPENADR_CLIENT_ID,
                secret=settings.OPENADR_CLIENT_SECRET,
                scopes=" ".join(settings.OPENADR_SCOPES),
                timeout_s=settings.OPENADR_TIMEOUT_S,
            )
        )
    return known


def _follow(vtn: Vtn, now: datetime) -> None:
    program = _program(vtn.programs())
    latest = now + LONGEST - _SPARE
    asked = []
    for event in vtn.events(program.id):
        for each in asked_by(event, simple_shares=settings.OPENADR_SIMPLE_SHARES, latest=latest):
            if isinstance(each, NotAsked):
                log.warning(
                    "openadr_interval_not_held", event_id=each.event_id, interval=each.interval_id,
                    why=each.why,
                )  # fmt: skip
            elif each.ends_at > now:
                asked.append(each)
    hold(program.id, asked, now)
    _report(vtn, now)


def _program(found: Iterable[Program]) -> Program:
    wanted = settings.OPENADR_PROGRAM
    program = next((each for each in found if wanted in (each.program_name, each.id)), None)
    if program is None:
        raise VtnError(f"there is no program {wanted!r}")
    return program


# --- What is asked -------------------------------------------------------------------------------


def hold(program_id: str, asked: Iterable[Asked], now: datetime) -> None:
    """Have exactly what is asked now be held for a program: the rest of it ends."""
    wanted = {source_of(each): each for each in asked}
    known = {row.source: row for row in Curtailment.objects.open(now).filter(program_id=program_id)}
    for source, row in known.items():
        each = wanted.get(source)
        if each is None:
            _take_back(row, "the grid has taken it back", now)
        elif not _is_same(row, each):
            _take_back(row, "the grid has changed it", now)
        else:
            del wanted[source]
    for source, each in wanted.items():
        _begin(program_id, source, each, now)


def source_of(asked: Asked) -> str:
    """Return what a curtailment of an interval is known by."""
    return f"openadr:{asked.event_id}/{asked.interval_id}"


def _is_same(row: Curtailment, asked: Asked) -> bool:
    says = {
        name: value
        for name in ("by_w", "to_w", "by_share")
        if (value := getattr(asked.ask, name)) is not None
    }
    # It may have begun before it was heard of; and what has no end is drawn out as time goes on.
    begun = row.starts_at == max(asked.starts_at, row.announced_at)
    ends = (
        abs(row.ends_at - asked.ends_at) < _SPARE
        if _is_endless(row)
        else (row.ends_at == asked.ends_at)
    )
    return row.asked == says and begun and ends


def _is_endless(row: Curtailment) -> bool:
    return row.ends_at - row.announced_at >= LONGEST - 2 * _SPARE


def _begin(program_id: str, source: str, asked: Asked, now: datetime) -> None:
    request = actions.Request(
        site=settings.OPENADR_SITE,
        ask=asked.ask,
        starts_at=max(asked.starts_at, now),
        ends_at=asked.ends_at,
        reason=f"the grid asks for it: {asked.name}"[:400],
    )
    try:
        found = actions.plan(request, now=now)
    except actions.Refused as error:
        log.warning("openadr_interval_not_held", source=source, why=str(error))
        return
    if not found.estimate.is_in_reach:
        # A limit of the grid holds whether or not jobs can give enough.
        log.warning("openadr_out_of_reach", source=source, why=str(actions.out_of_reach(found)))
    share = settings.OPENADR_MAX_SITE_SHARE
    wanted = actions.wanted_of(found, owner=source, most_of_site=share)
    with transaction.atomic():
        rows = store.apply([wanted], now=now)
        if not rows:
            log.warning("openadr_interval_not_held", source=source, why="it is no valid budget")
            return
        actions.keep(
            found, source=source, restriction_id=rows[0].pk, now=now, program_id=program_id,
            event_id=asked.event_id, interval_id=asked.interval_id,
        )  # fmt: skip
    log.info("openadr_interval_held", source=source, target_w=found.target_w)


def _take_back(row: Curtailment, why: str, now: datetime) -> None:
    with transaction.atomic():
        store.release(row.source, now=now, by=row.source, why=why)
        actions.note_canceled(row, by=row.source, now=now)


# --- What comes of it ----------------------------------------------------------------------------


def _report(vtn: Vtn, now: datetime) -> None:
    due = Curtailment.objects.exclude(event_id="").filter(reported_at=None)
    for row in due.exclude(judged_at=None).order_by("ends_at")[:20]:
        vtn.report(report_of(row))
        Curtailment.objects.filter(pk=row.pk).update(reported_at=now)


def report_of(row: Curtailment) -> dict[str, Any]:
    """Return what was kept of a curtailment as a report of OpenADR: mean load and baseline in kW.

    What no meter has read is left out.
    """
    result = row.result
    payloads = []
    if result["mean_w"] is not None:
        payloads.append({"type": "DEMAND", "values": [round(result["mean_w"] / 1e3, 3)]})
    if row.baseline_w is not None:
        payloads.append({"type": "BASELINE", "values": [round(row.baseline_w / 1e3, 3)]})
    lasts_s = (row.ends_at - row.starts_at).total_seconds()
    return {
        "programID": row.program_id,
        "eventID": row.event_id,
        "clientName": settings.OPENADR_VEN_NAME,
        "reportName": f"headroom-{row.pk}",
        "payloadDescriptors": [
            {
                "objectType": "REPORT_PAYLOAD_DESCRIPTOR", "payloadType": kind, "units": "KW",
                "readingType": reading,
                "confidence": round(100 * result["coverage"]),
            }
            for kind, reading in (("DEMAND", "MEAN"), ("BASELINE", "MEAN"))
        ],
        "resources": [
            {
                "resourceName": row.site,
                "intervals": [
                    {
                        "id": row.interval_id,
                        "intervalPeriod": {
                            "start": row.starts_at.isoformat(),
                            "duration": f"PT{lasts_s:.0f}S",
                        },
                        "payloads": payloads,
                    }
                ],
            }
        ],
    }  # fmt: skip
