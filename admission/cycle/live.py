"""The queue and the fleet as they are now: the shell that reads the input of cycles."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial

import msgspec
import numpy as np
from django.db import connection
from django.db.models import BigIntegerField
from django.db.models.expressions import RawSQL
from numpy.typing import NDArray

from admission.allocation import open_attempts
from admission.bookings import store as booked
from admission.core.allocation.allocations import Allocations, busy, running_of
from admission.core.allocation.reservation import Reserved
from admission.core.cycle.change import Counterfactual
from admission.core.cycle.controlled import starting_low
from admission.core.cycle.decide import Decisions, decide
from admission.core.cycle.whatif import DryRun, Explanation
from admission.core.directives.standing import Standing, standing_of
from admission.core.handover import placed
from admission.core.holding import Holding, Remembered
from admission.core.placement.bookings import Bookings
from admission.core.placement.cluster import Cluster
from admission.core.placement.gpu_use import GpuUses, uses_of
from admission.core.placement.mix import Arms
from admission.core.policy import AdmissionPolicy
from admission.core.request import Request, placement_from_json
from admission.core.response.fallback import Fallback, restricted
from admission.core.slices import in_parts
from admission.core.snapshot import (
    ClassRules,
    ConcurrencyCap,
    Pending,
    ProjectShare,
    Running,
    Snapshot,
    Unmet,
)
from admission.core.throughput import Curve
from admission.cycle import asking, holding
from admission.directives import fallback
from admission.directives.actions import moved_within_the_hour, preempted_by_project
from admission.directives.placed import placed_on
from admission.energy import ahead
from admission.executors.runners import ready_nodes
from admission.executors.schedulers import registered
from admission.jobs import artifacts, catalog, first_steps, needs
from admission.jobs.applying import applicable
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Phase
from admission.learned import profiles, shares, throughput
from admission.learned.models import Cycle
from admission.policy.catalog import policy_in_force
from fleet import snapshot as inventory
from fleet.cache import Cache
from fleet.slicing import holdable
from fleet.snapshot import FleetArrays
from headroom.jobs import array
from policies import current
from policies.headroom import live as headroom_live
from policies.headroom.columns import Bools
from policies.headroom.evaluate import Headroom
from policies.headroom.reach import Room
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import InForce
from policies.rollouts.steering import soaking_arms

__all__ = [
    "CycleInput",
    "Row",
    "RunningLoad",
    "Waiting",
    "decisions",
    "dry_run",
    "explain",
    "fixes",
    "input_of",
    "invalidate",
    "lock_unchanged",
    "looked_at",
    "read_input",
    "running_load",
    "snapshot",
    "under",
]

#: Decisions that are made to be looked at serve for this long, s.
_SERVES_S = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    """A phase that waits, as the database had it. ``version`` changes whenever its row does."""

    id: int
    job_id: int
    version: int
    is_queued: bool
    reason: str
    reason_since: datetime | None
    #: of its specification
    index: int = 0
    #: its index in an array; None: its job is none
    element: int | None = None

    @property
    def told_as(self) -> tuple[int, int, int]:
        """The same for all elements of an array: what holds for one of them holds for all."""
        return (self.job_id, self.index, 0 if self.element is None else -1)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue: the phases that wait, and their rows by key."""

    pending: tuple[Pending, ...]
    rows: dict[str, Row]


@dataclass(frozen=True, eq=False, kw_only=True)
class Moment:
    """Queue and fleet at one moment, as they were read, whatever policy decides on them.

    ``measured`` is the headroom with nothing reserved, ``ready`` says of each node whether its
    machine takes jobs, ``occupied`` by what each GPU is taken, and ``standing`` who may have to
    stand still.
    """

    waiting: Waiting
    held: Allocations
    measured: Headroom
    in_force: InForce
    occupied: GpuUses
    ready: Bools
    #: of each node the scheduler that has it, empty for none; None: there is no scheduler
    executors: NDArray[np.str_] | None
    memory: Remembered
    standing: Standing
    bookings: Bookings
    #: those of a rollout that soaks; None: there is none
    arms: Arms | None
    #: as they are themselves, whatever a policy states of them
    projects: tuple[ProjectShare, ...]
    #: what elastic jobs did at each size, by key
    curves: Mapping[str, Curve]


