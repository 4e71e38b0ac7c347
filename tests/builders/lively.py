"""A fleet with something of everything, for what looks at all pages and all endpoints."""

from __future__ import annotations

import time
from datetime import timedelta

from django.test import Client
from django.utils import timezone

from accounts import audit, password_links
from accounts.models import ApiToken, User
from accounts.roles import Capability, Role
from admission.core.energy.closing import Basis
from admission.core.energy.rates import MJ_PER_KWH
from admission.energy.models import ClosedHour, ProjectHour, SiteHour
from admission.goodput.models import HourSteps, HourWait
from admission.jobs.models import Project
from fleet import snapshot
from fleet.models import Gpu, Node
from policies.incidents.models import Delivery, Incident, NotificationChannel, Silence
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.rollouts.following import ROLLOUTS
from policies.rules.machine import Phase
from policies.scopes import Scope, ScopeKind
from telemetry.faults.models import EccEvent
from telemetry.lemons.models import LemonFinding
from telemetry.models import ThrottleEvent, XidEvent
from telemetry.throttle.rules import Severity
from telemetry.versions.models import NodeVersions
from tests.builders.accounted import last_hour, write_account
from tests.builders.accounts import make_user
from tests.builders.documents import put_in_force
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import make_lively_queue
from tests.builders.policies import (
    make_episode,
    make_playbook,
    make_replay,
    make_rule,
    make_run,
    open_incident,
    rule_text,
    set_phases,
)
from tests.builders.rollouts import DRIVER, make_held
from tests.builders.slos import make_judged, make_sampled, make_slo


def make_lively(*, age_s: float = 0.0) -> SmallFleet:
    """A fleet with something of everything: over, throttling, stale, never heard, failing.

    All readings, and the last cycle, are as old as ``age_s``.
    """
    small = small_fleet()
    snapshot.invalidate()
    heard = [n for n in small.nodes if n not in small.nodes_of("oslo/B03")]
    silent = small.nodes_of("oslo/B02") + small.nodes_of("oslo/B01")[:1]
    now = time.time() - age_s
    small.report(at=now - 300, only=heard)
    small.report(
        at=now,
        only=[n for n in heard if n not in silent],
        temp_c=lambda node, gpu: 40.0 + 12 * gpu + (15 if node.startswith("oslo-a01") else 0),
        throttle=lambda node, gpu: 0x24 if gpu == 3 and "-a0" in node else 0,
        links={"oslo/A01/uplink": 6e10},
        link_classes={"checkpoint": 4e10, "collective": 1.5e10},
    )
    make_failing(small.gpu("oslo-a01-n1"))
    make_lively_records(age_s=age_s)
    return small


def make_lively_records(*, age_s: float = 0.0) -> None:
    """Have a fleet with the site oslo have something of everything but readings."""
    make_restricted()
    make_ruled()
    make_lively_queue(ago_s=1.0 + age_s)
    make_promised()
    make_metered()
    make_accounted()
    make_held(put_in_force(ROLLOUTS, DRIVER))
    make_drifted()
    make_notified()
    make_staffed()


def make_staffed() -> None:
    """Have a user with a long name and all that one may have, one with a link, and one gone."""
    eva = make_user(Role.ML_USER, username="w" * 150)
    User.objects.filter(pk=eva.pk).update(first_name="e" * 150, email=f"{'e' * 64}@example.com")
    for project in Project.objects.all():
        project.members.add(eva)
    ApiToken.issue(eva, "n" * 100, scope=list(Capability)[:3])
    Client(headers={"User-Agent": "Mozilla Firefox/140.0 Linux"}).force_login(eva)
    audit.record(eva, "job.submit", "t" * 300)
    ada = make_user(username="ada")
    ada.set_unusable_password()
    ada.save()
    password_links.make(eva, ada)
    make_user(Role.RESPONDER, username="rita", is_active=False)


def make_drifted() -> None:
    """Have one node run another driver than the rest."""
    now, nodes = timezone.now(), Node.objects.order_by("name")
    NodeVersions.objects.bulk_create(
        NodeVersions(
            node=node, driver="580.95.05" if number else "570.133.20", vbios="96.00.A5.00.01",
            told_at=now, changed_at=now,
        )
        for number, node in enumerate(nodes)
    )  # fmt: skip


def make_restricted() -> None:
    """Have restrictions be in force, looser than another, held, and over."""
    now, oslo = timezone.now(), Scope(ScopeKind.SITE, "oslo")
    rack = Scope(ScopeKind.RACK, "oslo/A01")
    cap, drain = RestrictionKind.POWER_CAP_W, RestrictionKind.DRAIN
    wanted = (
        (cap, rack, 560.0, "rule:" + "w" * 190), (cap, rack, 600.0, "user:eva"),
        (drain, oslo, None, "rule:feed-loss"), (drain, rack, None, "user:anna"),
    )  # fmt: skip
    store.apply(
        (
            Wanted(kind, scope, value, "x" * 200, owner, "cause", now + timedelta(hours=1))
            for kind, scope, value, owner in wanted
        ),
        now=now,
    )
    store.release("user:anna", now=now, by="anna", why="mended")


