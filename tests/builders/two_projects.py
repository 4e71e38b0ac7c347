"""Two projects on one fleet, of whose jobs everything is marked, with rows of every kind.

Each project's job of each sort stands in rows of the other's too: in what it gave way to, in what
is kept for it, in the limit on a node that both use.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
from django.utils import timezone

from accounts import audit
from accounts.models import User
from accounts.roles import Role
from admission.bookings.models import Booking
from admission.core.allocation.reservation import BIN_EDGES_W
from admission.core.directives.restricting import CAP_OWNER
from admission.core.reasons import ReasonToken
from admission.curtailments.models import Curtailment
from admission.cycle import dispatch
from admission.directives.models import Control, Directive, DirectiveEvent
from admission.energy.models import Budget, JobHour, ProjectHour
from admission.executors.models import Gang, NodeAssignment
from admission.jobs.models import Attempt, Job, JobRevision, Phase, Project
from admission.learned.models import Draw, DrawProfile, StartForecast
from admission.policy.catalog import POLICIES
from admission.policy.models import ShadowDecision, ShadowProgress
from admission.slos.models import SloJudgment
from dashboard import fixes
from policies.documents import life
from policies.incidents.models import (
    Delivery,
    Incident,
    IncidentMember,
    NotificationChannel,
    Silence,
    TimelineEntry,
)
from policies.playbooks.models import Directive as PlaybookDirective
from policies.playbooks.models import PlaybookRun, StepRun
from policies.restrictions.models import Restriction, RestrictionEvent
from telemetry import samples, stream
from telemetry.models import ReportedJob, ThrottleEvent
from telemetry.rollups.models import JobCarrier
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import (
    make_attempt,
    make_job,
    make_pending_status,
    make_reason,
    note,
    put_up,
)
from tests.builders.policies import make_playbook, make_rule
from tests.builders.readings import write_samples
from tests.builders.slos import make_slo

#: What is marked of a project's jobs.
NAMED = ("name", "phase", "project", "owner", "image", "label", "hold")
#: Shown to the members of its project alone.
SECRET = ("command", "env")
#: Shown to its members and to operators.
SAID = ("log",)


@dataclass
class Marked:
    """A project whose jobs say by marks what of them is seen."""

    node: str
    #: by what is marked, such as "name"
    marks: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    member: User = field(init=False)
    project: Project = field(init=False)

    def key(self, sort: str) -> str:
        """Return "job/phase" of the job of a sort."""
        return f"{self.jobs[sort].name}/{self.phase}"

    @property
    def image(self) -> str:
        return f"r.example/{self.marks['image']}@sha256:{'ab' * 32}"

    @property
    def phase(self) -> str:
        return f"p-{self.marks['phase']}"


@dataclass
class World:
    fleet: SmallFleet
    mine: Marked
    theirs: Marked


#: How long something drew how much, as cycles learn it.
_READ = np.ones(len(BIN_EDGES_W), dtype=np.float32).tobytes()
SORTS = ("queued", "running", "ended", "held")


def make_world() -> World:
    """Make both projects and all that is known of them."""
    fleet = small_fleet(sites=["oslo"], rows=["A"], racks_per_row=1)
    first, second = fleet.nodes
    world = World(fleet, _project(first), _project(second))
    _report(world)
    rule, playbook = make_rule(), make_playbook()
    slo, channel = make_slo(), NotificationChannel.objects.create(name="ops", kind="email")
    for one, other in ((world.mine, world.theirs), (world.theirs, world.mine)):
        _job_rows(one, other, fleet)
        _telemetry_rows(one, fleet)
        _restrictions(one)
        _curtailment(one)
        _booking(one)
        _energy(one)
        _incidents(one, rule.name, channel)
        _runs(one, playbook)
        _learned(one, slo)
        audit.record(audit.SYSTEM, "job.cancel", one.jobs["ended"].name, why=one.key("ended"))
    _shadow(world)
    _status(world)
    return world


def _shadow(world: World) -> None:
    """Have a shadow say of a job of each project that it would have waited for one of the other."""
    draft = life.draft(POLICIES, "ada", "name: steady\n")
    shadow, now = life.promote(POLICIES, "ada", draft, "shadow"), timezone.now()
    ShadowProgress.objects.create(version=shadow, since=now, asked_at=now, cycles=1)
    for one, other in ((world.mine, world.theirs), (world.theirs, world.mine)):
        ShadowDecision.objects.create(
            version=shadow, phase=one.jobs["queued"].phases.get(), kind="reason",
            decided=f"waits behind {other.key('queued')}",
            otherwise=f"waits for what {other.key('running')} holds", first_at=now, last_at=now,
        )  # fmt: skip


def _project(node: str) -> Marked:
    made = Marked(node)
    made.marks = {what: f"{what[:3]}{secrets.token_hex(5)}" for what in (*NAMED, *SECRET, *SAID)}
    made.member = make_user(Role.ML_USER, username=f"u-{made.marks['owner']}")
    made.project = Project.objects.create(name=f"of-{made.marks['project']}")
    made.project.members.add(made.member)
    for sort in SORTS:
        state = sort if sort in ("queued", "running") else "queued"
        made.jobs[sort] = _job(made, sort, state)
    return made


def _job(made: Marked, sort: str, state: str) -> Job:
    marks = made.marks
    job = make_job(
        f"{sort}-{marks['name']}", project=made.project.name, phases={made.phase: ()},
        state=state, gpus=4, submitted_by=made.member.username,
        labels={"team": marks["label"]},
    )  # fmt: skip
    (phase,) = job.spec["phases"]
    phase["command"] = ["python", marks["command"]]
    phase["env"] = {"TOKEN": marks["env"]}
    phase["artifacts"] = {**phase["artifacts"], "image": made.image}
    job.spec["project"] = made.project.name
    job.save()
    JobRevision.objects.create(
        job=job, number=1, spec=job.spec, replaced_at=timezone.now(),
        replaced_by=made.member.username, change="priority",
    )  # fmt: skip
    if sort == "held":
        job.phases.update(held_by=made.member.username, hold_reason=marks["hold"])
    return job


def _report(world: World) -> None:
    """Have all GPUs of each project's node work for its running job, and be read so."""
    by_node = {each.node: each.jobs["running"].name for each in (world.mine, world.theirs)}
    given: Any = {"job": lambda node, index: by_node[node], "throttle": 4}
    for ago in (120, 60, 2):
        world.fleet.report(at=time.time() - ago, **given)


