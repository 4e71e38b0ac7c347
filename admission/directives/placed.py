"""Which of all that runs a decision is about, found over arrays: of 15,000 jobs few are.

Rows of the database are read for those alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from django.db import connection

from admission import holdings
from admission.core.holding import Holdings
from admission.directives.running import Active, active, open_attempts
from admission.jobs import catalog
from admission.jobs.classes import SchedulingClass
from admission.jobs.terms import terms_of
from fleet.snapshot import FleetArrays
from headroom.jobs.spec import Gang, PhaseSpec, Response, Throttling
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["Placed", "forget", "placed_on"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_THROTTLING = """
SELECT attempt.id, job.job_class, job.spec -> 'phases' -> phase.index -> 'throttling'
FROM admission_jobs_attempt AS attempt
JOIN admission_jobs_phase AS phase ON phase.id = attempt.phase_id
JOIN admission_jobs_job AS job ON job.id = phase.job_id
WHERE attempt.id = ANY(%s)
"""


class Placed:
    """All open attempts on the fleet. What is asked of each is an array in their order."""

    def __init__(self, held: Holdings) -> None:
        self.held, self.fleet = held, held.fleet
        self.ids: Ints = np.array([each.id for each in held.attempts], dtype=np.int64)
        counts = [len(each.placement.nodes) for each in held.attempts]
        #: those whose nodes are all gone from the inventory stand nowhere
        self._stands: Bools = np.array(counts, dtype=np.int64) > 0
        self._firsts: Ints = np.array(held.firsts, dtype=np.int64)[self._stands]
        nodes = [row for each in held.attempts for row in each.placement.nodes]
        self._nodes: Ints = np.array(nodes, dtype=np.int64)
        self._racks: Ints = self.fleet.nodes.rack[self._nodes]
        self._below: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def least(self, by_rack: Floats) -> Floats:
        """Return the least of the racks of each; inf where it stands nowhere."""
        found = np.full(len(self), np.inf)
        if len(self._firsts):
            found[self._stands] = np.minimum.reduceat(by_rack[self._racks], self._firsts)
        return found

    def on_nodes(self, rows: Ints) -> Bools:
        """Say of each whether it stands on one of these nodes."""
        found = np.zeros(len(self), dtype=bool)
        if len(self._firsts):
            here = np.isin(self._nodes, rows)
            found[self._stands] = np.logical_or.reduceat(here, self._firsts)
        return found

    def in_scope(self, scope: Scope, in_force: InForce) -> Ints:
        """Return the ids of those of which some part is in ``scope``."""
        kind, name, attempts = scope.kind, scope.name, self.held.attempts
        if kind is ScopeKind.JOB:
            here = [name in (each.request.job, each.request.key) for each in attempts]
        elif kind is ScopeKind.CLASS:
            here = [each.request.job_class == name for each in attempts]
        elif kind in (ScopeKind.STORAGE, ScopeKind.LINK):
            here = [each.placement.storage == name for each in attempts]
        else:
            here = self.on_nodes(in_force.node_rows(self.fleet, scope)).tolist()
        found: Ints = self.ids[np.array(here, dtype=bool)]
        return found

    def below(self) -> Floats:
        """Return the margin from which on each does something; -inf for one that never does."""
        if self._below is None:
            self._below = _margins.of(self.ids.tolist())
        return self._below

    def load(self, ids: Iterable[int]) -> list[Active]:
        """Read the rows of attempts, as they are now. One query."""
        wanted = sorted(set(ids))
        return active(self.fleet, open_attempts(wanted)) if wanted else []


class _Margins:
    """From which margin on attempts do something: what does not change while they run."""

    def __init__(self) -> None:
        self._known: dict[int, float] = {}
        #: by the identity of a class, which is kept along, and what a phase says itself
        self._by_terms: dict[tuple[int, str], tuple[SchedulingClass, float]] = {}

    def of(self, ids: Sequence[int]) -> Floats:
        """Return it for each attempt. Two queries where some are new."""
        new = [pk for pk in ids if pk not in self._known]
        found = {pk: self._known[pk] for pk in ids if pk in self._known}
        if new:
            found |= self._read(new)
        self._known = found
        return np.array([found.get(pk, -np.inf) for pk in ids], dtype=np.float64)

    def _read(self, ids: Sequence[int]) -> dict[int, float]:
        classes = catalog.current()
        with connection.cursor() as cursor:
            cursor.execute(_THROTTLING, [list(ids)])
            rows = cursor.fetchall()
        return {pk: self._below(classes, name, said) for pk, name, said in rows}

    def _below(self, classes: Mapping[str, SchedulingClass], name: str, said: Any) -> float:
        job_class = classes.get(name) or SchedulingClass(name=name)
        text = said if isinstance(said, str) else json.dumps(said)
        key = (id(job_class), text)
        if key not in self._by_terms:
            self._by_terms[key] = job_class, _most(job_class, json.loads(text) or {})
        return self._by_terms[key][1]

    def forget(self) -> None:
        self._known, self._by_terms = {}, {}


def _most(job_class: SchedulingClass, said: Any) -> float:
    asked = msgspec.convert(said, Throttling)
    spec = PhaseSpec(name="any", gang=Gang(gpus=1), walltime_s=1.0, throttling=asked)
    terms = terms_of(spec, job_class).throttling
    does = set(terms.responses or [])
    margins = [-np.inf]
    if does & {Response.SHRINK_BATCH, Response.CONTINUE}:
        margins.append(terms.shrink_below or 0.0)
    if Response.PAUSE in does:
        margins.append(terms.pause_below or 0.0)
    return float(max(margins))


_margins = _Margins()
_last: list[Placed] = []


def placed_on(fleet: FleetArrays) -> Placed:
    """Return what runs, at most two seconds old; the same object while nothing changes."""
    held = holdings.current(fleet)
    if not _last or _last[0].held is not held:
        _last[:] = [Placed(held)]
    return _last[0]


def forget() -> None:
    """Forget all, as a process that has just begun."""
    _last.clear()
    _margins.forget()
