"""1,000 jobs of Philly in time-lapse, on 64 nodes that can be fed at 60 % of their peak.

The rule was written down before the first run:

- The jobs are a thousand in a row, from a whole multiple of a thousand lines of the trace: those
  that ask for the most GPUs on average, since gangs are what is hard to place.
- They come in the trace's order and at its gaps, all within five minutes. So many seconds of work
  are one that what they ask for fills the GPUs that can be fed for five minutes; none works for
  longer than a minute, nor for less than half a second.
- Every rack, both feeds and the site can carry 60 % of the peak of their nodes. A GPU that a job
  has draws its peak for as long as slurmd has the job there, by its prolog and epilog: more than
  any real job draws.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psycopg
import pytest

from bench.stack import Stack, running
from lab.traces import JobTrace
from lab.traces.philly import load
from tests.data_sets import data_set
from tests.slurm.cluster import SlurmCluster, is_installed, slurm_cluster, wait
from tests.slurm.judging import over_budget_s, overlaps, stays
from tests.slurm.whole import Machines, whole

pytestmark = pytest.mark.slow

JOBS = 1_000
MACHINES = Machines(site="hall-a", nodes=64, gpus=8, carried=0.6)
LASTS_S, LONGEST_S, SHORTEST_S = 300.0, 60.0, 0.5
#: A job that has waited for so long has been looked at, s.
_LOOKED_AT_S = 15.0
_SETTLE_S = 1_200.0


@dataclass(frozen=True)
class Submission:
    """One job: when it comes (s from the start), and what it asks for."""

    at_s: float
    nodes: int
    gpus_per_node: int
    works_s: float


def thousand(trace: JobTrace) -> JobTrace:
    """Return the jobs that the rule picks."""
    blocks = range(0, len(trace) - JOBS + 1, JOBS)
    first = max(blocks, key=lambda at: float(trace.gpus[at : at + JOBS].mean()))
    return trace.take(np.arange(first, first + JOBS))


def submissions(jobs: JobTrace) -> list[Submission]:
    """Return the jobs in time-lapse."""
    idle_w = MACHINES.nodes * MACHINES.draws_w(0)
    fed = (MACHINES.site_w - idle_w) / (MACHINES.draws_w(1) - MACHINES.draws_w(0))
    slower = _solved(jobs, fed * LASTS_S)
    works_s = np.clip(jobs.runs_s * slower, SHORTEST_S, LONGEST_S)
    span_s = jobs.submit_s[-1] - jobs.submit_s[0]
    at_s = (jobs.submit_s - jobs.submit_s[0]) / span_s * LASTS_S
    nodes = -(-jobs.gpus // MACHINES.gpus)
    each = -(-jobs.gpus // nodes)
    return [
        Submission(float(at), int(count), int(gpus), float(works))
        for at, count, gpus, works in zip(at_s, nodes, each, works_s, strict=True)
    ]


def _solved(jobs: JobTrace, gpu_s: float) -> float:
    """Return by how much time is shortened, so that all work together is ``gpu_s``."""
    low, high = 1e-9, 1.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        clipped = np.clip(jobs.runs_s * middle, SHORTEST_S, LONGEST_S)
        if float((clipped * jobs.gpus).sum()) > gpu_s:
            high = middle
        else:
            low = middle
    return low


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
_SCRIPT = """\
#!/bin/bash
sleep $2
echo $SLURM_JOB_ID >> $1
"""


def _submit(cluster: SlurmCluster, jobs: list[Submission], ended: Path) -> None:
    script = cluster.folder / "out" / "job.sh"
    script.write_text(_SCRIPT)
    start = time.monotonic()
    for each in jobs:
        time.sleep(max(0.0, start + each.at_s - time.monotonic()))
        cluster.as_user(
            "sbatch", "--parsable", "--requeue", "--output=/dev/null", f"--nodes={each.nodes}",
            f"--gpus-per-node=h100:{each.gpus_per_node}",
            f"--time={max(int(2 * each.works_s / 60) + 1, 1)}",
            str(script), str(ended), f"{each.works_s:.2f}",
        )  # fmt: skip


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
        ended = cluster.folder / "out" / "ended"
        ended.touch()
        ended.chmod(0o666)
        began = time.monotonic()
        _submit(cluster, jobs, ended)
        wait(lambda: _open_jobs(cluster) == 0, _SETTLE_S, every_s=2.0)
        took_s = time.monotonic() - began
        watch.stop.set()
        states = Counter(
            re.findall(r"JobState=(\w+)", (cluster.folder / "jobcomp.log").read_text())
        )
        found = stays(cluster.folder / "times")
        with suppress(TimeoutError):
            wait(lambda: _ours(stack) == {"succeeded": JOBS}, 60.0, every_s=1.0)
        ours, evicted = _ours(stack), _evicted(stack)
    spans: dict[str, list[tuple[float, float]]] = {}
    for each in found:
        spans.setdefault(f"{each.job} on {each.node}", []).append((each.began, each.ended))
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
    assert overlaps(spans) == []
    assert sorted(ended_lines := ended.read_text().split()) == sorted(set(ended_lines))
    assert len(ended_lines) == JOBS


def _open_jobs(cluster: SlurmCluster) -> int:
    return len(cluster.run("squeue", "-h", "-o", "%i", check=False).split())


def _ours(stack: Stack) -> dict[str, int]:
    with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
        return dict(database.execute(_STATES).fetchall())