# --- Jobs -----------------------------------------------------------------------------------------


def _job_rows(one: Marked, other: Marked, fleet: SmallFleet) -> None:
    now, gone = timezone.now(), other.key("queued")
    running = one.jobs["running"].phases.get()
    gpus = {one.node: range(4)}
    placement = {"gpus": gpus, "racks": ["oslo/A01"]}
    earlier = _ended(running, other, now, number_of=placement)
    attempt = make_attempt(running, gpus, racks=["oslo/A01"])
    for row in (earlier, attempt):
        _told(row, gone, now)
    over = one.jobs["ended"].phases.get()
    ended = _ended(over, other, now, number_of=placement)
    gang = Gang.objects.create(
        key=ended.key, executor="local", offered_at=now, go_at=now, ended_at=now, work={}
    )
    NodeAssignment.objects.create(
        gang=gang, node_id=fleet.nodes[one.node].pk, node=one.node, rank=0, gpus_of_node=4,
        state="ended", outcome="stopped", log_tail=one.marks["log"],
    )  # fmt: skip
    over.state, over.ended_at = Phase.State.CANCELLED, now
    over.save()
    Job.objects.filter(pk=over.job_id).update(state="cancelled", ended_at=now)
    for sort in SORTS:
        # As texts were stored before they stopped naming whom a job waits for.
        note(
            one.jobs[sort], "reason", f"is kept for {gone}, which is ahead of it",
            phase=one.phase, token="BackfillReservation", kept_for=gone,
            trace=[["order", True, f"behind {gone}"]],
        )  # fmt: skip
    Control.objects.create(attempt=attempt)
    gang = Gang.objects.create(
        key=attempt.key, executor="local", offered_at=now,
        work=msgspec.to_builtins(dispatch.work_of(attempt)),
    )  # fmt: skip
    NodeAssignment.objects.create(
        gang=gang, node_id=fleet.nodes[one.node].pk, node=one.node, rank=0, gpus=[0, 1, 2, 3],
        gpus_of_node=4, log_tail=one.marks["log"],
    )  # fmt: skip


