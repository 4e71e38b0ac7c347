"""Philly's thousand beside a real Slurm, while processes are killed at random for five minutes.

What is killed when is drawn from a seed, which is printed: a run repeats its schedule with
``HEADROOM_FAULT_SEED``. ``slurmctld``, bridge and all of Headroom begin anew at once; a slurmd
stays away for some seconds, longer at times than Slurm waits for it, while what it ran goes on.

What slurmctld had not written to its disk when it was killed, it forgets: jobs too. These nobody
can run; they are counted, and not looked for.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
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
    LASTS_S,
    MACHINES,
    Submitting,
    ended_as,
    runs_of,
    submissions,
    thousand,
)
from tests.slurm.whole import Whole, whole

pytestmark = pytest.mark.slow

#: Between two blows, s: on average, and at least.
_EVERY_S, _LEAST_S = 8.0, 1.0
_SLURMD_TIMEOUT_S = 10
#: slurmctld writes down its jobs each few seconds.
_WRITES_WITHIN_S = 15.0
_VICTIMS = ("slurmctld", "slurmd", "bridge", "web", "worker", "postgres", "valkey")
_SETTLE_S = 1_800.0


@dataclass
class Assault:
    """Kills one process after the other, and writes down which."""

    site: Whole
    draw: random.Random
    hits: list[str] = field(default_factory=list)
    #: when slurmctld was killed, monotonic s
    _deaths: list[float] = field(default_factory=list)
    _away: list[threading.Timer] = field(default_factory=list)

    def run(self) -> None:
        start = time.monotonic()
        victims: list[str] = []
        while time.monotonic() - start < LASTS_S:
            time.sleep(max(self.draw.expovariate(1 / _EVERY_S), _LEAST_S))
            victims = victims or self.draw.sample(_VICTIMS, len(_VICTIMS))
            self._strike(victims.pop(), time.monotonic() - start)
        for timer in self._away:
            timer.join()

    def _strike(self, victim: str, at_s: float) -> None:
        cluster = self.site.cluster
        match victim:
            case "slurmctld":
                cluster.kill("slurmctld")
                self._deaths.append(time.monotonic())
                cluster.start_slurmctld()
            case "slurmd":
                node = self.draw.choice(MACHINES.names)
                away_s = self.draw.uniform(1.0, 2.0 * _SLURMD_TIMEOUT_S)
                victim = f"slurmd of {node} for {away_s:.0f} s"
                if f"slurmd {node}" in cluster.processes:
                    cluster.kill(f"slurmd {node}")
                    self._away.append(threading.Timer(away_s, cluster.start_slurmd, [node]))
                    self._away[-1].start()
            case "bridge":
                self.site.kill_bridge()
                self.site.start_bridge()
            case service:
                self.site.stack.kill(service)
        self.hits.append(f"{at_s:.1f} s {victim}")

    def is_excuse(self, taken: float) -> bool:
        """Say whether slurmctld died before it need have written down what it took then."""
        return any(taken <= death <= taken + _WRITES_WITHIN_S for death in self._deaths)


def test_killed_at_random_for_five_minutes_none_is_lost_and_none_runs_twice(folder: Path) -> None:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    seed = int(os.environ.get("HEADROOM_FAULT_SEED") or secrets.randbelow(1_000_000))
    print(f"HEADROOM_FAULT_SEED={seed}")
    jobs = submissions(thousand(load(data_set("philly-jobs"))))
    with (
        running() as stack,
        slurm_cluster(
            folder, MACHINES.names, gpus=MACHINES.gpus, slurmd_timeout_s=_SLURMD_TIMEOUT_S
        ) as cluster,
        whole(stack, stack.credential("operator_token"), [(MACHINES, cluster)]) as (site,),
    ):
        submitting, assault = Submitting(cluster, jobs), Assault(site, random.Random(seed))
        thread = threading.Thread(target=submitting.run)
        thread.start()
        try:
            assault.run()
        finally:
            thread.join()
        print("\n".join(assault.hits))
        stack.wait_ready()
        with suppress(TimeoutError):
            wait(lambda: not _waits_or_runs(cluster), _SETTLE_S, every_s=2.0)
        left = _waits_or_runs(cluster)
        done, runs = submitting.done(), runs_of(cluster)
        states, found = ended_as(cluster), stays(cluster.folder / "times")
        with suppress(TimeoutError):
            wait(lambda: not _ours_open(stack), 60.0, every_s=1.0)
        ours = _ours_open(stack)
    forgotten = sorted(submitting.taken.keys() - states.keys() - done.keys())
    lost = sorted(submitting.taken.keys() - done.keys() - set(forgotten))
    over = {scope: over_s for scope, over_s in over_budget_s(MACHINES, found).items() if over_s}
    again = sum(len(each) > 1 for each in runs.values())
    print(
        f"{len(submitting.taken)} jobs, {len(done)} done, {again} begun more than once,"
        f" {len(forgotten)} forgotten by slurmctld, {len(assault.hits)} blows, over: {over}"
    )
    assert left == []
    assert ours == []
    assert {name: states[name] for name in lost} == {}
    assert [name for name in forgotten if not assault.is_excuse(submitting.taken[name])] == []
    assert overlaps(runs) == []
    assert over == {}
    assert len(done) > 0.9 * len(jobs)


def _waits_or_runs(cluster: SlurmCluster) -> list[str]:
    said = cluster.run("squeue", "-h", "-o", "%j %T %r", check=False)
    return [line for line in said.splitlines() if line]


def _ours_open(stack: Stack) -> list[str]:
    query = "SELECT name, state FROM admission_jobs_job WHERE ended_at IS NULL ORDER BY 1"
    with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
        return [" ".join(row) for row in database.execute(query).fetchall()]