@dataclass(frozen=True, eq=False)
class CycleInput:
    """Queue and fleet at one moment. ``number`` is that of the last cycle before it.

    ``holding`` is what the controller makes of it; None: it is off, or no agent acts on caps.
    """

    snapshot: Snapshot
    number: int
    moment: Moment
    policy: AdmissionPolicy
    reserved: Reserved
    headroom: Headroom
    holding: Holding | None

    @property
    def rows(self) -> dict[str, Row]:
        return self.moment.waiting.rows

    @property
    def allocations(self) -> Allocations:
        return self.moment.held

    @property
    def starts_low(self) -> bool:
        """Say whether jobs start under their lowest caps, once room was made for them."""
        return self.holding is not None and self.holding.starts_low


# --- The queue -----------------------------------------------------------------------------------

_FIELDS = (
    "pk", "job_id", "version", "state", "reason", "reason_since", "held_by", "not_before", "needs",
    "hold_reason", "job__name", "name", "job__submitted_by", "index", "element", "returns_to",
    "returns_by",
)  # fmt: skip


class _Requests:
    """Requests that this process has read, by phase: most of a queue stays as it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[int, tuple[int, Request]] = {}

    def of(self, versions: Mapping[int, int]) -> dict[int, Request]:
        """Return the request of each phase, given with its version. One query for new ones."""
        with self._lock:
            known = {
                pk: found
                for pk, version in versions.items()
                if (found := self._known.get(pk)) is not None and found[0] == version
            }
            new = [pk for pk in versions if pk not in known]
            if new:
                rows = Phase.objects.filter(pk__among=new).values_list("pk", "request")
                known |= {pk: (versions[pk], msgspec.convert(row, Request)) for pk, row in rows}
            self._known = known
            return {pk: request for pk, (_, request) in known.items()}


_requests = _Requests()


def _waiting(fleet: FleetArrays, now: float) -> Waiting:
    """Read the phases that wait at ``now`` (Unix s).

    Six queries at most, two of what is away; two more where some take artifacts.
    """
    # What a row is at is told by the transaction that wrote it last: no column has to be kept up.
    version = RawSQL('"admission_jobs_phase".xmin::text::bigint', [], BigIntegerField())
    rows = list(Phase.objects.pending().annotate(version=version).order_by().values_list(*_FIELDS))
    asked = _requests.of({row[0]: row[2] for row in rows})
    done = _succeeded([(row[1], name) for row in rows for name in row[8]])
    unmet = needs.unmet({row[1] for row in rows if row[3] == Phase.State.WAITING})
    away, sites = fallback.away(), tuple(fleet.sites.names.tolist())
    unfit = fallback.unfit(away, datetime.fromtimestamp(now, UTC))
    made = artifacts.of_jobs({row[1] for row in rows if row[0] in asked and asked[row[0]].takes})
    pending, found = [], {}
    for row in rows:
        pk, job, at, state, reason, since, held_by, not_before, before = row[:9]
        hold_reason, job_name, name, user, index, element, kept, kept_until = row[9:]
        if pk not in asked:  # it is gone since
            continue
        found[f"{job_name}/{name}"] = Row(
            pk, job, at, state == "queued", reason, since, index, element
        )
        request = _as_fallen_back(asked[pk], away, sites, unfit.get(job_name, ()))
        handover = artifacts.known_of(made.get(job, {})) if request.takes else None
        pending.append(
            Pending(
                request=request if handover is None else placed(request, handover),
                handover=handover,
                user=user,
                held_by=f"{held_by}: {hold_reason}" if held_by and hold_reason else held_by,
                waits_for=tuple(each for each in before if (job, each) not in done),
                needs=_unmet_of(job, name, element, unmet) if state == Phase.State.WAITING else (),
                not_before=not_before.timestamp() if not_before else 0.0,
                returns_to=(
                    placement_from_json(kept, fleet)
                    if kept is not None and kept_until.timestamp() > now
                    else None
                ),
            )
        )
    return Waiting(tuple(pending), found)


def _unmet_of(job: int, name: str, element: int | None, unmet: needs.Unmets) -> tuple[Unmet, ...]:
    in_spec = name if element is None else array.name_in_spec(name)
    mine = dict.fromkeys([None, element])
    return tuple(
        each
        for phase in ("", in_spec)
        for of_element in mine
        for each in unmet.get((job, phase, of_element), ())
    )


def _succeeded(needed: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return those of ``needed`` phases, by job and name, that have succeeded."""
    if not needed:
        return set()
    jobs, names = ({each[place] for each in needed} for place in (0, 1))
    # By name, too: an array may have had ten thousand elements.
    over = Phase.objects.filter(job_id__in=jobs, name__in=names, state=Phase.State.SUCCEEDED)
    return set(over.order_by().values_list("job_id", "name"))