def _ended(phase: Phase, other: Marked, now: datetime, *, number_of: dict[str, Any]) -> Attempt:
    return make_attempt(
        phase, number_of["gpus"], racks=number_of["racks"], state=Attempt.State.ENDED,
        outcome="preempted", ended_at=now - timedelta(minutes=1),
        dispatched_at=now - timedelta(minutes=30),
        why=f"gives way to {other.key('queued')}, which counts for more",
    )  # fmt: skip


def _told(attempt: Attempt, gone: str, now: datetime) -> None:
    row = Directive.objects.create(
        attempt=attempt, kind="stop", owner="preemption", cause=gone,
        reason=f"gives way to {gone}, which counts for more", evidence={"for": gone},
        issued_at=now, expires_at=now + timedelta(hours=1), note=f"for {gone}",
    )  # fmt: skip
    DirectiveEvent.objects.create(
        directive=row, at=now, kind="issued", text=f"gives way to {gone}", data={"for": gone}
    )


def _status(world: World) -> None:
    pending_statuses = {}
    pairs = ((world.mine, world.theirs), (world.theirs, world.mine))
    for position, (one, other) in enumerate(pairs, 1):
        kept = other.key("queued")
        reason = make_reason(
            ReasonToken.BACKFILL_RESERVATION, scope=None, unit="s",
            sentence=f"what is left is kept for {kept}, which counts for more",
            evidence={"kept_for": kept, "kept_at": 1.0},
        )  # fmt: skip
        made = make_pending_status(position, reason, make_reason())
        trace = (*made.trace, type(made.trace[0])("order", True, f"behind {kept}"))
        pending_statuses[one.key("queued")] = make_pending_status(position, reason, trace=trace)
        found = f"{time.time():.3f} starts now at 550 W per GPU"
        stream.connection().set(fixes._KEY + one.key("queued"), found)
    put_up(pending_statuses)


# --- Readings -------------------------------------------------------------------------------------


def _telemetry_rows(one: Marked, fleet: SmallFleet) -> None:
    now, gpu = timezone.now(), fleet.gpu(one.node, 3)
    reported = ReportedJob.objects.get(name=one.jobs["running"].name)
    for job in (reported, ReportedJob.objects.create(name=f"{one.key('ended')}/1")):
        for cause, closed in ((32, None), (64, now)):
            ThrottleEvent.objects.update_or_create(
                gpu=gpu, cause=cause, closed_at=closed if job is reported else now,
                opened_at=now - timedelta(minutes=job.pk),
                defaults={"updated_at": now, "job": job, "severity": 2},
            )  # fmt: skip
        at = [time.time() - ago for ago in (90, 60, 30)]
        write_samples(samples.JOB, job.pk, at, loss=2.5, step=[1, 2, 3])
        JobCarrier.objects.create(
            job_id=job.pk, hour=now.replace(minute=0, second=0, microsecond=0), gpu_ids=[gpu.pk]
        )


# --- Policies -------------------------------------------------------------------------------------


