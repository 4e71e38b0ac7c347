"""The consequences of an outage, on what runs now: the shell around ``admission.core.outage``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from admission.allocation import open_attempts
from admission.core.allocation.watts import Watts
from admission.core.directives.responding import candidates_of
from admission.core.outage import Consequences, Knowledge, consequences
from admission.core.reliance import Relies, relying_on
from admission.core.response.checkpoints import Known
from admission.core.response.shedding import Candidate
from admission.cycle import live
from admission.directives.fallback import JobRows
from admission.directives.running import active, attempts_of
from admission.jobs import checkpoints
from fleet import snapshot
from fleet.slicing import holdable
from policies.headroom.evaluate import Headroom
from policies.headroom.outage import without
from policies.scopes import Scope

__all__ = ["foresee", "relying"]


def foresee(scope: Scope, now: float) -> Consequences:
    """Return what would follow if ``scope`` failed at ``now`` (Unix s). Nothing is done. Queries.

    Raises :class:`~policies.scopes.UnknownScope`, and ValueError for kinds that cannot fail.
    """
    try:
        return _foreseen(scope, now)
    except live.InventoryChanged:  # the second look sees one inventory
        return _foreseen(scope, now)


def _foreseen(scope: Scope, now: float) -> Consequences:
    load = live.running_load(snapshot.current(), now)
    found = without(load.whole, scope)
    outage = replace(found, after=load.in_parts(found.after))
    at = datetime.fromtimestamp(now, UTC)
    known = Knowledge(
        in_force=load.in_force,
        policy=load.policy.fallback,
        candidates=partial(_candidates, at),
        falling=JobRows(at).concerned,
        checkpoints=partial(_checkpoints, at),
    )
    return consequences(
        outage,
        load.measured,
        load.held,
        load.looked_at(load.measured),
        load.looked_at(outage.after),
        known,
    )


def _candidates(now: datetime, headroom: Headroom, ids: Sequence[int]) -> list[Candidate]:
    """Return the attempts of ``ids`` with what ending them frees and loses. One query."""
    if not ids:
        return []
    running = active(headroom.fleet, attempts_of(sorted(ids)))
    return candidates_of(running, Watts(headroom), now)


def _checkpoints(now: datetime, jobs: Collection[str]) -> Mapping[str, Known]:
    """Return what is known of the checkpoints of jobs, by name. One query."""
    facts = checkpoints.of_jobs(set(jobs), now)
    return {name: checkpoints.known_of(each) for name, each in facts.items()}


def relying(scope: Scope, now: float) -> tuple[Relies, ...]:
    """Return who relies on a link or an endpoint at ``now`` (Unix s). Two queries, and what is new.

    Raises :class:`~policies.scopes.UnknownScope`.
    """
    held = open_attempts.fresh(holdable(snapshot.current()))
    return relying_on(scope, held, partial(_checkpoints, datetime.fromtimestamp(now, UTC)))