def _as_fallen_back(
    request: Request,
    away: Mapping[str, tuple[Fallback, str]],
    sites: tuple[str, ...],
    unfit: Collection[str],
) -> Request:
    if request.job not in away:
        return request
    state, home = away[request.job]
    return restricted(request, state, home=home, all_sites=sites, unfit=unfit)


# What somebody is at work on is left to the next cycle: nothing waits for anybody, so that nobody
# waits in a circle. The lock of the job is that of whoever changes it or its phases, and events
# refer to it.
_LOCK = """
SELECT phase.id
FROM unnest(%s::bigint[], %s::bigint[]) AS seen (id, version)
JOIN admission_jobs_phase AS phase USING (id)
JOIN admission_jobs_job AS job ON job.id = phase.job_id
WHERE phase.xmin::text::bigint = seen.version
FOR NO KEY UPDATE OF phase, job SKIP LOCKED
"""


def lock_unchanged(rows: Sequence[Row]) -> set[int]:
    """Lock phases and their jobs until the transaction ends; return the ids of those it got.

    Left out are those that have changed since they were seen, or that somebody is at work on.
    """
    with connection.cursor() as cursor:
        cursor.execute(_LOCK, [[row.id for row in rows], [row.version for row in rows]])
        return {pk for (pk,) in cursor.fetchall()}


# --- The fleet -----------------------------------------------------------------------------------


def _occupied_in(headroom: Headroom, held: Allocations, ready: Bools) -> GpuUses:
    """Return by what each GPU is taken: something runs on it, or nobody would run a job there."""
    return uses_of(held.gpus, busy(headroom), ~ready[headroom.fleet.gpus.node])


# --- All of it -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class RunningLoad:
    """What runs on the fleet at one moment, and what the controller of it goes by.

    ``whole`` is the headroom with nothing reserved, ``runners`` the ids of nodes that run jobs,
    ``memory`` what the last round of the controller left, and ``standing`` who may have to stand
    still.
    """

    held: Allocations
    whole: Headroom
    in_force: InForce
    runners: Collection[int]
    policy: AdmissionPolicy
    memory: Remembered
    standing: Standing

    @cached_property
    def measured(self) -> Headroom:
        """The headroom by what can be held, with nothing reserved."""
        return self.in_parts(self.whole)

    def in_parts(self, headroom: Headroom) -> Headroom:
        """Return ``headroom`` by what can be held; its GPUs are those of ``whole``."""
        return in_parts(headroom, self.held.gpus)

    def looked_at(self, headroom: Headroom) -> Holding | None:
        """Return what the controller makes of ``headroom``, which is aligned with ``measured``."""
        ready = _ready(headroom.fleet, self.runners)
        return holding.look(headroom, self.held, self.policy, ready, self.memory, self.standing)


