"""The snapshot that a cycle decides on: queue, running jobs, projects, classes and fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.core.energy.ahead import Ahead, Later
from admission.core.grants import Grants
from admission.core.handover import Handover, waits_for
from admission.core.moving import MovingPolicy
from admission.core.per_user import PerUser
from admission.core.placement.cluster import Cluster
from admission.core.preempting import PreemptionPolicy
from admission.core.reasons import Reason
from admission.core.request import Placement, Request
from admission.core.throughput import Curve
from policies.headroom.reach import Room
from policies.scopes import Scope


@dataclass(frozen=True)
class Unmet:
    """What a phase waits for beside phases of its job: ``text`` as in "job prepare to succeed"."""

    text: str
    #: why it never comes about; empty: it may
    never: str = ""


@dataclass(frozen=True)
class Pending:
    """A phase that waits, with the gates that keep it from being placed at all."""

    request: Request
    #: who submitted it
    user: str = ""
    #: who or what holds it, and why; empty: nobody
    held_by: str = ""
    #: names of phases that have to succeed before it
    waits_for: tuple[str, ...] = ()
    #: what else has to come about before it
    needs: tuple[Unmet, ...] = ()
    #: Unix seconds before which it must not begin, such as a pause after a failure
    not_before: float = 0.0
    #: what is recorded of the artifacts that it takes; None: it takes none, or nobody has looked
    handover: Handover | None = None
    #: what is wrong with its specification by now; empty: nothing
    spec_error: str = ""
    #: what is kept for it to go on with after a move; None: it did not run before, or lost it
    returns_to: Placement | None = None
    #: the later hour that it prefers; None: none. A cycle finds it by ``Snapshot.ahead``
    later: Later | None = None

    def is_kept_back(self, now: float) -> bool:
        """Say whether it is not tried at all, whatever is free: see ``gates``."""
        return bool(
            self.held_by
            or self.spec_error
            or self.waits_for
            or self.needs
            or self.not_before > now
            or self.waits_for_artifacts
            or self.prefers_later(now)
        )

    @property
    def waits_for_artifacts(self) -> tuple[Reason, ...]:
        """Why artifacts that it takes keep it back; empty: none does."""
        return () if self.handover is None else waits_for(self.request, self.handover)

    def prefers_later(self, now: float) -> bool:
        """Say whether it waits for the hour that it prefers, as long as its request agrees to."""
        return self.later is not None and self.later.at > now and self.request.may_wait_s > 0.0


@dataclass(frozen=True)
class Running:
    """A phase that holds GPUs. Its placement is held in the snapshot's cluster already."""

    request: Request
    placement: Placement
    #: Unix seconds
    started_at: float
    #: for forecasts alone: decisions go by :attr:`ends_by`
    expected_end_at: float
    last_checkpoint_at: float | None = None
    #: it was asked to give way and is about to end
    preempting: bool = False
    #: who submitted it
    user: str = ""
    #: where it goes on after it has ended; None: it does not, or as it comes
    returns_to: Placement | None = None

    @property
    def is_leaving(self) -> bool:
        """Whether it is about to end, and what it holds is nobody's then."""
        return self.preempting and self.returns_to is None

    @property
    def ends_by(self) -> float:
        """Unix seconds at which its walltime is up."""
        return self.started_at + self.request.walltime_s


@dataclass(frozen=True)
class Draws:
    """What each GPU of a job draws with its part of the host, W: now, and without a cap."""

    now_w: float
    full_w: float


@dataclass(frozen=True)
class ProjectShare:
    """The quotas, weight and past use of a project. None: no limit.

    Weights are against others of the same level: users in a project, projects in an organization,
    and organizations, with the projects of none of them.
    """

    name: str
    weight: float = 1.0
    gpu_quota: int | None = None
    power_quota_w: float | None = None
    #: GPU seconds that it used, older ones counting less
    used_gpu_s: float = 0.0
    #: empty: none
    organization: str = ""
    organization_weight: float = 1.0
    #: by user; one that is missing has weight 1
    user_weights: Mapping[str, float] = field(default_factory=dict)
    #: by user, GPU seconds, older ones counting less
    used_by_user: Mapping[str, float] = field(default_factory=dict)
    #: projects of one cohort lend each other what they leave idle of their GPU quotas; empty: none
    cohort: str = ""
    #: GPUs that it may borrow beyond its quota, and lend of it; None: no limit
    may_borrow: int | None = None
    may_lend: int | None = None
    #: what each of its users may have at once
    per_user: PerUser = field(default_factory=PerUser)


