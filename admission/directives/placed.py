"""The open attempts on the fleet, with the rows that the database keeps of them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from django.db import connection

from admission.allocation import open_attempts
from admission.core.directives.placed import Placed
from admission.core.response.respond import ResponseStatus, Throttling
from admission.directives import actions
from admission.directives.models import Control, Overload
from admission.directives.running import Active, active, attempts_of
from admission.jobs import catalog
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Attempt, Job
from admission.jobs.resolution import terms_of, terms_of_phase
from fleet.snapshot import FleetArrays
from headroom.jobs.spec import Gang, PhaseSpec, Response
from headroom.jobs.spec import Throttling as Terms
from policies.scopes import Scope

__all__ = ["PlacedRows", "invalidate", "placed_on"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_THROTTLING = """
SELECT attempt.id, job.job_class, job.spec -> 'phases' -> phase.index -> 'throttling',
    job.spec -> 'phases' -> phase.index -> 'gang' ->> 'slice'
FROM admission_jobs_attempt AS attempt
JOIN admission_jobs_phase AS phase ON phase.id = attempt.phase_id
JOIN admission_jobs_job AS job ON job.id = phase.job_id
WHERE attempt.id = ANY(%s)
"""


class PlacedRows(Placed):
    """All open attempts, with the rows that the database keeps of them."""

    def below(self) -> Floats:
        """See above. No query but for attempts that are new."""
        return np.array([each.below for each in self._agreed], dtype=np.float64)

    def pauses(self) -> Bools:
        """Say of each attempt whether it agreed to pauses. Queries as of :meth:`below`."""
        return np.array([each.pauses for each in self._agreed], dtype=bool)

    @cached_property
    def _agreed(self) -> list[_Agreed]:
        return _terms.of(self.ids.tolist())

    def load(self, ids: Iterable[int]) -> list[Active]:
        """See above. One query."""
        wanted = sorted(set(ids))
        return active(self.fleet, attempts_of(wanted)) if wanted else []

    def remembered(self) -> Iterable[int]:
        """See above. One query."""
        rows = Control.objects.exclude(response={}).filter(attempt__state__in=Attempt.OPEN)
        return rows.values_list("attempt", flat=True)

    def remember(self, statuses: Mapping[int, ResponseStatus]) -> None:
        """See above. One query."""
        rows = [
            Control(attempt_id=pk, response={} if status == ResponseStatus() else _as_json(status))
            for pk, status in statuses.items()
        ]
        Control.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["attempt"], update_fields=["response"]
        )

    def agreed(self, concerned: Sequence[Any]) -> Mapping[int, Throttling]:
        """See above. Two queries."""
        if not concerned:
            return {}
        jobs = {each.job.pk for each in concerned}
        specs = dict(Job.objects.filter(pk__in=jobs).values_list("pk", "spec"))
        classes, found = catalog.current(), {}
        for each in concerned:
            each.job.spec = specs[each.job.pk]
            found[each.id] = _agreed(terms_of_phase(each.phase, classes))
        return found

    def overloads(self, over: Collection[Scope], now: datetime) -> Mapping[Scope, datetime]:
        """See above. Three queries."""
        known = {row.scope: row for row in Overload.objects.all()}
        gone = [row.pk for scope, row in known.items() if scope not in over]
        Overload.objects.filter(pk__in=gone).delete()
        Overload.objects.bulk_create(
            [
                Overload(scope_kind=scope.kind.value, scope_name=scope.name, since=now)
                for scope in set(over) - known.keys()
            ],
            ignore_conflicts=True,
        )
        return {scope: known[scope].since if scope in known else now for scope in over}

    def stop(self, leaving: Sequence[Any], **asked: Any) -> None:
        """See above, and :func:`actions.stop`."""
        actions.stop([each.attempt for each in leaving], **asked)


def _as_json(status: ResponseStatus) -> dict[str, Any]:
    return {**asdict(status), "level": int(status.level)}


def _agreed(terms: PhaseSpec) -> Throttling:
    """Return the throttling terms of a phase: a smaller batch, or else a cap, and a pause."""
    asked, responses = terms.throttling, terms.throttling.responses or []
    scale = (asked.min_batch_scale or 1.0) if Response.SHRINK_BATCH in responses else 1.0
    shrinks = scale < 1.0 or Response.CONTINUE in responses
    return Throttling(
        asked.shrink_below if shrinks else None,
        asked.pause_below if Response.PAUSE in responses else None,
        scale,
    )


@dataclass(frozen=True)
class _Agreed:
    """The margin below which an attempt responds, and whether it agreed to pauses."""

    below: float = -np.inf
    pauses: bool = False


class _Terms:
    """What each attempt agreed to, remembered: it stays as it is while they run."""

    def __init__(self) -> None:
        self._known: dict[int, _Agreed] = {}
        #: by the identity of a class, which is kept along, and what a phase says itself
        self._by_terms: dict[tuple[int, str, str | None], tuple[SchedulingClass, _Agreed]] = {}

    def of(self, ids: Sequence[int]) -> list[_Agreed]:
        """Return what each attempt agreed to. Two queries where some are new."""
        new = [pk for pk in ids if pk not in self._known]
        found = {pk: self._known[pk] for pk in ids if pk in self._known}
        if new:
            found |= self._read(new)
        self._known = found
        return [found.get(pk, _Agreed()) for pk in ids]

    def _read(self, ids: Sequence[int]) -> dict[int, _Agreed]:
        classes = catalog.current()
        with connection.cursor() as cursor:
            cursor.execute(_THROTTLING, [list(ids)])
            rows = cursor.fetchall()
        return {pk: self._one(classes, name, said, part) for pk, name, said, part in rows}

    def _one(
        self, classes: Mapping[str, SchedulingClass], name: str, said: Any, part: str | None
    ) -> _Agreed:
        job_class = classes.get(name) or SchedulingClass(name=name)
        text = said if isinstance(said, str) else json.dumps(said)
        key = (id(job_class), text, part)
        if key not in self._by_terms:
            agreed = _agreed_by(job_class, json.loads(text) or {}, part)
            self._by_terms[key] = job_class, agreed
        return self._by_terms[key][1]

    def invalidate(self) -> None:
        self._known, self._by_terms = {}, {}


def _agreed_by(job_class: SchedulingClass, said: Any, part: str | None) -> _Agreed:
    asked = msgspec.convert(said, Terms)
    spec = PhaseSpec(name="any", gang=Gang(gpus=1, slice=part), walltime_s=1.0, throttling=asked)
    terms = terms_of(spec, job_class).throttling
    does = set(terms.responses or [])
    margins = [-np.inf]
    if does & {Response.SHRINK_BATCH, Response.CONTINUE}:
        margins.append(terms.shrink_below or 0.0)
    if Response.PAUSE in does:
        margins.append(terms.pause_below or 0.0)
    return _Agreed(float(max(margins)), Response.PAUSE in does)


_terms = _Terms()
_last: list[PlacedRows] = []


def placed_on(fleet: FleetArrays) -> PlacedRows:
    """Return the open attempts, at most two seconds old; the same object while nothing changes."""
    held = open_attempts.current(fleet)
    if not _last or _last[0].held is not held:
        _last[:] = [PlacedRows(held)]
    return _last[0]


def invalidate() -> None:
    """Forget all, as a process that has just begun."""
    _last.clear()
    _terms.invalidate()
