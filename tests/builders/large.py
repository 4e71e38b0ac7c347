"""A fleet of 100,000 GPUs at work, with thousands of jobs: what pages have to hold.

Rows are made by the thousand and readings go to the live frame at once, which takes seconds. By the
way that readings and jobs really come it would take many minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
from django.db.models import Model
from django.utils import timezone

from admission.core.reasons import ReasonToken
from admission.jobs.models import Attempt, Job, Phase
from fleet import snapshot
from fleet.models import Gpu
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope, ScopeKind
from telemetry.frame import FrameWriter
from telemetry.lemons.models import LemonFinding
from telemetry.live_frame import KINDS
from telemetry.models import Agent, ThrottleEvent, XidEvent
from telemetry.samples import NULL_INT, Rows
from telemetry.throttle.rules import Severity
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import (
    make_attempt,
    make_job,
    make_pending_status,
    make_project,
    make_reason,
    put_up,
)
from tests.builders.lively import make_failing, make_lively_records
from tests.builders.policies import open_incident

__all__ = ["make_large", "read_all"]

T = TypeVar("T", bound=Model)

SITES = ("bergen", "oslo", *(f"site-{number:02}" for number in range(1, 19)))
WAITING, RUNNING, ENDED, PROJECTS = 5_000, 3_000, 2_000, 100
#: GPUs that throttle at once, as seen of a fleet of that size.
THROTTLED = 1_513
INCIDENTS, RACKS_HOT, CAPPED, LEMONS, XIDS = 120, 100, 500, 300, 3_000
_AT_ONCE = 2_000


def make_large() -> SmallFleet:
    """Make 20 sites of 125 racks, 12,500 nodes and 100,000 GPUs, and something of everything."""
    made = small_fleet(
        sites=SITES, rows="ABCDE", racks_per_row=25, nodes_per_rack=5, gpus_per_node=8,
        budget_w=36_000.0,
    )  # fmt: skip
    snapshot.invalidate()
    make_failing(made.gpu("oslo-a01-n1"))
    make_lively_records()
    _make_enrolled(made)
    _make_crowd(made)
    _make_throttled(made)
    _make_restricted(made)
    _make_incidents(made)
    read_all()
    return made


def read_all(at: float | None = None) -> None:
    """Have all GPUs, hosts and links be read once, a twentieth of the GPUs an hour ago."""
    fleet, now = snapshot.fresh(), time.time() if at is None else at
    rng = np.random.default_rng(7)
    gpus, hosts, links = len(fleet.gpus.ids), len(fleet.nodes.ids), len(fleet.links.ids)
    _read("gpu", fleet.gpus.ids, now - 3600.0 * (rng.random(gpus) < 0.05), {
        "power_w": rng.uniform(80, 700, gpus), "power_limit_w": np.full(gpus, 700.0),
        "temp_c": rng.uniform(35, 86, gpus), "sm_mhz": rng.uniform(1200, 1980, gpus),
        "throttle": rng.choice([0, 0, 0, 4], gpus),
    })  # fmt: skip
    _read("host", fleet.nodes.ids, np.full(hosts, now), {
        "power_w": rng.uniform(900, 1900, hosts)
    })  # fmt: skip
    _read("link", fleet.links.ids, np.full(links, now), {
        "tx_bytes_per_s": rng.uniform(0, 1e11, links), "rx_bytes_per_s": rng.uniform(0, 9e10, links)
    })  # fmt: skip


def _read(kind: str, ids: Any, ts: Any, values: dict[str, Any]) -> None:
    table = KINDS[kind]
    columns: dict[str, Any] = {
        c.name: np.full(len(ids), np.nan if c.is_float else NULL_INT, c.dtype)
        for c in table.columns
    }
    columns |= {"ts": ts, table.key: ids, **values}
    writer = FrameWriter(0)
    writer.update(kind, Rows(table, columns), float(np.max(ts, initial=0.0)))
    writer.flush()


def _make_enrolled(made: SmallFleet) -> None:
    """Enroll an agent for each node; every hundredth is silent."""
    now = timezone.now()
    nodes = list(made.nodes.values())
    agents = Agent.objects.bulk_create(
        (
            Agent(
                name=f"agent-of-{node.name}", digest=f"{at:032}".encode(), hint="hra",
                last_seen_at=now - timedelta(hours=1 if at % 100 == 0 else 0),
            )
            for at, node in enumerate(nodes)
        ),
        batch_size=_AT_ONCE,
    )  # fmt: skip
    through = Agent.nodes.through
    through.objects.bulk_create(
        (
            through(agent_id=agent.pk, node_id=node.pk)
            for agent, node in zip(agents, nodes, strict=True)
        ),
        batch_size=_AT_ONCE,
    )


# --- Jobs ----------------------------------------------------------------------------------------


def _make_crowd(made: SmallFleet) -> None:
    """Have thousands of jobs wait, run and be over, each a copy of one that is made by hand."""
    projects = [make_project(f"team-{number:02}", gpu_quota=2_000) for number in range(PROJECTS)]
    waiting = _copies(make_job("crowd-waiting", project="team-00"), WAITING, projects)
    running = _copies(
        make_job("crowd-running", project="team-00", state="running"), RUNNING, projects
    )
    ended = _copies(make_job("crowd-ended", project="team-00", state="succeeded"), ENDED, projects)
    Job.objects.filter(pk__in=[each.job_id for each in ended]).update(
        state=Job.State.SUCCEEDED, ended_at=timezone.now()
    )
    names = [name for name in made.nodes if not name.startswith("oslo-")]
    held = make_attempt(running[0], {names[0]: range(8)}, racks=["bergen/A01"])
    over = make_attempt(
        ended[0], {names[0]: range(8)}, racks=["bergen/A01"], state=Attempt.State.ENDED,
        outcome="succeeded", ended_at=timezone.now(),
    )  # fmt: skip
    _place(held, running[1:], names[1:], made)
    _place(over, ended[1:], names[1:], made)
    _put_up(waiting)


def _copies(job: Job, count: int, projects: Sequence[Any]) -> list[Phase]:
    """Return the phase of ``job`` and of ``count - 1`` jobs like it, oldest first."""
    (phase,) = job.phases.all()
    jobs = [
        _like(
            job, name=f"{job.name}-{number:05}", project_id=projects[number % len(projects)].pk,
            submitted_at=job.submitted_at + timedelta(milliseconds=400 * number),
        )
        for number in range(1, count)
    ]  # fmt: skip
    Job.objects.bulk_create(jobs, batch_size=_AT_ONCE)
    phases = [_like(phase, job=made, queued_at=made.submitted_at) for made in jobs]
    Phase.objects.bulk_create(phases, batch_size=_AT_ONCE)
    return [phase, *phases]


def _like(row: T, **given: Any) -> T:
    """Return a row as another, not stored yet, but for what is given."""
    fields = {each.attname: getattr(row, each.attname) for each in row._meta.fields}
    for name in ("id", *(f"{name}_id" for name in given)):
        fields.pop(name, None)
    return type(row)(**{**fields, **given})


def _place(like: Attempt, phases: Iterable[Phase], names: Iterable[str], made: SmallFleet) -> None:
    racks = {rack.pk: path for path, rack in made.racks.items()}
    attempts = []
    for phase, name in zip(phases, names, strict=False):
        rack = racks[made.nodes[name].rack_id]
        placement = {
            **like.placement, "nodes": [name], "gpus": {name: list(range(8))}, "racks": [rack],
            "peak_w": {name: 5_200.0}, "sites": [rack.partition("/")[0]],
        }  # fmt: skip
        attempts.append(_like(like, phase=phase, key=f"{phase.key}/1", placement=placement))
    Attempt.objects.bulk_create(attempts, batch_size=_AT_ONCE)


def _put_up(waiting: Sequence[Phase]) -> None:
    """Have the last cycle tell why each waits, after what it told before."""
    kinds = [
        make_reason(),
        make_reason(
            ReasonToken.GPU_SHORTAGE, unit="GPUs", need=64, have=20, scope=None,
            sentence="needs 64 GPUs; 20 are free where it may go: short 44",
        ),
    ]  # fmt: skip
    told = {
        f"{phase.job.name}/{phase.name}": make_pending_status(at + 1, kinds[at % len(kinds)])
        for at, phase in enumerate(waiting)
    }
    put_up(told, running=RUNNING)


# --- Trouble -------------------------------------------------------------------------------------


def _make_throttled(made: SmallFleet) -> None:
    now = timezone.now()
    of_oslo = Gpu.objects.filter(node__rack__site__name="oslo", throttle_events=None)
    gpus = list(of_oslo.order_by("pk")[:THROTTLED])
    causes = (ThrottleEvent.Cause.SW_POWER_CAP, ThrottleEvent.Cause.SW_THERMAL)
    ThrottleEvent.objects.bulk_create(
        (
            ThrottleEvent(
                gpu=gpu, cause=causes[at % 3 == 0], severity=Severity.WARNING,
                expected=at % 3 != 0, opened_at=now - timedelta(minutes=5), updated_at=now,
                observed_s=300, throttled_s=90, usual_mhz=1800, lost_mhz_s=9000, energy_j=9e5,
            )
            for at, gpu in enumerate(gpus)
        ),
        batch_size=_AT_ONCE,
    )  # fmt: skip
    LemonFinding.objects.bulk_create(
        LemonFinding(
            gpu=gpu, metric="hot_core", since=now - timedelta(hours=1), seen_at=now,
            score=4.0 + at / 100, own=84.0, peers_median=63.0, peers=31, among="rack",
        )
        for at, gpu in enumerate(gpus[8 : 8 + LEMONS])
    )  # fmt: skip
    XidEvent.objects.bulk_create(
        (
            XidEvent(
                node_id=gpu.node_id,
                gpu=gpu,
                ts=now - timedelta(minutes=at % 1440),
                xid=79,
                text="NVRM: Xid 79",
            )
            for at, gpu in enumerate(_around(gpus, XIDS))
        ),
        batch_size=_AT_ONCE,
    )


def _around(things: Sequence[Any], count: int) -> Iterator[Any]:
    return (things[at % len(things)] for at in range(count))


def _make_restricted(made: SmallFleet) -> None:
    now = timezone.now()
    store.apply(
        (
            Wanted(
                RestrictionKind.POWER_CAP_W, Scope(ScopeKind.RACK, path), 560.0,
                "The feed is short", "rule:feed-short", "cause", now + timedelta(hours=1),
            )
            for path in list(made.racks)[:CAPPED]
        ),
        now=now,
    )  # fmt: skip


def _make_incidents(made: SmallFleet) -> None:
    """Open one incident of a hundred racks of a site, and a hundred of one each."""
    racks = [f"rack {path}" for path in made.racks]
    open_incident(*racks[-RACKS_HOT:], rule="rack-heat")
    for at, rack in enumerate(racks[:INCIDENTS]):
        open_incident(rack, rule=f"rule-{at:03}")