def running_load(whole: FleetArrays, now: float) -> RunningLoad:
    """Read what runs at ``now`` (Unix s). Some queries. Raises :class:`InventoryChanged`."""
    fleet = holdable(whole)
    held = open_attempts.fresh(fleet)
    in_force = store.in_force(datetime.fromtimestamp(now, UTC))
    return RunningLoad(
        held=held,
        in_force=in_force,
        policy=policy_in_force(),
        whole=_measured(now, in_force, whole),
        runners=ready_nodes(now) | registered.ready_nodes(now),
        memory=holding.remembered(fleet, now),
        standing=_standing(fleet, in_force, now),
    )


def read_input(now: float) -> CycleInput:
    """Read queue and fleet as they are at ``now`` (Unix s). About a dozen queries."""
    # The number first: what another cycle admits from here on shows when this one commits. And
    # the queue before what runs, so that nothing that goes from one to the other is in neither.
    number = Cycle.objects.get_or_create(pk=1)[0].number
    whole = inventory.current()
    fleet = holdable(whole)
    waiting = _waiting(fleet, now)
    load = running_load(whole, now)
    return input_of(
        now, waiting, load.held, load.measured, load.in_force, load.runners,
        policy=load.policy, memory=load.memory, number=number, standing=load.standing,
        bookings=booked.live(fleet, now),
        arms=_arms(fleet),
        executors=registered.executor_by_node(),
    )  # fmt: skip


def _arms(fleet: FleetArrays) -> Arms | None:
    """Return the arms between which the mix of jobs is kept alike, if there are any. One query."""
    found = soaking_arms()
    return None if found is None else Arms.of(fleet, found.changed, found.control)


def _ready(fleet: FleetArrays, runners: Collection[int]) -> Bools:
    """Say of each node whether its machine takes jobs, given the ids of those that do."""
    return np.isin(fleet.nodes.ids, np.fromiter(runners, dtype=np.int64))


def _executors(fleet: FleetArrays, of: Mapping[int, str]) -> NDArray[np.str_] | None:
    """Return the scheduler of each node, given by the ids of those that have one."""
    if not of:
        return None
    return np.array([of.get(node, "") for node in fleet.nodes.ids.tolist()])


def _elastic(waiting: Waiting) -> dict[int, str]:
    """Return the keys of elastic phases that wait, by their ids."""
    keys = [each.request.key for each in waiting.pending if each.request.is_elastic]
    return {waiting.rows[key].id: key for key in keys}


def _standing(fleet: FleetArrays, in_force: InForce, now: float) -> Standing:
    """Return who may have to stand still. No query but for attempts that are new."""
    if not in_force.of(RestrictionKind.POWER_BUDGET_W):
        return Standing()
    placed, at = placed_on(fleet), datetime.fromtimestamp(now, UTC)
    return standing_of(placed, placed.pauses(), in_force, at, within_s=holding.COMES_TO_REST_S)


