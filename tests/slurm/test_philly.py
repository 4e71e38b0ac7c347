"""Philly's thousand beside a real Slurm: no budget is broken, and each wait has a reason."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from bench.stack import Stack, running
from lab.traces.philly import load
from tests.data_sets import data_set
from tests.slurm.cluster import SlurmCluster, is_installed, slurm_cluster, wait
from tests.slurm.judging import over_budget_s, overlaps, stays
from tests.slurm.philly import (
    JOBS,
    MACHINES,
    Submitting,
    ended_as,
    runs_of,
    submissions,
    thousand,
)
from tests.slurm.whole import whole

pytestmark = pytest.mark.slow

#: A job that has waited for so long has been looked at, s.
_LOOKED_AT_S = 15.0
_SETTLE_S = 1_200.0


@dataclass
class Watch:
    """Looks at our queue each second, until it is stopped."""

    stack: Stack
    #: of each job that was seen to wait with one, its dominant reason
    reasons: dict[str, str] = field(default_factory=dict)
    seen_s: dict[str, float] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        since: dict[str, float] = {}
        with psycopg.connect(self.stack.environment["DATABASE_URL"], autocommit=True) as database:
            while not self.stop.wait(1.0):
                rows = database.execute(_WAITING).fetchall()
                now = time.monotonic()
                since = {name: since.get(name, now) for name, _ in rows}
                for name, reason in rows:
                    self.seen_s[name] = now - since[name]
                    if reason:
                        self.reasons[name] = reason

    def unexplained(self) -> list[str]:
        """Return the jobs that waited for long and never had a reason."""
        long = {name for name, seen_s in self.seen_s.items() if seen_s > _LOOKED_AT_S}
        return sorted(long - self.reasons.keys())


_WAITING = """
SELECT job.name, phase.reason FROM admission_jobs_phase AS phase
JOIN admission_jobs_job AS job ON job.id = phase.job_id
WHERE phase.state = 'queued'
"""


def _evicted(stack: Stack) -> list[tuple[str, str, str]]:
    """Return the attempts that did not end by themselves: whose, how and why."""
    with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
        return database.execute(_NOT_BY_THEMSELVES).fetchall()


_NOT_BY_THEMSELVES = """
SELECT key, outcome, why FROM admission_jobs_attempt WHERE outcome NOT IN ('', 'succeeded')
"""
_STATES = "SELECT state, count(*) FROM admission_jobs_job GROUP BY 1"


def test_a_thousand_jobs_of_philly_stay_within_60_percent_of_the_power(folder: Path) -> None:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    jobs = submissions(thousand(load(data_set("philly-jobs"))))
    with (
        running() as stack,
        slurm_cluster(folder, MACHINES.names, gpus=MACHINES.gpus) as cluster,
        whole(stack, stack.credential("operator_token"), [(MACHINES, cluster)]),
    ):
        watch = Watch(stack)
        threading.Thread(target=watch.run, daemon=True).start()
        submitting = Submitting(cluster, jobs)
        began = time.monotonic()
        submitting.run()
        wait(lambda: _open_jobs(cluster) == 0, _SETTLE_S, every_s=2.0)
        took_s = time.monotonic() - began
        watch.stop.set()
        states = Counter(itertools.chain.from_iterable(ended_as(cluster).values()))
        found = stays(cluster.folder / "times")
        with suppress(TimeoutError):
            wait(lambda: _ours(stack) == {"succeeded": JOBS}, 60.0, every_s=1.0)
        ours, evicted = _ours(stack), _evicted(stack)
        done, runs = submitting.done(), runs_of(cluster)
    over = over_budget_s(MACHINES, found)
    print(
        f"{JOBS} jobs in {took_s:.0f} s, {sum(over.values()):.3f} s over {len(over)} budgets;"
        f" {len(watch.seen_s)} seen to wait, longest {max(watch.seen_s.values(), default=0):.0f} s;"
        f" reasons {Counter(watch.reasons.values()).most_common()}; {dict(states)}; ours {ours};"
        f" {evicted}"
    )
    assert ours == {"succeeded": JOBS}
    assert {scope: over_s for scope, over_s in over.items() if over_s} == {}
    assert watch.unexplained() == []
    # Slurm writes down those that had to give way as well.
    assert states["COMPLETED"] == JOBS
    assert overlaps(runs) == []
    assert {name: len(ids) for name, ids in done.items()} == dict.fromkeys(submitting.taken, 1)
    assert len(done) == JOBS


def _open_jobs(cluster: SlurmCluster) -> int:
    return len(cluster.run("squeue", "-h", "-o", "%i", check=False).split())


def _ours(stack: Stack) -> dict[str, int]:
    with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
        return dict(database.execute(_STATES).fetchall())
