"""Restrictions in force, as running jobs have to do with them; and caps that placements promise.

A restriction on batches becomes directives to the jobs in its scope. One that drains a place moves
those away that can be. The other way round, a job that was let go under a power cap, or was told
one, has its GPUs restricted to it: agents set limits for no other reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from admission.directives import actions, store
from admission.directives.models import Directive
from admission.directives.placed import Placed
from admission.directives.running import Active
from admission.directives.store import Wanted
from fleet.snapshot import FleetArrays
from policies.restrictions import store as restrictions
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.kinds import Wanted as WantedRestriction
from policies.restrictions.models import Restriction
from policies.restrictions.strictest import InForce
from policies.scopes import Scope, ScopeKind

__all__ = ["OWNER", "drain", "hold_caps", "shrink"]

#: Of directives that restrictions ask for; the cause says which.
OWNER = "restriction"
#: Of restrictions that caps of jobs ask for; the cause is the attempt's key.
CAP_OWNER = "admission:power-cap"
_CAP_LEASE = timedelta(minutes=10)


def shrink(placed: Placed, in_force: InForce, *, now: datetime) -> list[Directive]:
    """Have jobs keep to the batches that restrictions leave them, and no longer than they do."""
    found = in_force.of(RestrictionKind.MAX_BATCH_SCALE)
    ids = {each.id: placed.in_scope(each.scope, in_force).tolist() for each in found}
    loaded = placed.load(pk for mine in ids.values() for pk in mine)
    running = {each.attempt.pk for each in loaded if not each.is_ending}
    wanted = [
        Wanted(
            attempt_id=pk,
            kind=Directive.Kind.SET_BATCH_SCALE,
            value=standing.number,
            owner=OWNER,
            cause=f"{OWNER}:{standing.id}",
            reason=f"{standing.reason} ({standing.kind} on {standing.scope})",
            expires_at=standing.expires_at,
            evidence={"restriction": standing.id},
        )
        for standing in found
        for pk in ids[standing.id]
        if pk in running
    ]
    return store.keep(OWNER, wanted, now=now, why="the restriction has ended")


def drain(placed: Placed, in_force: InForce, *, now: datetime) -> list[Directive]:
    """Have jobs that can be moved leave the places that are being drained."""
    given = []
    for standing in in_force.of(RestrictionKind.DRAIN):
        there = placed.load(placed.in_scope(standing.scope, in_force).tolist())
        leaving = [each.attempt for each in there if each.is_preemptible and not each.is_ending]
        if leaving:
            given += actions.stop(
                leaving, owner=OWNER, cause=f"{OWNER}:{standing.id}", now=now,
                why=f"{standing.scope} is being drained: {standing.reason}",
                evidence={"restriction": standing.id},
            )  # fmt: skip
    return given


# --- Power caps of jobs ---------------------------------------------------------------------------


def hold_caps(placed: Placed, *, now: datetime) -> int:
    """Have the GPUs of capped jobs be restricted to their caps; return how many jobs those are.

    Restrictions are leases: if nobody renews them, agents lift the caps by themselves.
    """
    capped = _capped(placed)
    held: dict[str, list[tuple[float | None, datetime]]] = {}
    rows = Restriction.objects.live().filter(owner=CAP_OWNER)
    for cause, value, until in rows.values_list("cause", "value", "expires_at"):
        held.setdefault(cause, []).append((value, until))
    due = {pk: cap_w for pk, (key, cap_w) in capped.items() if _is_due(held.get(key), cap_w, now)}
    wanted = [
        restriction
        for each in placed.load(due)
        for restriction in _restrictions(each, due[each.attempt.pk], placed.fleet, now)
    ]
    if wanted:
        restrictions.hold(wanted, now=now)
    for cause in sorted(held.keys() - {key for key, _ in capped.values()}):
        restrictions.release(
            CAP_OWNER, cause=cause, now=now, by="system", why="the job has ended, or has no cap now"
        )
    return len(capped)


def _is_due(
    rows: Sequence[tuple[float | None, datetime]] | None, cap_w: float, now: datetime
) -> bool:
    late = now + 0.5 * _CAP_LEASE
    return not rows or any(value != cap_w or until < late for value, until in rows)


def _capped(placed: Placed) -> dict[int, tuple[str, float]]:
    """Return key and cap of attempts that have one: of placement or directive, the lower.

    One query.
    """
    found = {
        each.id: (each.key, each.placement.power_cap_w)
        for each in placed.held.attempts
        if each.placement.power_cap_w is not None
    }
    keys = {each.id: each.key for each in placed.held.attempts}
    told = Directive.objects.live().filter(kind=Directive.Kind.SET_POWER_CAP)
    for pk, cap_w in told.values_list("attempt", "value"):
        if pk in keys and cap_w is not None:
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
            cause=each.attempt.key,
            expires_at=now + _CAP_LEASE,
            evidence={"attempt": each.attempt.key},
            # The job has agreed to its own cap: it restricts nobody else.
            most_of_site=1.0,
        )


def _scopes(each: Active, fleet: FleetArrays) -> Iterator[Scope]:
    """Return whole nodes where the gang has all GPUs of one, else its GPUs."""
    nodes = fleet.gpus.node[each.gpus]
    for node in each.nodes.tolist():
        mine = each.gpus[nodes == node]
        name = str(fleet.nodes.names[node])
        if len(mine) == fleet.gpu_bounds[node + 1] - fleet.gpu_bounds[node]:
            yield Scope(ScopeKind.NODE, name)
        else:
            for gpu in mine.tolist():
                yield Scope(ScopeKind.GPU, f"{name}/{fleet.gpus.index[gpu]}")