def _restrictions(one: Marked) -> None:
    now, key = timezone.now(), f"{one.key('running')}/1"
    fields: dict[str, Any] = {
        "issued_at": now, "effect_at": now, "expires_at": now + timedelta(hours=1),
        "evidence": {"attempt": key}, "owner": CAP_OWNER, "cause": key,
    }  # fmt: skip
    here = [
        ("power_cap_w", "node", one.node, 500.0, "in_force"),
        ("power_cap_w", "node", one.node, 450.0, "expired"),
        ("power_cap_w", "gpu", f"{one.node}/0", 400.0, "pending_approval"),
        ("hold_for_review", "job", one.jobs["running"].name, None, "in_force"),
        ("hold_for_review", "job", one.key("queued"), None, "pending_approval"),
        ("no_new_launches", "job", one.jobs["ended"].name, None, "released"),
    ]
    # As scopes are written into texts: a job without its phase.
    scope = f"hold_for_review on job {one.jobs['running'].name}"
    for kind, scope_kind, scope_name, value, state in here:
        row = Restriction.objects.create(
            kind=kind, scope_kind=scope_kind, scope_name=scope_name, value=value, state=state,
            reason=f"job {one.key('running')} runs under a cap", pending_why=f"for {scope}",
            ended_why=f"{key} has ended", **fields,
        )  # fmt: skip
        for step in ("issued", "applied"):
            RestrictionEvent.objects.create(
                restriction=row, at=now, kind=step, by="system", text=f"for {key}",
                data={"attempt": key},
            )  # fmt: skip


def _curtailment(one: Marked) -> None:
    now, key = timezone.now(), one.key("running")
    held = Restriction.objects.filter(owner=CAP_OWNER).latest("pk")
    measure = {
        "key": key, "project": one.project.name, "job_class": "training", "what": "pause",
        "gpus": 4, "saves_w": 900.0, "lost_gpu_h": 4.0,
    }  # fmt: skip
    estimate = {
        "load_w": 9e3, "target_w": 8e3, "need_w": 1e3, "possible_w": 2e3, "least_target_w": 7e3,
        "is_possible": True, "is_expected": True, "sure": 0.9, "lost_gpu_h": 4.0,
        "lost_low_gpu_h": 3.0, "lost_high_gpu_h": 5.0, "lost_by_project": {one.project.name: 4.0},
        "lost_by_class": {"training": 4.0}, "measures": [measure],
    }  # fmt: skip
    Curtailment.objects.create(
        site="oslo", asked={"to_w": 8e3}, source="user:eva", reason=f"{key} can wait",
        target_w=8e3, announced_at=now, starts_at=now, ends_at=now + timedelta(hours=1),
        restriction=held, estimate=estimate,
    )  # fmt: skip


def _booking(one: Marked) -> None:
    now = timezone.now()
    Booking.objects.create(
        project=one.project, nodes=[one.node], gpus=4, starts_at=now + timedelta(days=2),
        ends_at=now + timedelta(days=3), reason=f"{one.project.name} shows {one.key('held')}",
        made_by="eva", made_at=now,
    )  # fmt: skip


def _energy(one: Marked) -> None:
    """Have the ledger hold the last hour of a job."""
    hour = timezone.now().replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    amounts = {"gpu_mj": 5, "host_mj": 4, "shared_mj": 3, "overhead_mj": 2, "gpu_ms": 1}
    where = {"hour": hour, "site": "oslo", "project": one.project.name}
    Budget.objects.create(
        project=one.project, measure="kwh", amount=1.0, begins_at=hour, warn_at=[0.5], made_by="op",
        ends_at=hour + timedelta(hours=9), made_at=hour,
    )  # fmt: skip
    ProjectHour.objects.create(**where, **amounts)
    JobHour.objects.create(**where, **amounts, job=one.jobs["running"].name)


