"""A pipeline of seven phases on a real Slurm, as the scripts that ``headroom convert`` writes.

Slurm keeps the order: each phase depends on the one before it. Headroom lets each begin, those
without GPUs on nodes that have none, once what it takes was measured where it runs; the last one
promotes, once its copies are there and its matrix has passed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from accounts.roles import Role
from admission.jobs.models import Artifact, Job
from fleet.models import HardwareModel, Node
from headroom.jobs import reading
from headroom.jobs.formats import sbatch
from headroom.jobs.spec import JobSpec
from headroom.work.inputs import digest_of
from lab.matrix.result import Verdict
from tests.builders.accounts import api_client
from tests.builders.begun import begin_anew
from tests.builders.fleet import SmallFleet
from tests.builders.matrices import result_of
from tests.slurm.cluster import is_installed, slurm_cluster
from tests.slurm.conftest import Site
from tests.unit.headroom.jobs.specs import make_phase, make_spec

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.slow(
        beside="tests/integration/admission/executors/test_pipelines_of_schedulers.py::"
        "test_a_promotion_is_held_until_the_copy_is_there"
    ),
]

#: Each phase, and whether it takes GPUs.
PHASES = {
    "ingest": False, "preprocess": False, "features": False, "train": True, "evaluate": True,
    "package": False, "promote": False,
}  # fmt: skip
#: Nodes without GPUs, where pipelines run and at the other site.
CPU_NODES, ELSEWHERE = ("cpu1", "cpu2"), "cpu3"
_REPOSITORY = Path(__file__).resolve().parents[2]
#: Goes on from what it takes, and leaves what the next one takes.
_WORKS = """
set -e
test "$NAME" != "$FAILS_IN"
if [ -n "$TAKES" ]; then cat "${!TAKES}"; fi > "$AFTER"
echo "$NAME on $SLURMD_NODENAME, GPUs ${CUDA_VISIBLE_DEVICES:-none}" >> "$AFTER"
"""
#: Copies a file, adds what it is told to, and ends once it is let go.
_COPIES = """
set -e
{ cat "$FROM"; printf %s "$MORE"; } > "$AFTER"
until [ -e "$GO" ]; do sleep 0.1; done
"""
_PASSED = result_of(Verdict.PASSED, Verdict.PASSED)
_FAILED = result_of(Verdict.PASSED, Verdict.FAILED, Verdict.NOT_RUN)


@pytest.fixture
def site(fleet_of_two: SmallFleet, folder: Path) -> Iterator[Site]:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    model = HardwareModel.objects.create(
        name="EPYC", kind="node", rated_w=600, idle_w=120, cores=32
    )
    racks = fleet_of_two.racks
    for place, node in enumerate((*CPU_NODES, ELSEWHERE)):
        rack = racks["oslo/A01" if node == ELSEWHERE else "bergen/A01"]
        Node.objects.create(name=node, rack=rack, model=model, position_u=17 + place, height_u=1)
    begin_anew()
    nodes, cpu_nodes = list(fleet_of_two.nodes), (*CPU_NODES, ELSEWHERE)
    with slurm_cluster(folder, nodes, cpu_nodes=cpu_nodes) as cluster:
        command = folder / "headroom"
        command.write_text(
            f'#!/bin/sh\nPYTHONPATH={_REPOSITORY} exec {sys.executable} -m headroom "$@"\n'
        )
        command.chmod(0o755)
        yield Site.of(fleet_of_two, cluster)


def pipeline(folder: Path, *, fails_in: str = "", more: str | None = None) -> JobSpec:
    """Return a run of the pipeline. ``more``: it is wanted at oslo, too, where this is added."""
    names = list(PHASES)
    phases = [_phase(folder, name, at, names, fails_in) for at, name in enumerate(names)]
    if more is not None:
        phases[names.index("package")]["outputs"][0]["copies"] = ["oslo"]
        phases.append(_copy(folder, more))
    return reading.convert(make_spec(*phases, name=folder.name))


def _phase(folder: Path, name: str, at: int, names: list[str], fails_in: str) -> dict[str, Any]:
    before = names[at - 1] if at else ""
    phase = make_phase(
        name,
        gang={"gpus": 4, "gpus_per_node": 4} if PHASES[name] else {"gpus": 0, "cores": 2},
        walltime_s=600,
        needs=[before] if before else [],
        command=["/bin/bash", "-c", _WORKS],
        env={
            "NAME": name, "FAILS_IN": fails_in, "AFTER": str(folder / name),
            "TAKES": f"HEADROOM_ARTIFACT_{before.upper()}_OUT" if before else "",
        },
        inputs=[{"phase": before, "output": "out"}] if before else [],
        outputs=[{"name": "out", "path": str(folder / name)}],
    )  # fmt: skip
    if name == "evaluate":
        result = {"name": "matrix", "path": str(folder / "result.json"), "matrix": True}
        phase["outputs"].append(result)
    if name == "promote":
        phase["promotion"] = {"matrix": [{"phase": "evaluate", "output": "matrix"}]}
    return phase


def _copy(folder: Path, more: str) -> dict[str, Any]:
    made = {"phase": "package", "output": "out"}
    return make_phase(
        "copy",
        needs=["package"],
        gang={"gpus": 0, "cores": 1},
        walltime_s=600,
        locality={"nodes": [ELSEWHERE]},
        command=["/bin/bash", "-c", _COPIES],
        env={
            "GO": str(folder / "go"), "FROM": str(folder / "package"), "MORE": more,
            "AFTER": str(folder / "copy"),
        },
        outputs=[{"name": "out", "path": str(folder / "copy"), "copy_of": made}],
    )  # fmt: skip


def submit(site: Site, name: str, *, matrix: bytes = _PASSED, **given: Any) -> dict[str, str]:
    """Submit a pipeline, a script for each phase; return Slurm's job of each."""
    folder = folder_of(site, name)
    folder.mkdir()
    (folder / "result.json").write_bytes(matrix)
    spec, refs = pipeline(folder, **given), dict[str, str]()
    shared, path = site.settings.shared_dir, f"{site.cluster.folder}:{site.cluster.env['PATH']}"
    for phase in spec.phases:
        script = folder / f"{phase.name}.sh"
        script.write_text(sbatch.script_of(spec, phase))
        options = [
            f"--partition={'gpu' if PHASES.get(phase.name) else 'cpu'}",
            f"--export=ALL,HEADROOM_SLURM_SHARED_DIR={shared},PATH={path}",
        ]
        if phase.name in PHASES and not PHASES[phase.name]:
            options.append(f"--exclude={ELSEWHERE}")
        if phase.needs:
            before = refs[str(phase.needs[0])]
            options += [f"--dependency=afterok:{before}", "--kill-on-invalid-dep=yes"]
        said = site.cluster.run("sbatch", "--parsable", *options, str(script))
        refs[phase.name] = said.strip().split(";")[0]
    return refs


