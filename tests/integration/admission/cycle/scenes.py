"""A small fleet with machines that run jobs, and a queue."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from django.utils import timezone

from admission.cycle.loop import Cycle, cycle_once
from admission.executors.models import Gang, Runner
from admission.jobs.models import Attempt, Job, Phase
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.scopes import Scope
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.jobs import make_job


def machines_of(fleet: SmallFleet, *, at: datetime | None = None) -> None:
    """Have every node be one whose machine runs jobs, and was heard ``at``; None: just now."""
    at = at or datetime.now(UTC)
    Runner.objects.bulk_create(
        [
            Runner(node_id=node.pk, node=name, agent="a", store=f"store-{name}", seen_at=at)
            for name, node in fleet.nodes.items()
        ],
        update_conflicts=True,
        unique_fields=["node_id", "store"],
        update_fields=["seen_at"],
    )


def idle_fleet() -> SmallFleet:
    """Make two racks of two nodes of four idle GPUs; every machine runs jobs."""
    made = small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))
    idle(made)
    return made


def idle(fleet: SmallFleet) -> None:
    """Have nothing run anywhere, and every machine take jobs."""
    fleet.report(power_w=70.0, util=0.0, temp_c=30.0)
    machines_of(fleet)


def queued(name: str, gpus: int = 4, **given: Any) -> Job:
    """Queue a job of one phase that wants ``gpus`` GPUs at 500 W at most."""
    asks = {"gpu_peak_w": 500.0, **given.pop("asks", {})}
    return make_job(name, gpus=gpus, reason="", asks=asks, **given)


def cycle(now: float | None = None) -> Cycle:
    """Do a cycle in which nothing fails."""
    done = cycle_once(time.time() if now is None else now)
    assert done is not None
    assert done.failed == []
    return done


def phase_of(name: str) -> Phase:
    return Phase.objects.get(job__name=name)


def attempts() -> list[str]:
    return list(Attempt.objects.order_by("key").values_list("key", flat=True))


def nodes_of(fleet: SmallFleet) -> list[str]:
    return sorted(fleet.nodes)


def start(name: str) -> None:
    """Have the open attempt of a job run."""
    at = timezone.now()
    Attempt.objects.open().filter(phase__job__name=name).update(state="running", started_at=at)
    Phase.objects.filter(job__name=name, state=Phase.State.STARTING).update(
        state=Phase.State.RUNNING
    )


def end(name: str, state: str) -> None:
    """End the open attempt of a job, as reconciliation does; its phase is then in ``state``."""
    at = timezone.now()
    outcome = "failed" if state == Phase.State.FAILED else "succeeded"
    Attempt.objects.open().filter(phase__job__name=name).update(
        state="ended", outcome=outcome, ended_at=at
    )
    Gang.objects.filter(key__startswith=f"{name}/").delete()
    Phase.objects.filter(job__name=name, state__in=Phase.ACTIVE).update(state=state)


def restrict(kind: RestrictionKind, scope: Scope, value: float | None = None) -> None:
    """Have a restriction be in force for an hour."""
    now = datetime.now(UTC)
    store.apply(
        [
            Wanted(
                kind=kind, scope=scope, value=value, reason="a test", owner="rule:test",
                cause="test", expires_at=now + timedelta(hours=1), most_of_site=1.0,
            )
        ],
        now=now,
    )  # fmt: skip