@dataclass(frozen=True)
class ClassRules:
    """The rules of a scheduling class. ``priority`` is in that of its requests already."""

    name: str
    priority: int = 0
    max_running: int | None = None
    max_gpus: int | None = None
    #: whether jobs of it may have others give way
    preempts: bool = False
    #: what its jobs do; empty: what no other class does
    kind_of_work: str = ""


@dataclass(frozen=True)
class ConcurrencyCap:
    """A restriction in force that lets only so many jobs run in a place or of a class at once."""

    scope: Scope
    max_jobs: int
    restriction_id: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Weights and bounds of the cycle. Points are those of priority."""

    #: so long a wait is worth as much as one point of priority, against those who have had more of
    #: their share: what waits is never passed for ever
    wait_s_per_point: float = 600.0
    #: for so long a running GPU counts against the shares of its accounts
    fair_share_horizon_s: float = 3600.0
    #: what a job gets whose deadline is now, beside one whose deadline is ``deadline_within_s`` off
    deadline_points: float = 20.0
    deadline_within_s: float = 4 * 3600.0

    #: jobs that are tried on the fleet in one cycle; projects, and in them users, share them evenly
    depth: int = 10_000
    #: blocked jobs for which what they need is kept
    reservations: int = 4
    #: how long beyond its walltime a job is taken to run that is past it
    overrun_s: float = 300.0

    #: heat that may be added to a cooling zone within ``stagger_s``, as a share of its capacity, …
    stagger_share: float = 0.25
    stagger_s: float = 60.0
    #: … once it carries more than this share of its capacity
    stagger_above: float = 0.8

    #: a job gives way only to one of at least so many points of priority more
    preemption_gap: int = 10
    #: jobs that are asked to give way in one cycle
    max_preemptions: int = 32
    #: how long one that gives way takes to save and end
    preemption_grace_s: float = 120.0


@dataclass(frozen=True)
class Snapshot:
    """The whole input of a cycle. ``cluster`` is left as it is."""

    #: Unix seconds
    now: float
    cluster: Cluster
    pending: tuple[Pending, ...]
    running: tuple[Running, ...] = ()
    #: by name; a project that is missing has no quota and weight 1
    projects: Mapping[str, ProjectShare] = field(default_factory=dict)
    #: by name; a class that is missing has no cap
    classes: Mapping[str, ClassRules] = field(default_factory=dict)
    caps: tuple[ConcurrencyCap, ...] = ()
    #: which project may use which class: what is offered to a job goes by it
    grants: Grants = field(default_factory=Grants)
    tuning: Tuning = field(default_factory=Tuning)
    preemption: PreemptionPolicy = field(default_factory=PreemptionPolicy)
    #: by project: jobs of it that were asked to give way to others within the last hour
    disrupted: Mapping[str, int] = field(default_factory=dict)
    moving: MovingPolicy = field(default_factory=MovingPolicy)
    #: jobs that were moved within the last hour
    moved: int = 0
    #: what elastic jobs did at each size, by key; of those that wait, in earlier attempts
    curves: Mapping[str, Curve] = field(default_factory=dict)
    #: what is left of each budget by what is drawn; None: not known, and nobody is kept from
    #: growing by it
    room: Room | None = None
    #: what elastic jobs that may be capped draw now, and without a cap, by key
    draws: Mapping[str, Draws] = field(default_factory=dict)
    #: by project: the share of its walltime that half of its jobs run for; for forecasts alone
    run_shares: Mapping[str, float] = field(default_factory=dict)
    #: jobs in it ask for their lowest caps: a controller raises those later
    starts_low: bool = False
    #: by key of a job that waits and starts low: how much less each of its GPUs draws under the cap
    #: that it starts with, W
    spared_w: Mapping[str, float] = field(default_factory=dict)
    #: what energy comes to in the hours ahead; None: nothing is known of that
    ahead: Ahead | None = None

    def expected_s(self, request: Request, slowdown: float) -> float:
        """Return how long a job is expected to run, s: no longer than its walltime."""
        share = self.run_shares.get(request.project, 1.0)
        return request.walltime_s * min(share / (1.0 - slowdown), 1.0)
