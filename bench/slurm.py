"""What Headroom costs beside Slurm: from submission to start of short jobs, with it and without.

1,000 jobs of one GPU are submitted to 64 nodes that have room and power for all of them at once,
twice: five a second, which leaves this machine idle at times, for the delay of a start, and one
after the other as fast as ``sbatch`` answers, for the jobs in a second. Slurm is real, on this
machine, first as it comes and then with Headroom beside it; each job writes down itself when it
starts and ends. Both times Slurm has the same cores, which with Headroom it shares with web,
worker, Postgres and Valkey: on a cluster these are other machines.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import report
from bench.stack import running
from tests.slurm.cluster import SlurmCluster, is_installed, slurm_cluster, wait
from tests.slurm.whole import Machines, Whole, whole

JOBS = 1_000
MACHINES = Machines(site="hall-a", nodes=64, gpus=16)
#: Between two submissions, where the delay is measured, s.
_PACE_S = 0.2
#: How long a job is at work, s.
_WORKS_S = 1.0
_LIMIT_S = 600.0
#: Submits all, one after the other, and writes down before each when.
_SUBMIT = """
for i in $(seq {jobs}); do
    sleep {pace_s}
    echo $EPOCHREALTIME
    sbatch --parsable --gpus-per-node=h100:1 --output=/dev/null {script} {folder} || exit 1
done
"""
_SCRIPT = f"""\
#!/bin/bash
began=$EPOCHREALTIME
sleep {_WORKS_S:g}
echo $began $EPOCHREALTIME > $1/$SLURM_JOB_ID
"""

NOTES = {
    "slurm_start_delay_p50_s": "median from sbatch to start, with Headroom less without; target 1",
    "slurm_jobs_per_s_ratio": "from the first sbatch to the last end, with to without; target 0.9",
    "slurm_cpu_s_per_job": "of all of Headroom's processes, the bridge too",
    "slurm_full_speed_start_p50_s": "from sbatch to start, where nobody waits between submissions",
}


@dataclass(frozen=True)
class Times:
    """What came of one run."""

    delays_s: list[float]
    jobs_per_s: float

    def p(self, share: float) -> float:
        """Return the delay that ``share`` of the jobs had at most, s."""
        return report.percentile(self.delays_s, share)


@dataclass(frozen=True)
class Both:
    """What came of both runs, at a pace and at full speed."""

    paced: Times
    full: Times
    cpu_s_per_job: float = 0.0


def run() -> None:
    if not is_installed():
        sys.exit("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    without, beside = _without(), _with()
    figures = {
        "slurm_start_delay_p50_s": beside.paced.p(0.5) - without.paced.p(0.5),
        "slurm_jobs_per_s_ratio": beside.full.jobs_per_s / without.full.jobs_per_s,
        "slurm_cpu_s_per_job": beside.cpu_s_per_job,
        "slurm_start_p50_s": beside.paced.p(0.5),
        "slurm_start_p95_s": beside.paced.p(0.95),
        "slurm_start_p50_s_without": without.paced.p(0.5),
        "slurm_start_p95_s_without": without.paced.p(0.95),
        "slurm_jobs_per_s": beside.full.jobs_per_s,
        "slurm_jobs_per_s_without": without.full.jobs_per_s,
        "slurm_full_speed_start_p50_s": beside.full.p(0.5),
        "slurm_full_speed_start_p50_s_without": without.full.p(0.5),
    }
    report.show("slurm", figures, NOTES)
    print(f"kept in {report.keep('slurm', figures)}")


def _without() -> Both:
    with (
        _folder() as folder,
        slurm_cluster(folder, MACHINES.names, gpus=MACHINES.gpus, is_plain=True) as cluster,
    ):
        return Both(measure(cluster, pace_s=_PACE_S), measure(cluster))


def _with() -> Both:
    with (
        _folder() as folder,
        running() as stack,
        slurm_cluster(folder, MACHINES.names, gpus=MACHINES.gpus) as cluster,
        whole(stack, stack.credential("operator_token"), [(MACHINES, cluster)]) as (site,),
    ):
        # All is up once machines have reported, and a job was let go and has ended.
        measure(cluster, jobs=1)
        paced = measure(cluster, pace_s=_PACE_S)
        before_s = _cpu_s(site)
        return Both(paced, measure(cluster), (_cpu_s(site) - before_s) / JOBS)


def _cpu_s(site: Whole) -> float:
    bridge = psutil.Process(site.bridge.pid).cpu_times()[:4] if site.bridge else ()
    return sum(site.stack.cpu_seconds().values()) + sum(bridge)


def measure(cluster: SlurmCluster, jobs: int = JOBS, *, pace_s: float = 0.0) -> Times:
    """Submit short jobs, ``pace_s`` between them; return when they started, and how many ended."""
    folder = cluster.folder / "out" / f"times-{time.monotonic_ns()}"
    folder.mkdir()
    folder.chmod(0o777)
    script = cluster.folder / "out" / "job.sh"
    script.write_text(_SCRIPT)
    submitting = _SUBMIT.format(jobs=jobs, pace_s=pace_s, script=script, folder=folder)
    said = cluster.as_user("bash", "-c", submitting, timeout_s=_LIMIT_S).split()
    submitted = {ref: float(at) for at, ref in zip(said[::2], said[1::2], strict=True)}
    wait(lambda: _ended(folder) == jobs, _LIMIT_S, every_s=0.2)
    ran = {path.name: path.read_text().split() for path in folder.iterdir()}
    delays_s = [float(ran[ref][0]) - at for ref, at in submitted.items()]
    lasted_s = max(float(times[1]) for times in ran.values()) - min(submitted.values())
    return Times(delays_s, jobs / lasted_s)


def _ended(folder: Path) -> int:
    return sum(path.stat().st_size > 0 for path in folder.iterdir())


@contextmanager
def _folder() -> Iterator[Path]:
    # Others than root look into it.
    made = Path(tempfile.mkdtemp(prefix="headroom-slurm-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
