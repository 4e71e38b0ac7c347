"""Manifests of Kubernetes as specifications, and phases as jobs for Kueue. Pure.

A pod is what a node runs of a gang: so the GPUs of a pod are those of a node, and so are the cores
of one that asks for no GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headroom.jobs.formats import argo
from headroom.jobs.formats.brought import Brought, FormatError, Owner
from headroom.jobs.formats.said import phase_of, said_of
from headroom.jobs.spec import Gang, JobSpec, PhaseSpec, slug
from headroom.kueue import names
from headroom.kueue.pods import asked_of
from headroom.kueue.reading import comment_of
from headroom.schedulers import words

__all__ = ["is_manifest", "manifest_of", "spec_of"]

GPU = "nvidia.com/gpu"
_QUEUE = f"{names.KUEUE}/queue-name"
#: Labels of nodes that say which GPUs they have.
_PRODUCT = "nvidia.com/gpu.product"
_KINDS = ("Job", "JobSet", "PyTorchJob", "Workflow", "WorkflowTemplate")
_INDEX = "JOB_COMPLETION_INDEX"
_AMOUNT = re.compile(r"(\d+(?:\.\d*)?)([mkMGTP]|[KMGTP]i)?")
_FACTORS = {
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip


@dataclass(frozen=True)
class _Pods:
    """Pods of one kind that start together, and what comes before them."""

    name: str
    count: int
    template: Mapping[str, Any]
    job: Mapping[str, Any]
    needs: tuple[str, ...] = ()
    #: what of it does not come along
    lost: tuple[str, ...] = ()

    @property
    def spec(self) -> Mapping[str, Any]:
        return self.template.get("spec") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return (self.template.get("metadata") or {}).get("annotations") or {}


def is_manifest(values: Any) -> bool:
    """Say whether plain values look like an object of Kubernetes."""
    return isinstance(values, Mapping) and {"apiVersion", "kind"} <= values.keys()


def spec_of(document: Mapping[str, Any], owner: Owner, resource: str = GPU) -> Brought:
    """Return what a Job, a JobSet, a PyTorchJob or a workflow of Argo asks for.

    ``resource``: what a GPU is called. Each phase has the words of its own pods. Raises
    :class:`FormatError`.
    """
    kind, metadata = document.get("kind"), document.get("metadata") or {}
    if kind not in _KINDS:
        raise FormatError(f"it is a {kind}: give a {', '.join(_KINDS[:-1])} or {_KINDS[-1]}")
    try:
        name = metadata.get("name") or metadata.get("generateName") or "job"
        pods = list(_PODS[kind](document.get("spec") or {}, name))
        said = [words.read(comment_of([each.annotations])) for each in pods]
        phases, lost = _phases(pods, owner, resource)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"it is no {kind} as Kubernetes has them: {error!r}") from error
    labels = metadata.get("labels") or {}
    project = owner.project or slug(metadata.get("namespace", ""), 60)
    if not project:
        raise FormatError("it has no namespace: give --project")
    job_class = owner.job_class or next((each.job_class for each in said if each.job_class), "")
    if not job_class:
        raise FormatError(f"no annotation {names.PREFIX}class says its class: give --class")
    values: dict[str, Any] = {
        "project": project,
        "class": job_class,
        "phases": [phase_of(its, phase) for its, phase in zip(said, phases, strict=True)],
    }
    if array := _array(document):
        values["array"] = array
    if _QUEUE in labels:
        lost.append(f"the queue {labels[_QUEUE]!r} is left out: quotas are of projects")
    wrong = [f"of its annotations, {each}" for its in said for each in its.wrong]
    return Brought(values, (*dict.fromkeys(lost), *dict.fromkeys(wrong)))


# --- Which pods there are ------------------------------------------------------------------------


def _of_job(spec: Mapping[str, Any], name: str) -> Iterator[_Pods]:
    is_array = int(spec.get("completions") or 1) > int(spec.get("parallelism") or 1)
    count = 1 if is_array else int(spec.get("parallelism") or 1)
    yield _Pods(name, count, spec["template"], spec)


def _of_job_set(spec: Mapping[str, Any], _name: str) -> Iterator[_Pods]:
    parts = spec.get("replicatedJobs") or []
    together = [each["name"] for each in parts if not each.get("dependsOn")]
    if len(together) > 1:
        raise FormatError(
            f"{' and '.join(together)} start together, and a gang runs one command: write them as "
            "one job that looks at its rank, or have one depend on the other"
        )
    for each in parts:
        job = each["template"]["spec"]
        count = int(each.get("replicas") or 1) * int(job.get("parallelism") or 1)
        needs = tuple(one["name"] for one in each.get("dependsOn") or ())
        yield _Pods(each["name"], count, job["template"], job, needs)


def _of_pytorch(spec: Mapping[str, Any], name: str) -> Iterator[_Pods]:
    parts = list((spec.get("pytorchReplicaSpecs") or {}).values())
    if not parts:
        raise FormatError("it has no pytorchReplicaSpecs")
    first = parts[0]["template"]
    if any(_containers(each["template"])[0] != _containers(first)[0] for each in parts):
        raise FormatError("Master and Worker differ, and a gang runs one command: make them alike")
    count = sum(int(each.get("replicas") or 1) for each in parts)
    yield _Pods(name, count, first, spec.get("runPolicy") or {})


def _of_workflow(spec: Mapping[str, Any], name: str) -> Iterator[_Pods]:
    for each in argo.tasks_of(spec, name):
        yield _Pods(each.name, 1, each.template, each.limits, each.needs, each.lost)


_PODS = {
    "Job": _of_job, "JobSet": _of_job_set, "PyTorchJob": _of_pytorch,
    "Workflow": _of_workflow, "WorkflowTemplate": _of_workflow,
}  # fmt: skip


def _array(document: Mapping[str, Any]) -> str | None:
    """Return the array that a job with more completions than pods at once is."""
    spec = document["spec"]
    runs, at_once = int(spec.get("completions") or 1), int(spec.get("parallelism") or 1)
    if document["kind"] != "Job" or runs <= at_once:
        return None
    return f"0-{runs - 1}%{at_once}"


# --- What they ask for ---------------------------------------------------------------------------


def _phases(
    pods: Sequence[_Pods], owner: Owner, resource: str
) -> tuple[list[dict[str, Any]], list[str]]:
    lost: list[str] = []
    return [_phase(each, owner, resource, lost) for each in pods], lost


def _phase(pods: _Pods, owner: Owner, resource: str, lost: list[str]) -> dict[str, Any]:
    spec = pods.spec
    lost += pods.lost
    limit_s = spec.get("activeDeadlineSeconds") or pods.job.get("activeDeadlineSeconds")
    walltime_s = owner.walltime_s or limit_s
    if walltime_s is None:
        raise FormatError(f"{pods.name} has no activeDeadlineSeconds: give --walltime")
    gang = _gang(pods, resource, lost)
    if product := (spec.get("nodeSelector") or {}).get(_PRODUCT):
        lost.append(f"write in gang.models which models of your inventory are {product!r}")
    phase: dict[str, Any] = {
        "name": slug(pods.name, 60), "gang": gang, "walltime_s": float(walltime_s),
        **_run(pods.template, lost),
    }  # fmt: skip
    if pods.needs:
        phase["needs"] = [slug(each, 60) for each in pods.needs]
    if (retries := pods.job.get("backoffLimit")) is not None:
        phase["restart"] = _restart(retries)
    return phase


def _gang(pods: _Pods, resource: str, lost: list[str]) -> dict[str, Any]:
    if of_pod := asked_of(pods.spec, resource):
        return {"gpus": of_pod * pods.count, "gpus_per_node": of_pod}
    resources = _containers(pods.template)[0].get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    cores = math.ceil(_amount(asked.get("cpu") or 0))
    if not cores:
        lost.append(f"{pods.name} asks for neither {resource} nor cpu: it is given one core")
    memory = _amount(asked.get("memory") or 0)
    return {
        "gpus": 0,
        "cores": max(cores, 1),
        **({"nodes": pods.count} if pods.count > 1 else {}),
        **({"mem_bytes": int(memory)} if memory else {}),
    }


def _amount(text: Any) -> float:
    """Return how many cores or bytes ``4``, ``"500m"`` or ``"64Gi"`` are."""
    found = _AMOUNT.fullmatch(str(text))
    if found is None:
        raise FormatError(f"{text!r} is no amount of cores or bytes")
    return float(found[1]) * _FACTORS.get(found[2] or "", 1.0)


def _restart(retries: int) -> dict[str, Any]:
    if retries:
        return {"tolerance": "failure", "max_restarts": retries}
    # What a lost node has ended has not failed by itself.
    return {"tolerance": "disruption"}


def _run(template: Mapping[str, Any], lost: list[str]) -> dict[str, Any]:
    """Return command, environment and image of the only container."""
    containers = _containers(template)
    if len(containers) > 1 or (template.get("spec") or {}).get("initContainers"):
        lost.append("of its containers the first alone comes along")
    first = containers[0]
    command = [str(each) for each in (*(first.get("command") or ()), *(first.get("args") or ()))]
    if not command:
        lost.append("its container names no command, which is in the image: write it in command")
    if any(_INDEX in each for each in command):
        lost.append(f"{_INDEX} is HEADROOM_RANK here, of an array HEADROOM_ARRAY_INDEX")
    given = first.get("env") or []
    lost += [
        f"the variable {each['name']} is left out: it comes from elsewhere"
        for each in given
        if "value" not in each
    ]
    if first.get("volumeMounts"):
        lost.append("volumes are left out: the machine has to have what is mounted")
    found: dict[str, Any] = {"command": command}
    if env := {each["name"]: str(each["value"]) for each in given if "value" in each}:
        found["env"] = env
    image = str(first.get("image") or "")
    if "@sha256:" in image:
        found["artifacts"] = {"image": image}
    elif image:
        lost.append(f"the image {image!r} is left out: name it by its digest, name@sha256:…")
    return found


def _containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = (template.get("spec") or {}).get("containers") or []
    if not found:
        raise FormatError("a pod of it has no container")
    return list(found)


# --- The way back --------------------------------------------------------------------------------


def manifest_of(spec: JobSpec, phase: PhaseSpec, resource: str = GPU) -> dict[str, Any]:
    """Return a Job for Kueue's queue of the project's name, with our words in annotations.

    Each pod has the GPUs of a node, or the cores, and runs the command. Raises
    :class:`FormatError` where the phase has no image to run.
    """
    if phase.artifacts.image is None or "@" not in phase.artifacts.image:
        raise FormatError(f"{phase.name}: artifacts.image has no name@sha256:…, which a pod needs")
    if spec.array is not None:
        raise FormatError("an array has no equal among Jobs: give an index of it by hand")
    pods, limits = _held(phase.gang, resource)
    container = {
        "name": "main",
        "image": phase.artifacts.image,
        "command": list(phase.command),
        "env": [{"name": name, "value": value} for name, value in phase.env.items()],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": f"{phase.name.replace('_', '-').replace('.', '-')}-",
            "labels": {_QUEUE: spec.project},
        },
        "spec": {
            # Kueue lets it go.
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "activeDeadlineSeconds": round(phase.walltime_s),
            "backoffLimit": phase.restart.max_restarts or 0,
            "template": {
                "metadata": {"annotations": _annotations(phase, spec.job_class)},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def left_of(phase: PhaseSpec) -> list[str]:
    """Return a sentence for each part of a phase that its manifest does not say."""
    return [
        f"{phase.name}: {name} left out: nothing measures or verifies artifacts in pods"
        for name in ("inputs", "outputs", "promotion")
        if getattr(phase, name)
    ]


def _held(gang: Gang, resource: str) -> tuple[int, dict[str, int]]:
    """Return how many pods a gang is, and what each of them holds: GPUs, or cores and memory."""
    if gang.cores is not None:
        memory = {"memory": int(gang.mem_bytes)} if gang.mem_bytes else {}
        return gang.nodes or 1, {"cpu": gang.cores, **memory}
    per_node = gang.gpus_per_node or gang.gpus
    return gang.gpus // per_node, {resource: per_node}


def _annotations(phase: PhaseSpec, job_class: str) -> dict[str, str]:
    said = said_of(phase, job_class)
    return {f"{names.PREFIX}{name.replace('_', '-')}": value for name, value in said.items()}
