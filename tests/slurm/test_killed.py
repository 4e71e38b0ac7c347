"""Processes beside a real Slurm are killed at random for five minutes, under a steady load.

A job comes every other second. What is killed when is drawn from a seed, which is printed: a run
repeats its schedule with ``HEADROOM_FAULT_SEED``. ``slurmctld``, bridge and all of Headroom begin
anew at once; a slurmd stays away for some seconds, longer at times than Slurm waits for it, while
what it ran goes on.

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
from tests.slurm.cluster import SlurmCluster, is_installed, slurm_cluster, wait
from tests.slurm.judging import overlaps
from tests.slurm.whole import Machines, Whole, whole

pytestmark = pytest.mark.slow

MACHINES = Machines(site="hall-a", nodes=16, gpus=4, carried=0.6)
LASTS_S = 300.0
#: Between two blows, s: on average, and at least.
_EVERY_S, _LEAST_S = 8.0, 1.0
_SLURMD_TIMEOUT_S = 10
_VICTIMS = ("slurmctld", "slurmd", "bridge", "web", "worker", "postgres", "valkey")
_SETTLE_S = 900.0
#: Says on which node it lives, each fifth of a second, and when it is done.
_SCRIPT = """\
#!/bin/bash
beats=$1/beats/$SLURM_JOB_NAME.$SLURM_JOB_ID.$SLURMD_NODENAME.$$
for i in $(seq $2); do echo $EPOCHREALTIME >> $beats; sleep 0.2; done
echo $SLURM_JOB_ID >> $1/done/$SLURM_JOB_NAME
"""


@dataclass
class Load:
    """Submits a job every other second, until it is stopped."""

    cluster: SlurmCluster
    draw: random.Random
    submitted: dict[str, str] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        out = self.cluster.folder / "out"
        script = out / "job.sh"
        script.write_text(_SCRIPT)
        for name in ("beats", "done"):
            (out / name).mkdir()
            (out / name).chmod(0o777)
        while not self.stop.wait(2.0):
            name = f"job-{len(self.submitted) + 1:04}"
            gpus, beats = self.draw.choice((1, 1, 2, 4)), self.draw.randint(10, 60)
            said = self.cluster.as_user(
                "sbatch", "--parsable", "--requeue", "--output=/dev/null", f"--job-name={name}",
                f"--gpus-per-node=h100:{gpus}", "--time=5", str(script), str(out), str(beats),
                check=False,
            )  # fmt: skip
            # While slurmctld is away nobody can submit.
            ref = said.strip().split(";")[0]
            if ref.isdecimal():
                self.submitted[name] = ref


@dataclass
class Assault:
    """Kills one process after the other, and writes down which."""

    site: Whole
    draw: random.Random
    hits: list[str] = field(default_factory=list)
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


def test_killed_at_random_for_five_minutes_none_is_lost_and_none_runs_twice(folder: Path) -> None:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    seed = int(os.environ.get("HEADROOM_FAULT_SEED") or secrets.randbelow(1_000_000))
    print(f"HEADROOM_FAULT_SEED={seed}")
    with (
        running() as stack,
        slurm_cluster(
            folder, MACHINES.names, gpus=MACHINES.gpus, slurmd_timeout_s=_SLURMD_TIMEOUT_S
        ) as cluster,
        whole(stack, stack.credential("operator_token"), [(MACHINES, cluster)]) as (site,),
    ):
        load, assault = Load(cluster, random.Random(seed)), Assault(site, random.Random(seed + 1))
        submitting = threading.Thread(target=load.run)
        submitting.start()
        try:
            assault.run()
        finally:
            load.stop.set()
            submitting.join()
        print("\n".join(assault.hits))
        stack.wait_ready()
        with suppress(TimeoutError):
            wait(lambda: not _waits_or_runs(cluster), _SETTLE_S, every_s=2.0)
        left = _waits_or_runs(cluster)
        out = cluster.folder / "out"
        done = {path.name: path.read_text().split() for path in (out / "done").iterdir()}
        known = {str(row["name"]): row for row in cluster.slurm.jobs()}
        spans = _spans(out / "beats")
        with suppress(TimeoutError):
            wait(lambda: not _ours_open(stack), 60.0, every_s=1.0)
        ours = _ours_open(stack)
    forgotten = sorted(load.submitted.keys() - known.keys() - done.keys())
    lost = sorted(load.submitted.keys() - done.keys() - set(forgotten))
    again = sum(len(each) > 1 for each in spans.values())
    print(
        f"{len(load.submitted)} jobs, {len(done)} done, {again} begun more than once,"
        f" {len(forgotten)} forgotten by slurmctld, {len(assault.hits)} blows"
    )
    assert left == []
    assert ours == []
    assert {name: str(known[name]["job_state"]) for name in lost} == {}
    assert overlaps(spans) == []
    assert len(done) > 0.5 * len(load.submitted)


def _spans(folder: Path) -> dict[str, list[tuple[float, float]]]:
    """Return when each run of each job first and last said that it lives, by name and number."""
    found: dict[str, list[tuple[float, float]]] = {}
    for path in folder.iterdir():
        times = path.read_text().split()
        name, ref, _, _ = path.name.split(".")
        if times:
            found.setdefault(f"{name} {ref}", []).append((float(times[0]), float(times[-1])))
    return found


def _waits_or_runs(cluster: SlurmCluster) -> list[str]:
    said = cluster.run("squeue", "-h", "-o", "%j %T %r", check=False)
    return [line for line in said.splitlines() if line]


def _ours_open(stack: Stack) -> list[str]:
    query = "SELECT name, state FROM admission_jobs_job WHERE ended_at IS NULL ORDER BY 1"
    with psycopg.connect(stack.environment["DATABASE_URL"]) as database:
        return [" ".join(row) for row in database.execute(query).fetchall()]
