"""Jobs like those of Acme's clusters, drawn from what was published of them.

Of Acme's jobs this project has medians and means by cluster (Hu et al., "Characterization of Large
Language Model Development in the Datacenter", NSDI 2024), and no table of them. Runs and GPUs are
drawn from log-normal distributions with that median and mean, GPUs as powers of two, and jobs come
at random over two days: so many that the cluster would be full on average.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.traces import JobTrace
from lab.traces.trace import Builder, Job

__all__ = ["CLUSTERS", "FILE", "acme_like"]

FILE = "acme-seren-distributions/cluster_summary.csv"
#: Parts of the clusters, GPUs.
CLUSTERS = {"Seren": 64, "Kalos": 128}
_DAY_S = 86_400.0
_LASTS_S = 2.0 * _DAY_S
#: No job has more of a cluster.
_MOST_SHARE = 0.25


def acme_like(path: Path, cluster: str, *, seed: int) -> JobTrace:
    """Return two days of jobs like those of ``cluster``; ``path`` is the published summary."""
    with path.open() as lines:
        row = next(each for each in csv.DictReader(lines) if each["id"] == cluster)
    rng, room = np.random.default_rng(seed), CLUSTERS[cluster] * _LASTS_S
    most_jobs = int(row["gpu_job_num"])
    runs_s = _drawn(rng, float(row["med_run_time_gpu"]), float(row["avg_run_time_gpu"]), most_jobs)
    gpus = _drawn(rng, float(row["med_gpu_num"]), float(row["avg_gpu_num"]), most_jobs)
    gpus = np.clip(2.0 ** np.round(np.log2(gpus)), 1.0, _MOST_SHARE * CLUSTERS[cluster])
    runs_s = np.clip(runs_s, 1.0, _DAY_S)
    jobs = int(np.searchsorted(np.cumsum(runs_s * gpus), room))
    found = Builder(path)
    at_s = np.sort(rng.uniform(0.0, _LASTS_S, jobs))
    for line, (at, runs, held) in enumerate(zip(at_s, runs_s, gpus, strict=False), start=1):
        found.add(line, Job(submit_s=at, runs_s=runs, gpus=int(held), project=cluster))
    return found.trace()


def _drawn(rng: np.random.Generator, median: float, mean: float, count: int) -> NDArray[np.float64]:
    sigma = math.sqrt(2.0 * math.log(mean / median))
    return rng.lognormal(math.log(median), sigma, count)
