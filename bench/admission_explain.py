"""Explanations through the service: ``GET /api/v1/jobs/NAME/explain`` of jobs that wait, cold.

A fleet is full, and jobs wait for it, written to the tables as a submission writes them. Each
question is about another job and comes at a random time beside cycles, so that for most the
decision is one that nobody has asked before. What is measured is what a client sees: web process,
Valkey, the worker that decided, and back.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import json
import os
import random
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import urllib3

from bench import report
from bench.admission_service import ENVIRONMENT, prepare_fleet, prepare_projects, readings
from bench.stack import Stack

GPUS = 100_000
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
QUEUES = (1_000, 50_000)
ASKED = 80
#: Between two questions, s, at most.
_PAUSE_S = 1.5
_LIMIT_S = 300.0
NOTES = {
    "explain_http_1000_p95_ms": "one of 1,000 that wait; target 50",
    "explain_http_50000_p95_ms": "one of 50,000; target 200",
}
_SEED = 16


def _queue(stack: Stack, token: str, first: int, last: int) -> None:
    """Have the jobs ``first`` up to ``last`` wait, as copies of one that the API took."""
    from admission.jobs.models import Job, Phase

    dice = random.Random(first)
    template = _submitted(stack, token, f"template-{first}")
    phase = template.phases.get()
    made = Job.objects.bulk_create(
        (
            Job(
                name=f"waits-{number}", project=template.project, job_class=template.job_class,
                priority=template.priority, spec=template.spec,
                spec_version=template.spec_version, submitted_by=f"bench-ml-{number % 30}",
                submitted_at=datetime.now(UTC) - timedelta(seconds=dice.uniform(0.0, 7200.0)),
            )
            for number in range(first, last)
        ),
        batch_size=5_000,
    )  # fmt: skip
    Phase.objects.bulk_create(
        (_phase(job, phase, dice.choice(SIZES), dice) for job in made), batch_size=5_000
    )


def _phase(job: Any, template: Any, gpus: int, dice: random.Random) -> Any:
    from admission.jobs.models import Phase

    asked = {
        "key": f"{job.name}/{template.name}", "job": job.name, "gpus": gpus, "min_gpus": gpus,
        "submitted_at": job.submitted_at.timestamp(),
        "walltime_s": dice.choice((1800.0, 7200.0, 28800.0, 86400.0)),
        "gpu_peak_w": dice.choice((400.0, 500.0, 600.0, 700.0)),
    }  # fmt: skip
    return Phase(
        job=job, name=template.name, index=0, gpus=gpus, needs=[], state=Phase.State.QUEUED,
        request={**template.request, **asked},
    )  # fmt: skip


def _submitted(stack: Stack, token: str, name: str) -> Any:
    from admission.jobs.models import Job

    phase = {
        "name": "train", "gang": {"gpus": 1}, "walltime_s": 7200,
        "power": {"expected_peak_w": 500.0}, "command": ["true"],
    }  # fmt: skip
    spec = {
        "version": 1, "name": name, "project": "bench-0", "class": "low-power-experimentation",
        "phases": [phase],
    }  # fmt: skip
    answer = urllib3.request(
        "POST", f"{stack.url}/api/v1/jobs", body=json.dumps(spec).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )  # fmt: skip
    if answer.status != 201:
        raise RuntimeError(f"{answer.status} {answer.data[:500]!r}")
    return Job.objects.get(name=name)


def _settled() -> None:
    """Wait until two cycles in a row have seen all that wait, and found nothing to start."""
    from admission.jobs.models import Phase
    from admission.queue import queue_status

    end, seen, quiet = time.monotonic() + _LIMIT_S, 0, 0
    while quiet < 2:
        if time.monotonic() > end:
            raise TimeoutError(f"the queue goes on starting jobs after {_LIMIT_S:.0f} s")
        found = queue_status.read()
        if found is not None and found.cycle != seen:
            has_seen_all = found.waiting == Phase.objects.pending().count()
            seen, quiet = found.cycle, quiet + 1 if has_seen_all and not found.admitted else 0
        time.sleep(0.2)


def _asked(stack: Stack, token: str, count: int) -> dict[str, float | int]:
    from admission.jobs.models import Phase

    waits = Phase.objects.pending().order_by("pk").values_list("job__name", flat=True)
    dice, names = random.Random(_SEED), list(waits)
    pool, headers = urllib3.PoolManager(retries=False), {"Authorization": f"Bearer {token}"}
    times_ms, changes = [], 0
    for name in dice.sample(names, ASKED):
        time.sleep(dice.uniform(0.0, _PAUSE_S))
        began = time.perf_counter()
        answer = pool.request("GET", f"{stack.url}/api/v1/jobs/{name}/explain", headers=headers)
        took_ms = 1000.0 * (time.perf_counter() - began)
        if answer.status != 200:
            raise RuntimeError(f"{name}: {answer.status} {answer.data[:500]!r}")
        for phase in answer.json()["phases"]:  # none where it has begun since
            times_ms.append(took_ms)
            changes += len(phase["counterfactuals"])
    return {
        f"explain_http_{count}_ms": report.percentile(times_ms, 0.5),
        f"explain_http_{count}_p95_ms": report.percentile(times_ms, 0.95),
        f"explain_http_{count}_worst_ms": max(times_ms),
        f"explain_http_{count}_waiting": len(names),
        f"explain_http_{count}_changes": changes,
    }


def measure(stack: Stack) -> dict[str, float | int]:
    """Have 1,000 jobs wait, then 50,000, and ask why. Django is set up on ``stack``."""
    from admission.jobs.models import Phase

    token, figures, first = prepare_projects()[0], dict[str, float | int](), 0
    prepare_fleet(GPUS)
    with readings():
        # So many start that the fleet is full; the others wait.
        for count in QUEUES:
            while (missing := count - Phase.objects.pending().count()) > 0:
                _queue(stack, token, first, first + missing)
                first += missing
                _settled()
            figures |= _asked(stack, token, count)
    return figures


def run() -> None:
    """Measure explanations alone."""
    from bench import django_in
    from bench.stack import running

    os.environ.update(ENVIRONMENT)
    with running() as stack:
        django_in.set_up(stack)
        figures = measure(stack)
    report.show("admission_explain", figures, NOTES)
    print(f"kept in {report.keep('admission_explain', figures)}")


if __name__ == "__main__":
    run()