def input_of(
    now: float,
    waiting: Waiting,
    held: Allocations,
    measured: Headroom,
    in_force: InForce,
    runners: Collection[int],
    *,
    policy: AdmissionPolicy,
    memory: Remembered | None = None,
    number: int = 0,
    standing: Standing | None = None,
    bookings: Bookings | None = None,
    arms: Arms | None = None,
    executors: Mapping[int, str] | None = None,
) -> CycleInput:
    """Return the input of a cycle at ``now`` (Unix s).

    Seven queries, one of elastic jobs, and three more once a minute.

    ``measured``: the headroom without reservations, of the inventory of ``held``. ``runners``: the
    ids of nodes that run jobs; ``executors``: the schedulers of those that have one. ``memory``:
    what the last round of the controller left; ``standing``: who may have to stand still; ``arms``:
    between which the mix of jobs is kept alike.
    """
    ready = _ready(measured.fleet, runners)
    moment = Moment(
        waiting=waiting,
        held=held,
        measured=measured,
        in_force=in_force,
        occupied=_occupied_in(measured, held, ready),
        ready=ready,
        executors=_executors(measured.fleet, executors or {}),
        memory=memory or Remembered(),
        standing=standing or Standing(),
        bookings=bookings or Bookings(),
        arms=arms,
        projects=shares.project_shares(now, policy.shares.half_life_s),
        curves=throughput.curves(held, _elastic(waiting)),
    )
    held_back = _held_back(moment, policy)
    reserved = held.reserved(measured, policy.reserve)
    cluster, running = _room(moment, policy, held_back, reserved)
    taken = Snapshot(
        now=now,
        cluster=cluster,
        pending=waiting.pending,
        running=running,
        projects=policy.shares.applied(moment.projects),
        classes=_classes(),
        caps=_caps(in_force),
        grants=policy.grants,
        tuning=policy.tuning,
        preemption=policy.preemption,
        disrupted=preempted_by_project(now),
        moving=policy.moving,
        moved=moved_within_the_hour(now),
        curves=moment.curves,
        room=Room.of(measured),
        draws={} if held_back is None else held_back.draws,
        run_shares=profiles.run_shares(),
        ahead=ahead.current(now),
    )
    headroom = replace(measured, reservations=reserved.fleet)
    started = _as_started(taken, held_back)
    return CycleInput(started, number, moment, policy, reserved, headroom, held_back)


def under(inputs: CycleInput, policy: AdmissionPolicy, held: Allocations) -> Snapshot:
    """Return the snapshot that a cycle would decide on by another policy, all else as ``inputs``.

    ``held``: what is held, with the quantile of what it drew that the policy asks for.
    """
    moment = replace(inputs.moment, held=held)
    held_back = _held_back(moment, policy)
    cluster, running = _room(moment, policy, held_back)
    taken = replace(
        inputs.snapshot,
        cluster=cluster,
        pending=moment.waiting.pending,
        running=running,
        projects=policy.shares.applied(moment.projects),
        grants=policy.grants,
        tuning=policy.tuning,
        preemption=policy.preemption,
        moving=policy.moving,
    )
    return _as_started(taken, held_back)


def _held_back(moment: Moment, policy: AdmissionPolicy) -> Holding | None:
    return holding.look(
        moment.measured, moment.held, policy, moment.ready, moment.memory, moment.standing
    )


def _room(
    moment: Moment,
    policy: AdmissionPolicy,
    held_back: Holding | None,
    reserved: Reserved | None = None,
) -> tuple[Cluster, tuple[Running, ...]]:
    """Return the fleet for who waits, and what runs on it.

    Where room can be made before a job starts, it is the fleet once all that runs has given way as
    far as it agreed. ``reserved``: what is reserved as things are, if that is known.
    """
    measured, held, kept_shares = moment.measured, moment.held, (0.0, 0.0)
    if held_back is not None and held_back.starts_low:
        measured, arrays = held_back.brought_down()
        held, kept_shares = replace(held, arrays=arrays), holding.TUNING.kept_shares
        reserved = None
    reserved = reserved or held.reserved(measured, policy.reserve)
    cluster = Cluster.of(
        replace(measured, reservations=reserved.fleet),
        moment.in_force,
        moment.occupied,
        now=measured.at,
        kept_shares=kept_shares,
        bookings=moment.bookings,
        executors=moment.executors,
    )
    running = running_of(held, reserved)
    if moment.arms is not None:
        cluster = cluster.steered(moment.arms, [(each.placement, each.request) for each in running])
    return cluster, running


def _as_started(taken: Snapshot, held_back: Holding | None) -> Snapshot:
    """Return a snapshot in which jobs ask for what they start with."""
    if held_back is None or not held_back.starts_low:
        return taken
    return starting_low(taken)