def _incidents(one: Marked, rule: str, channel: NotificationChannel) -> None:
    now, key = timezone.now(), one.key("running")
    # One about the job, and one about a rack that tells of it.
    for kind, name in (("job", one.jobs["running"].name), ("rack", "oslo/A01")):
        incident = Incident.objects.create(
            title=f"{kind} {name}: {key}" if kind == "job" else f"slow is {key}", rule=rule,
            group_key=f"{kind} {name} {key}", severity="warning", scope_kind=kind,
            scope_name=name, site="oslo", opened_at=now,
        )  # fmt: skip
        IncidentMember.objects.create(
            incident=incident, key=f"{rule} {kind} {name} {key}", group_key=f"{kind} {key}",
            rule=rule, version=1, scope_kind=kind, scope_name=name, site="oslo",
            severity="warning", summary=f"slow is job {one.jobs['running'].name}.",
            values={"slowest": key}, labels={"attempt": f"{key}/1"}, since=now, fired_at=now,
        )  # fmt: skip
        TimelineEntry.objects.create(
            incident=incident, at=now, kind="comment", by="eva", text=f"it is {key}",
            data={"of": key},
        )  # fmt: skip
        Delivery.objects.create(
            channel=channel, incident=incident, key=f"k-{incident.pk}", event="opened",
            subject=f"slow is {key}", content={"title": key}, queued_at=now, next_at=now,
        )  # fmt: skip
    Silence.objects.create(
        matchers=['rule="rack-hot"'], author="eva", reason=f"waits for {key}", created_at=now,
        starts_at=now, expires_at=now + timedelta(hours=1),
    )  # fmt: skip


def _runs(one: Marked, playbook: Any) -> None:
    now, key = timezone.now(), one.key("running")
    incident = Incident.objects.filter(scope_kind="rack").latest("pk")
    for kind, name in (("job", one.jobs["running"].name), ("rack", "oslo/A01")):
        run = PlaybookRun.objects.create(
            version=playbook, playbook=playbook.name, scope_kind=kind, scope_name=name,
            state="waiting", why=f"waits for {key}", values={"slowest": key},
            incident_id=incident.pk, started_at=now, started_by="eva",
            deadline=now + timedelta(hours=1),
        )  # fmt: skip
        StepRun.objects.create(
            run=run, path="0", step="stop", kind="restrict", state="done", entered_at=now,
            note=f"for {key}",
        )  # fmt: skip
        for scope_kind, scope_name in (("job", one.jobs["running"].name), ("rack", "oslo/A01")):
            PlaybookDirective.objects.create(
                key=f"{run.key('0')}/{scope_kind}", run=run, kind="checkpoint",
                scope_kind=scope_kind, scope_name=scope_name, arguments={"of": key},
                issued_at=now, expires_at=now + timedelta(hours=1), note=f"for {key}",
                ledger=[["issued", 0, key]],
            )  # fmt: skip


def _learned(one: Marked, slo: Any) -> None:
    now = timezone.now()
    for sort in SORTS:
        SloJudgment.objects.create(
            slo=slo, event=one.key(sort), is_good=sort == "queued", at=now, clock_s=60,
            limit_s=600, job=one.jobs[sort].name, phase=one.phase,
            job_class="high-density-training", project=one.project.name,
        )  # fmt: skip
    image = one.image
    DrawProfile.objects.create(
        project=one.project, image=image, model="H100", attempts=3, seconds=_READ, updated_at=now
    )
    attempt = Attempt.objects.filter(phase__job=one.jobs["running"]).latest("pk")
    Draw.objects.create(
        attempt=attempt, project=one.project, image=image, model="H100", seconds=_READ,
        p99_w=[500.0], read_s=[60.0], seen_at=now,
    )  # fmt: skip
    StartForecast.objects.create(
        phase=one.jobs["queued"].phases.get(), made_at=now, gpus=1, drawn_s=[40, 60, 80],
        p10_s=30, p50_s=60, p90_s=90,
    )  # fmt: skip
