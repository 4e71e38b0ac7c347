"""Manifests of Kubernetes as specifications, and back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from headroom.jobs import reading
from headroom.jobs.formats import kubernetes
from headroom.jobs.formats.brought import Brought, FormatError, Owner
from tests.unit.headroom.jobs.specs import DIGEST, make_phase, make_spec

IMAGE = f"registry.example/llm@{DIGEST}"


def make_template(gpus: int = 8, **container: Any) -> dict[str, Any]:
    main = {
        "name": "main", "image": IMAGE, "command": ["torchrun"], "args": ["train.py"],
        "resources": {"limits": {"nvidia.com/gpu": gpus}}, **container,
    }  # fmt: skip
    annotations = {"headroom.dev/peak-w": "650", "headroom.dev/class": "checkpoint-heavy"}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [main]}}


def make_job(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "llm", "namespace": "vision"},
        "spec": {"activeDeadlineSeconds": 7200, "template": make_template(), **spec},
    }  # fmt: skip


def brought(document: dict[str, Any], **owner: Any) -> Brought:
    return kubernetes.spec_of(copy.deepcopy(document), Owner(**owner))


def test_a_job_comes_along_with_its_gang_its_limit_and_its_words() -> None:
    found = brought(make_job(parallelism=4, completions=4, backoffLimit=3))
    spec = found.spec
    phase = spec.phases[0]
    assert (spec.project, spec.job_class, phase.name) == ("vision", "checkpoint-heavy", "llm")
    assert (phase.gang.gpus, phase.gang.gpus_per_node) == (32, 8)
    assert (phase.walltime_s, phase.power.expected_peak_w) == (7200.0, 650.0)
    assert phase.command == ["torchrun", "train.py"]
    assert (phase.restart.tolerance, phase.restart.max_restarts) == ("failure", 3)
    assert phase.artifacts.image == IMAGE
    assert found.lost == ()


def test_a_job_that_is_not_tried_again_is_so_where_a_node_was_lost() -> None:
    restart = brought(make_job(backoffLimit=0)).spec.phases[0].restart
    assert (restart.tolerance, restart.max_restarts) == ("disruption", None)


def test_more_runs_than_pods_at_once_are_an_array() -> None:
    spec = brought(make_job(parallelism=2, completions=10)).spec
    assert spec.array == "0-9%2"
    assert spec.phases[0].gang.gpus == 8


def test_what_cannot_come_along_is_told() -> None:
    template = make_template(
        image="llm:latest",
        env=[{"name": "SEED", "value": "7"}, {"name": "KEY", "valueFrom": {"secretKeyRef": {}}}],
        volumeMounts=[{"name": "data"}],
    )
    template["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    found = brought(make_job(template=template))
    assert found.values["phases"][0]["env"] == {"SEED": "7"}
    assert "artifacts" not in found.values["phases"][0]
    for part in ("gang.models", "variable KEY", "volumes", "by its digest"):
        assert any(part in each for each in found.lost), part


def test_a_job_set_whose_parts_depend_on_each_other_is_phases() -> None:
    def part(name: str, *needs: str) -> dict[str, Any]:
        depends = [{"name": each, "status": "Complete"} for each in needs]
        job = {"spec": make_job(parallelism=2, completions=2)["spec"]}
        return {"name": name, "replicas": 2, "template": job, "dependsOn": depends}

    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "x", "namespace": "vision"},
        "spec": {"replicatedJobs": [part("prepare"), part("train", "prepare")]},
    }  # fmt: skip
    spec = brought(document).spec
    assert [(each.name, each.gang.gpus, each.needs) for each in spec.phases] == [
        ("prepare", 32, []),
        ("train", 32, ["prepare"]),
    ]
    document["spec"]["replicatedJobs"][1]["dependsOn"] = []  # type: ignore[index]
    with pytest.raises(FormatError, match="prepare and train start together"):
        brought(document)


def test_a_pytorch_job_is_one_gang_of_master_and_workers() -> None:
    replicas = {
        "Master": {"replicas": 1, "template": make_template()},
        "Worker": {"replicas": 3, "template": make_template()},
    }
    document = {
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
        "metadata": {"name": "llm", "namespace": "vision"},
        "spec": {"runPolicy": {"activeDeadlineSeconds": 60}, "pytorchReplicaSpecs": replicas},
    }  # fmt: skip
    assert brought(document).spec.phases[0].gang.gpus == 32
    replicas["Worker"]["template"] = make_template(args=["other.py"])
    with pytest.raises(FormatError, match="Master and Worker differ"):
        brought(document)


@pytest.mark.parametrize(
    ("document", "owner", "why"),
    [
        (make_job() | {"kind": "Pod"}, {}, "it is a Pod: give a Job, JobSet, PyTorchJob, Workflow"),
        (make_job() | {"metadata": {}}, {}, "give --project"),
        (make_job() | {"spec": {"template": make_template()}}, {}, "give --walltime"),
        (make_job() | {"spec": {}}, {}, "it is no Job"),
        (make_job() | {"spec": {"template": {"spec": 3}}}, {}, "it is no Job"),
        (make_job(template={"spec": {"containers": []}}), {}, "no container"),
    ],
)
def test_what_is_no_job_is_refused_with_the_way_out(document: Any, owner: Any, why: str) -> None:
    with pytest.raises(FormatError) as refused:
        brought(document, **owner)
    assert why in str(refused.value)


def test_a_phase_written_as_a_job_comes_back_as_it_was() -> None:
    phase = make_phase(
        gang={"gpus": 32, "gpus_per_node": 8},
        power={"expected_peak_w": 650.0, "lowest_cap_w": 400.0},
        throttling={"responses": ["shrink-batch", "pause"], "min_batch_scale": 0.5},
        restart={"tolerance": "failure", "max_restarts": 3},
        artifacts={"image": IMAGE},
        command=["python", "train.py"],
        env={"SEED": "7"},
    )
    spec = reading.convert(make_spec(phase))
    document = kubernetes.manifest_of(spec, spec.phases[0])
    found = brought(document | {"metadata": {"name": "train", "namespace": "vision"}})
    assert reading.as_json(found.spec) == reading.as_json(spec)


def test_a_phase_without_an_image_is_no_job_of_kubernetes() -> None:
    spec = reading.convert(make_spec())
    with pytest.raises(FormatError, match=r"artifacts\.image"):
        kubernetes.manifest_of(spec, spec.phases[0])


def test_a_phase_of_cores_asks_for_these_and_for_no_gpu() -> None:
    phase = make_phase(
        gang={"gpus": 0, "cores": 8, "nodes": 3, "mem_bytes": 3e9}, artifacts={"image": IMAGE}
    )
    spec = reading.convert(make_spec(phase))
    written = kubernetes.manifest_of(spec, spec.phases[0])["spec"]
    (container,) = written["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": 8, "memory": 3_000_000_000}
    assert (written["parallelism"], written["completions"]) == (3, 3)