def snapshot(now: float) -> Snapshot:
    """Return the snapshot that a cycle at ``now`` (Unix s) decides on."""
    return read_input(now).snapshot


def _measured(now: float, in_force: InForce, fleet: FleetArrays) -> Headroom:
    """Return the headroom of this very moment, not of up to two seconds ago, nothing reserved."""
    measured = headroom_live.measured(now, limits=current.limits_of(in_force, fleet))
    if measured.fleet is not fleet:
        raise InventoryChanged
    return measured


class InventoryChanged(Exception):
    """The inventory has changed while it was read. The next cycle reads one."""


def _classes() -> dict[str, ClassRules]:
    return {name: _rules(each) for name, each in catalog.current().items()}


def _rules(job_class: SchedulingClass) -> ClassRules:
    return ClassRules(
        name=job_class.name,
        priority=job_class.priority,
        max_running=job_class.max_running,
        max_gpus=job_class.max_gpus,
        preempts=job_class.preempts,
        kind_of_work=job_class.kind_of_work,
    )


def _caps(in_force: InForce) -> tuple[ConcurrencyCap, ...]:
    return tuple(
        ConcurrencyCap(each.scope, int(each.number), each.id, each.reason)
        for each in in_force.of(RestrictionKind.MAX_CONCURRENT_JOBS)
    )


# --- To be looked at -----------------------------------------------------------------------------


#: Queue and fleet, and what a cycle would decide of them: shared by those who ask.
_snapshots: Cache[Snapshot] = Cache(_SERVES_S)
_decisions: Cache[Decisions] = Cache(_SERVES_S)


def invalidate() -> None:
    """Have the next look at queue and fleet be a new one."""
    _snapshots.invalidate()
    _decisions.invalidate()


def looked_at(now: float | None = None) -> Snapshot:
    """Return queue and fleet as they were at most five seconds before ``now`` (Unix s)."""
    at = time.time() if now is None else now
    look = partial(snapshot, at)
    try:
        return _snapshots.get(look, now=at)
    except InventoryChanged:  # the second look sees one inventory
        return _snapshots.get(look, now=at)


def decisions() -> Decisions:
    """Return the decisions that a cycle would make now, at most some seconds old.

    With a large fleet and queue this takes seconds: the worker is asked before (``asking``).
    """
    return _decisions.get(lambda: decide(looked_at()))


def _answer(question: asking.Question) -> asking.Answer:
    """Return what the worker that decided last says. Before the first cycle nobody has decided."""
    return asking.ask(question) or asking.answered(decisions(), question)


def explain(key: str) -> Explanation:
    """Say why the phase ``key`` waits, and how it would start. Raises KeyError if it does not wait.

    Changes that the job could not be amended by are left out: who is shown one can have it. Those
    that move it to another site say when its first step is there.
    """
    found = _answer(asking.Question(key=key)).explanation
    if found is None:
        raise KeyError(key)
    never = found.never
    if never is not None:
        never = replace(never, ways=_as_shown(key, never.ways))
    return replace(found, counterfactuals=_as_shown(key, found.counterfactuals), never=never)


def _as_shown(key: str, found: Sequence[Counterfactual]) -> tuple[Counterfactual, ...]:
    return first_steps.told(key, applicable(key, found))


def fixes(keys: Sequence[str], budget_s: float = 0.3) -> dict[str, Counterfactual]:
    """Return the first fix of each of ``keys`` that has one, as far as one gets within the time."""
    found, end = {}, time.monotonic() + budget_s
    for key in keys:
        if time.monotonic() >= end:
            break
        with suppress(KeyError):
            changes = explain(key).counterfactuals
            first = next((each for each in changes if each.starts_now), None)
            if first is not None:
                found[key] = first
    return found


def dry_run(request: Request) -> DryRun:
    """Return the outcome of the next cycle for ``request``, were it submitted now."""
    found = _answer(asking.Question(request=request)).dry_run
    if found is None:
        raise RuntimeError("a question about a request was answered as one about a key")
    return found
