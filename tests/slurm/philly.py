"""A thousand jobs of Philly in time-lapse, for 64 nodes that can be fed at 60 % of their peak.

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
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lab.traces import JobTrace
from tests.slurm.cluster import SlurmCluster
from tests.slurm.whole import Machines

__all__ = [
    "JOBS",
    "LASTS_S",
    "MACHINES",
    "Submitting",
    "ended_as",
    "runs_of",
    "submissions",
    "thousand",
]

JOBS = 1_000
MACHINES = Machines(site="hall-a", nodes=64, gpus=8, carried=0.6)
LASTS_S, LONGEST_S, SHORTEST_S = 300.0, 60.0, 0.5
#: How long one waits before a command that slurmctld did not answer is given again, s.
_AGAIN_S = 0.5
#: $1: where it writes; $2: how long it works, µs. Reading from what nobody writes to needs no
#: process for each half second.
_SCRIPT = """\
#!/bin/bash
exec 3<> <(:)
lives=$1/lives/$SLURM_JOB_NAME.$SLURM_JOB_ID.$$
end=$((${EPOCHREALTIME/./} + $2))
while ((${EPOCHREALTIME/./} < end)); do
    echo $EPOCHREALTIME >> $lives
    read -rt 0.5 -u 3
done
echo $EPOCHREALTIME >> $lives
echo $SLURM_JOB_ID >> $1/done/$SLURM_JOB_NAME
"""


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
class Submitting:
    """Submits the jobs as somebody, each at its time or as soon as slurmctld takes it."""

    cluster: SlurmCluster
    jobs: list[Submission]
    #: by the job's name, when slurmctld answered that it has it, monotonic s
    taken: dict[str, float] = field(default_factory=dict)

    def run(self) -> None:
        out = self.cluster.folder / "out"
        script = out / "job.sh"
        script.write_text(_SCRIPT)
        for name in ("lives", "done"):
            (out / name).mkdir()
            (out / name).chmod(0o777)
        start = time.monotonic()
        for number, each in enumerate(self.jobs, 1):
            time.sleep(max(0.0, start + each.at_s - time.monotonic()))
            tries = 1
            # One that was not answered may be known all the same: each try has a name of its own.
            while not self._is_taken(f"job-{number:04}-{tries}", each, script):
                tries += 1
                time.sleep(_AGAIN_S)

    def _is_taken(self, name: str, job: Submission, script: Path) -> bool:
        said = self.cluster.as_user(
            "sbatch", "--parsable", "--requeue", "--output=/dev/null", f"--job-name={name}",
            f"--nodes={job.nodes}", f"--gpus-per-node=h100:{job.gpus_per_node}",
            f"--time={max(int(2 * job.works_s / 60) + 1, 1)}",
            str(script), str(script.parent), f"{job.works_s * 1e6:.0f}", check=False,
        )  # fmt: skip
        is_taken = said.strip().split(";")[0].isdecimal()
        if is_taken:
            self.taken[name] = time.monotonic()
        return is_taken

    def done(self) -> dict[str, list[str]]:
        """Return the ids under which each job came to its end, by its name."""
        folder = self.cluster.folder / "out" / "done"
        return {path.name: path.read_text().split() for path in folder.iterdir()}


def runs_of(cluster: SlurmCluster) -> dict[str, list[tuple[float, float]]]:
    """Return when each run of each job first and last said that it lives, Unix s, by its name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for path in (cluster.folder / "out" / "lives").iterdir():
        times = path.read_text().split()
        if times:
            span = (float(times[0]), float(times[-1]))
            found.setdefault(path.name.split(".")[0], []).append(span)
    return found


def ended_as(cluster: SlurmCluster) -> dict[str, list[str]]:
    """Return the states in which slurmctld wrote down each job, by its name, the last one last."""
    found: dict[str, list[str]] = {}
    written = (cluster.folder / "jobcomp.log").read_text()
    for name, state in re.findall(r" Name=(\S+) JobState=(\w+)", written):
        found.setdefault(name, []).append(state)
    return found
