"""Batch scripts are read as a real Slurm reads them, and it takes what is written for it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.jobs.formats import sbatch
from headroom.jobs.formats.brought import Owner
from headroom.jobs.spec import JobSpec
from headroom.schedulers.contract import SchedulerJob
from headroom.slurm.reading import job_of
from tests.slurm.cluster import SlurmCluster, is_installed, slurm_cluster

pytestmark = pytest.mark.skipif(not is_installed(), reason="there is no Slurm, or we are not root")

_WORDS = '--comment="headroom: peak_w=650 cap_w=400 class=checkpoint-heavy"'
#: Options of one script each, as people write them.
SCRIPTS = [
    ["-J one --gpus-per-node=h100:8 -t 90"],
    ["--job-name=two", "-N2", "--gres=gpu:4 --time=1:30:00"],
    ["-N 1-4 --gpus-per-node 8", "--ntasks-per-node=8", "-t 2-12"],
    ["-G 8", "--time 0-2:30  # until lunch"],
    ["--nodes=2 --gpus=h100:8", "-t 10:30"],
    ["-n 8 --gpus-per-task=1 -t 1-2:30:15"],
    ["-n4 --ntasks-per-node 2 --gpus-per-task=2", "--time=5"],
    ["--gpus-per-node=1 -t5 --nodelist=n2 --no-requeue", "--array=0-9%3"],
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    nodes = [f"n{number}" for number in range(1, 5)]
    # Others than root look into it: pytest's own folders are closed to them.
    with tempfile.TemporaryDirectory(prefix="headroom-slurm-") as folder:
        Path(folder).chmod(0o755)
        with slurm_cluster(Path(folder), nodes, gpus=8, is_plain=True) as made:
            yield made


def _as_slurm_has_it(cluster: SlurmCluster, script: str) -> SchedulerJob:
    path = cluster.folder / "out" / "script"
    path.write_text(script)
    path.chmod(0o644)
    ref = cluster.as_user("sbatch", "--parsable", "--hold", str(path)).strip().split(";")[0]
    return job_of(cluster.job(ref), ref)


def _agree(spec: JobSpec, there: SchedulerJob) -> None:
    (phase,) = spec.phases
    assert phase.gang.gpus == there.gpus
    # Slurm gives whole minutes.
    assert 60 * math.ceil(phase.walltime_s / 60) == there.time_limit_s
    if there.gpus_per_node is not None:
        assert phase.gang.gpus_per_node == there.gpus_per_node
        fewest = there.min_nodes or there.nodes_wanted
        assert (phase.gang.min_gpus or phase.gang.gpus) == fewest * there.gpus_per_node


@pytest.mark.parametrize("lines", SCRIPTS, ids=lambda lines: lines[0])
def test_a_script_asks_for_what_slurm_gives_it(cluster: SlurmCluster, lines: list[str]) -> None:
    options = [f"#SBATCH {line}" for line in [*lines, _WORDS, "--account=vision"]]
    script = "\n".join(["#!/bin/bash", *options, "exec sleep 1", ""])
    found = sbatch.spec_of(script, Owner()).spec
    there = _as_slurm_has_it(cluster, script)
    _agree(found, there)
    assert (found.project, found.job_class) == (there.account, "checkpoint-heavy")


@pytest.mark.parametrize("lines", SCRIPTS, ids=lambda lines: lines[0])
def test_slurm_takes_what_is_written_for_it(cluster: SlurmCluster, lines: list[str]) -> None:
    options = [f"#SBATCH {line}" for line in [*lines, _WORDS, "--account=vision"]]
    spec = sbatch.spec_of("\n".join(["#!/bin/sh", *options, "true", ""]), Owner()).spec
    written = sbatch.script_of(spec, spec.phases[0])
    _agree(spec, _as_slurm_has_it(cluster, written))
