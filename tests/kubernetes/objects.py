"""Objects of a cluster with Kueue, as tests make them."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

GPU = "nvidia.com/gpu"
KUEUE = "kueue.x-k8s.io/v1beta2"


def make_namespace(name: str) -> Document:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def make_config(namespace: str, name: str = "a", **data: str) -> Document:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def make_node(name: str, *, gpus: int = 8, labels: dict[str, str] | None = None) -> Document:
    """Return a node that is ready, with GPUs."""
    amounts = {"cpu": "96", "memory": "2Ti", GPU: str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [ready]},
    }


def make_pod(namespace: str, name: str = "p", *, gpus: int = 0, **spec: Any) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"containers": [make_container(gpus)], **spec},
    }


def make_container(gpus: int = 0) -> Document:
    limits = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    return {"name": "main", "image": "train:1", **limits}


def make_check(name: str, controller: str = "example.com/check") -> Document:
    return {
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def make_flavor(name: str, **spec: Any) -> Document:
    return {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def make_cluster_queue(
    name: str, *, gpus: int, flavor: str = "h200", checks: tuple[str, ...] = (), **spec: Any
) -> Document:
    """Return a ClusterQueue with quota for GPUs of one flavor, open to all namespaces."""
    resources = [{"name": GPU, "nominalQuota": str(gpus)}]
    group = {"coveredResources": [GPU], "flavors": [{"name": flavor, "resources": resources}]}
    if checks:
        named = [{"name": check} for check in checks]
        spec["admissionChecksStrategy"] = {"admissionChecks": named}
    return {
        "apiVersion": KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
    }


def make_local_queue(namespace: str, name: str = "team", queue: str = "gpus") -> Document:
    return {
        "apiVersion": KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"clusterQueue": queue},
    }


def make_workload(
    namespace: str, name: str = "w", *, pods: int = 2, gpus: int = 8, **spec: Any
) -> Document:
    """Return a workload of one pod set whose pods have GPUs each."""
    template = {"spec": {"containers": [make_container(gpus)]}}
    pod_sets = [{"name": "main", "count": pods, "template": template}]
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"queueName": "team", "podSets": pod_sets, **spec},
    }


def make_job(
    namespace: str,
    name: str = "j",
    *,
    pods: int = 2,
    gpus: int = 8,
    run_s: float | None = None,
    labels: dict[str, str] | None = None,
) -> Document:
    """Return a suspended job in a queue, whose pods run for a time or until they are stopped."""
    annotations = {} if run_s is None else {"tests/run-s": str(run_s)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"kueue.x-k8s.io/queue-name": "team", **(labels or {})},
        },
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [make_container(gpus)]},
            },
        },
    }


def make_check_state(name: str, state: str = "Pending", **more: Any) -> Document:
    return {
        "name": name,
        "state": state,
        "message": "",
        "lastTransitionTime": "2026-11-01T00:00:00Z",
        **more,
    }


def status_of(workload: Document, **status: Any) -> Document:
    """Return what is applied to the status of an object."""
    metadata = {key: workload["metadata"][key] for key in ("name", "namespace")}
    kinds = {key: workload[key] for key in ("apiVersion", "kind")}
    return {**kinds, "metadata": metadata, "status": status}