def folder_of(site: Site, name: str) -> Path:
    return site.cluster.folder / "out" / name


def reach_package(site: Site, refs: dict[str, str]) -> None:
    """Do rounds until the package is made."""
    for name in list(PHASES)[:-1]:
        site.until(partial(is_over, site, {name: refs[name]}))


def is_over(site: Site, refs: dict[str, str]) -> bool:
    states = {site.cluster.state(ref) for ref in refs.values()}
    return not states & {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING"}


def reason(site: Site, ref: str, said: str) -> dict[str, Any]:
    """Do rounds until a job waits for that, and return the reason."""
    found: list[dict[str, Any]] = []
    viewer = api_client(Role.VIEWER)

    def waits() -> bool:
        answer = viewer.get(f"/api/v1/jobs/{site.name(ref)}/explain")
        if answer.status_code == 200:
            (phase,) = answer.json()["phases"]
            found[:] = [each for each in phase["reasons"] if said in each["sentence"]]
        return bool(found)

    site.until(waits)
    assert site.cluster.state(ref) == "PENDING"
    return found[0]


def test_a_pipeline_runs_from_raw_data_to_a_promoted_model_once_its_copies_are_there(
    site: Site,
) -> None:
    refs, folder = submit(site, "whole", more=""), folder_of(site, "whole")
    reach_package(site, refs)
    lags = reason(site, refs["promote"], "at oslo is missing")
    size = (folder / "package").stat().st_size
    assert (lags["token"], lags["need"], lags["have"]) == ("ArtifactPending", 2.0, 1.0)
    assert lags["sentence"] == (
        "promotes only what has its copies: that of artifact out of phase package at oslo is"
        f" missing; 1 of 2 places have theirs, {size} bytes lag"
    )
    # Its owner reads the same in Slurm.
    site.until(lambda: lags["sentence"] in site.shown(refs["promote"]))
    assert not (folder / "promote").exists()
    (folder / "go").touch()
    site.until(lambda: is_over(site, refs))
    assert {site.cluster.state(ref) for ref in refs.values()} == {"COMPLETED"}
    lines = (folder / "promote").read_text().splitlines()
    assert [line.split()[0] for line in lines] == list(PHASES)
    for line, takes_gpus in zip(lines, PHASES.values(), strict=True):
        assert ("GPUs none" in line) is not takes_gpus, line
        assert (line.split(",")[0].split()[-1] in CPU_NODES) is not takes_gpus, line
    site.until(lambda: not Job.objects.exclude(state="succeeded").exists())
    assert set(Job.objects.values_list("name", flat=True)) == set(map(site.name, refs.values()))
    made = {row.phase.name: row for row in Artifact.objects.filter(name="out")}
    assert {name: row.digest for name, row in made.items()} == {
        name: digest_of(folder / name) for name in PHASES
    }
    assert {row.site for row in made.values()} == {"bergen"}
    (copied,) = made["package"].copies.all()
    assert (copied.site, copied.digest) == ("oslo", made["package"].digest)


def test_a_failure_in_each_phase_in_turn_ends_it_there(site: Site) -> None:
    found = {name: submit(site, f"no-{name}", fails_in=name) for name in PHASES}
    site.until(lambda: all(is_over(site, refs) for refs in found.values()))
    names = list(PHASES)
    for at, fails_in in enumerate(names):
        states = [site.cluster.state(found[fails_in][name]) for name in names]
        assert states[:at] == ["COMPLETED"] * at, (fails_in, states)
        assert states[at] == "FAILED", (fails_in, states)
        assert set(states[at + 1 :]) <= {"CANCELLED"}, (fails_in, states)
        left = {each.name for each in folder_of(site, f"no-{fails_in}").iterdir()}
        assert left & set(names) == set(names[:at])
    failed = {site.name(found[name][name]) for name in names}
    told = Job.objects.filter(state="failed").values_list("name", flat=True)
    site.until(lambda: set(told.all()) == failed)
    made = Artifact.objects.filter(name="out").values_list("phase__job__pipeline", "phase__name")
    assert set(made) == {
        (f"root/no-{fails_in}", name) for at, fails_in in enumerate(names) for name in names[:at]
    }


def test_a_promotion_is_refused_while_a_copy_differs_and_by_a_matrix_that_failed(
    site: Site,
) -> None:
    differs = submit(site, "differs", more="one byte too many")
    unfit = submit(site, "unfit", matrix=_FAILED)
    (folder_of(site, "differs") / "go").touch()
    for refs in (differs, unfit):
        reach_package(site, refs)
    lags = reason(site, differs["promote"], "at oslo differs")
    (copy,) = lags["evidence"]["copies"]
    assert copy["wanted"] == digest_of(folder_of(site, "differs") / "package")
    assert copy["found"] == digest_of(folder_of(site, "differs") / "copy")
    never = reason(site, unfit["promote"], "cells passed")
    assert (never["token"], never["need"], never["have"]) == ("DependencyNeverMet", 2.0, 1.0)
    for name in ("differs", "unfit"):
        assert not (folder_of(site, name) / "promote").exists()