def make_ruled() -> None:
    """Have a rule fire and be replayed, and an incident with a run that asks something."""
    version = make_rule()
    set_phases(version, {"oslo/A01": Phase.FIRING, "oslo/A02": Phase.PENDING})
    make_episode(version)
    draft = make_rule(text=rule_text(above=85.0), to="draft")
    earlier = timezone.now() - timedelta(minutes=1)
    make_replay(draft, state="running", done_s=1_500.0, result=None, created_at=earlier)
    make_replay(draft)
    open_incident(rule="x" * 200, summary="y" * 300)
    incident = open_incident("rack oslo/A01", "rack oslo/A02")
    make_run(make_playbook(), incident)
    now = timezone.now()
    Silence.objects.create(
        matchers=['rule="rack-power"', f'site=~"{"z" * 180}"'], author="w" * 150, reason="v" * 400,
        created_at=now, starts_at=now, expires_at=now + timedelta(hours=2),
    )  # fmt: skip


def make_promised() -> None:
    """Have a promise be kept, and one be broken of jobs with long names."""
    make_judged(make_slo(), good=30, bad=1)
    make_judged(make_slo("s" * 100), good=2, bad=60, project="p" * 60)
    make_sampled(30, oslo=0.5, bergen=0.1)


def make_metered() -> None:
    """Have the last hour be closed at two sites, for a project and one with a long name."""
    now, hour = timezone.now(), last_hour()
    kwh = MJ_PER_KWH
    ClosedHour.objects.create(hour=hour, closed_at=now)
    for site, basis in (("oslo", Basis.MEASURED), ("bergen", Basis.NONE)):
        SiteHour.objects.create(
            hour=hour, site=site, jobs_mj=41 * kwh, idle_mj=7 * kwh, unmanaged_mj=kwh,
            residual_mj=-kwh // 2, bridged_mj=kwh, gpu_ms=10, covered_ms=9, it_mj=40 * kwh,
            overhead_mj=8 * kwh if basis else 0, by_difference_mj=0, basis=basis,
            it_metered=True, facility_metered=bool(basis), price_per_kwh=0.12,
            carbon_g_per_kwh=28.0 if basis else None,
        )  # fmt: skip
        for project in ("vision", "p" * 60):
            ProjectHour.objects.create(
                hour=hour, site=site, project=project, gpu_mj=15 * kwh, host_mj=3 * kwh,
                shared_mj=kwh // 5, overhead_mj=2 * kwh, gpu_ms=90_000_000,
            )  # fmt: skip


def make_accounted() -> None:
    """Have the last hour be accounted for at two sites, with what waited and what was made."""
    hour = last_hour()
    for site, project in (("oslo", "vision"), ("bergen", "p" * 60)):
        write_account(
            hour, project, site, productive=2e5, data_wait=3e4, busy=6e4, starting=4e3,
            throttled_sw_thermal_unexpected=9e3,
        )  # fmt: skip
        write_account(hour, site=site, free=9e4, silent=4e3, drained=1e4)
        HourSteps.objects.create(
            hour=hour, project=project, job_class="batch", moved=4e4, repeated=300.0, missed=2e3
        )
    for reason in ("GpuShortage", "RackPowerHeadroom", ""):
        HourWait.objects.create(
            hour=hour, project="vision", job_class="batch", reason=reason, demand_us=9 * 10**10,
            wanted_us=3 * 10**10,
        )  # fmt: skip


def make_failing(gpu: Gpu) -> None:
    """Have a GPU be a lemon, and meet all that goes wrong with one."""
    now = timezone.now()
    at = now - timedelta(minutes=5)
    LemonFinding.objects.create(
        gpu=gpu, metric="hot_core", since=at, seen_at=now, score=7.5, own=84.0, peers_median=63.0,
        peers=31, among="rack",
    )  # fmt: skip
    for severity in Severity:
        ThrottleEvent.objects.create(
            gpu=gpu, cause=1 << (severity + 4), severity=severity, opened_at=at, updated_at=now,
            observed_s=300, throttled_s=60, usual_mhz=1800, lost_mhz_s=9000, energy_j=9e5,
        )  # fmt: skip
    XidEvent.objects.create(node=gpu.node, gpu=gpu, ts=at, xid=79, text="NVRM: " + "x" * 400)
    EccEvent.objects.create(gpu=gpu, since=at, at=now, count=1, total=1)


def make_notified() -> None:
    """Have a channel that was told, one that fails, and one that is switched off."""
    now, incident = timezone.now(), Incident.objects.latest("pk")
    mail = NotificationChannel.objects.create(
        name="oncall-mail", kind="email", target="oncall@example.com, night@example.com"
    )
    pager = NotificationChannel.objects.create(
        name="w" * 100, kind="webhook", target="https://hooks.example.com/T0/B0/key",
        secret="signs", matchers=['site="oslo"', 'rule=~"feed-.*"'], send_resolved=False,
        failures=3, last_error="the answer is 503: overloaded",
    )  # fmt: skip
    NotificationChannel.objects.create(name="old", kind="pagerduty", secret="key", enabled=False)
    for channel, state, error in ((mail, "sent", ""), (pager, "queued", pager.last_error)):
        Delivery.objects.create(
            channel=channel, incident=incident, key=f"k-{channel.pk}", event="opened", state=state,
            subject=incident.title, attempts=3, queued_at=now, next_at=now + timedelta(hours=1),
            error=error,
        )  # fmt: skip
