"""Restrictions that bind running jobs: batch scales by directive, and caps of placements.

A restriction on batches becomes directives to the jobs in its scope. One that drains a place moves
those away that can be. The other way round, a job that was admitted under a power cap, or was told
one, has its GPUs restricted to it: agents set limits for no other reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from admission.core.directives.book import DirectiveBook, Kind, Wanted
from admission.core.directives.placed import Active, Placed
from fleet.tables import FleetArrays
from policies.leases.book import SYSTEM, Term, is_due
from policies.restrictions.book import RestrictionBook
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.kinds import Wanted as WantedRestriction
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["CAP_LEASE", "CAP_OWNER", "OWNER", "drain", "hold_caps", "shrink"]

#: Of directives that restrictions ask for; the cause says which.
OWNER = "restriction"
#: Of restrictions that caps of jobs ask for; the cause is the attempt's key.
CAP_OWNER = "admission:power-cap"
#: A cap is renewed while its job has it; without a worker it ends by itself after this.
CAP_LEASE = timedelta(minutes=10)


def shrink(
    placed: Placed, directives: DirectiveBook[Any], in_force: InForce, *, now: datetime
) -> None:
    """Give jobs the batch scales of restrictions in force, and withdraw them with those."""
    found = in_force.of(RestrictionKind.MAX_BATCH_SCALE)
    ids = {each.id: placed.in_scope(each.scope, in_force).tolist() for each in found}
    loaded = placed.load(pk for mine in ids.values() for pk in mine)
    running = {each.id for each in loaded if not each.is_ending}
    wanted = [
        Wanted(
            attempt_id=pk,
            kind=Kind.SET_BATCH_SCALE,
            value=restriction.number,
            owner=OWNER,
            cause=f"{OWNER}:{restriction.id}",
            reason=f"{restriction.reason} ({restriction.kind} on {restriction.scope})",
            expires_at=restriction.expires_at,
            evidence={"restriction": restriction.id},
        )
        for restriction in found
        for pk in ids[restriction.id]
        if pk in running
    ]
    directives.keep(OWNER, wanted, now=now, by=OWNER, why="the restriction has ended")


def drain(placed: Placed, in_force: InForce, *, now: datetime) -> None:
    """Have jobs that can be moved leave the places that are being drained."""
    for restriction in in_force.of(RestrictionKind.DRAIN):
        there = placed.load(placed.in_scope(restriction.scope, in_force).tolist())
        leaving = [each for each in there if each.request.preemptible and not each.is_ending]
        if leaving:
            placed.stop(
                leaving, owner=OWNER, cause=f"{OWNER}:{restriction.id}", now=now,
                why=f"{restriction.scope} is being drained: {restriction.reason}",
                evidence={"restriction": restriction.id},
            )  # fmt: skip


# --- Power caps of jobs ---------------------------------------------------------------------------


def hold_caps(
    placed: Placed,
    directives: DirectiveBook[Any],
    restrictions: RestrictionBook[Any],
    *,
    now: datetime,
) -> int:
    """Restrict the GPUs of capped jobs to their caps; return how many jobs these are.

    Restrictions are leases: if nobody renews them, agents lift the caps by themselves.
    """
    capped = _capped(placed, directives)
    held: dict[str, list[Term]] = {}
    for key, term in restrictions.store.terms(CAP_OWNER).items():
        held.setdefault(key[1], []).append(term)
    due = {
        pk: cap_w
        for pk, (key, cap_w) in capped.items()
        if any(is_due(term, (cap_w, now + CAP_LEASE), now) for term in held.get(key, [None]))
    }
    wanted = [
        restriction
        for each in placed.load(due)
        for restriction in _restrictions(each, due[each.id], placed.fleet, now)
    ]
    restrictions.apply(wanted, now=now)
    why = "the job has ended, or has no cap now"
    for cause in sorted(held.keys() - {key for key, _ in capped.values()}):
        restrictions.release(CAP_OWNER, cause=cause, now=now, by=SYSTEM, why=why)
    return len(capped)


def _capped(placed: Placed, directives: DirectiveBook[Any]) -> dict[int, tuple[str, float]]:
    """Return key and cap of capped attempts: the lower of placement and directive."""
    found = {
        each.id: (each.key, each.placement.power_cap_w)
        for each in placed.held.attempts
        if each.placement.power_cap_w is not None
    }
    keys = {each.id: each.key for each in placed.held.attempts}
    for pk, cap_w in directives.store.caps_w():
        if pk in keys:
            found[pk] = (keys[pk], min(cap_w, found.get(pk, (keys[pk], cap_w))[1]))
    return found


def _restrictions(
    each: Active, cap_w: float, fleet: FleetArrays, now: datetime
) -> Iterator[WantedRestriction]:
    for scope in _scopes(each, fleet):
        yield WantedRestriction(
            kind=RestrictionKind.POWER_CAP_W,
            scope=scope,
            value=cap_w,
            reason=f"the job here runs under a cap of {cap_w:g} W per GPU",
            owner=CAP_OWNER,
            cause=each.key,
            expires_at=now + CAP_LEASE,
            evidence={"attempt": each.key},
            # The job has agreed to its own cap: it restricts nobody else.
            most_of_site=1.0,
        )


def _scopes(each: Active, fleet: FleetArrays) -> Iterator[Scope]:
    """Yield whole nodes where the gang has all of their GPUs, else single GPUs."""
    nodes = fleet.gpus.node[each.gpus]
    for node in each.nodes.tolist():
        mine = each.gpus[nodes == node]
        name = str(fleet.nodes.names[node])
        if len(mine) == fleet.gpu_bounds[node + 1] - fleet.gpu_bounds[node]:
            yield Scope(ScopeKind.NODE, name)
        else:
            for gpu in mine.tolist():
                yield Scope(ScopeKind.GPU, f"{name}/{fleet.gpus.index[gpu]}")
