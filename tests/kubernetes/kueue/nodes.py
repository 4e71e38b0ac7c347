"""What runs pods in a cluster: the controller of jobs, the scheduler, and the nodes themselves."""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from tests.kubernetes.client import STRATEGIC, Client, path_of
from tests.kubernetes.kueue.informers import Informers
from tests.kubernetes.kueue.quota import amount
from tests.kubernetes.kueue.states import moment_of, text_of

Document = dict[str, Any]

#: How long a pod runs, seconds: an annotation. Without it, until it is deleted.
RUN_S = "tests/run-s"
#: How long a pod takes to end once it is to, seconds: an annotation.
ENDS_S = "tests/ends-s"
_DONE = ("Succeeded", "Failed")


class Nodes:
    """Makes pods of jobs that are not suspended, binds them, runs them and lets them end."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._informers = informers
        #: since when pods are to end, by uid
        self._ending: dict[str, float] = {}

    def round(self) -> None:
        """Do whatever is due."""
        pods = self._informers.all("Pod")
        self._schedule(pods)
        for pod in pods:
            self._run(pod)
        by_job = defaultdict(list)
        for pod in pods:
            for owner in pod["metadata"].get("ownerReferences", ()):
                by_job[owner["uid"]].append(pod)
        for job in self._informers.all("Job"):
            self._drive(job, by_job[job["metadata"]["uid"]])

    # Jobs

    def _drive(self, job: Document, pods: list[Document]) -> None:
        namespace = job["metadata"]["namespace"]
        if _is_over(job):
            return
        alive = [p for p in pods if p.get("status", {}).get("phase") not in _DONE]
        succeeded = [p for p in pods if p.get("status", {}).get("phase") == "Succeeded"]
        wanted = job["spec"].get("parallelism", 1)
        if job["spec"].get("suspend"):
            for pod in pods:
                if "deletionTimestamp" not in pod["metadata"]:
                    self._client.delete("Pod", pod["metadata"]["name"], namespace)
        else:
            names = {pod["metadata"]["name"] for pod in pods}
            for number in range(wanted):
                name = f"{job['metadata']['name']}-{number}"
                if name not in names:
                    self._informers.saw(self._client.create(_pod(job, name)))
                    alive.append({})
        self._report(job, len(alive), len(succeeded), wanted)

    def _report(self, job: Document, active: int, succeeded: int, wanted: int) -> None:
        status: Document = {"active": active, "succeeded": succeeded}
        if succeeded >= wanted and not job["spec"].get("suspend"):
            now = text_of(_now())
            status["conditions"] = [
                {
                    "type": "Complete",
                    "status": "True",
                    "reason": "CompletionsReached",
                    "message": "Reached expected number of succeeded pods",
                    "lastTransitionTime": now,
                }
            ]
            status["completionTime"] = now
        known = job.get("status", {})
        if {name: known.get(name) for name in status} != status:
            name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
            found = self._client.patch(
                "Job", name, {"status": status}, namespace, subresource="status"
            )
            self._informers.saw(found)

    # Pods

    def _schedule(self, pods: list[Document]) -> None:
        waiting = [
            pod
            for pod in pods
            if not pod["spec"].get("nodeName")
            and not pod["spec"].get("schedulingGates")
            and "deletionTimestamp" not in pod["metadata"]
            and pod["spec"].get("schedulerName", "default-scheduler") == "default-scheduler"
        ]
        if not waiting:
            return
        by_node = defaultdict(list)
        for pod in pods:
            if pod.get("status", {}).get("phase") not in _DONE:
                by_node[pod["spec"].get("nodeName", "")].append(pod)
        nodes = {node["metadata"]["name"]: node for node in self._informers.all("Node")}
        free = {name: _free(node, by_node[name]) for name, node in nodes.items()}
        for pod in waiting:
            name = self._place(pod, free)
            if name is None:
                continue
            for resource, value in _asked(pod).items():
                free[name][resource] -= value
            where = (pod["metadata"]["name"], pod["metadata"]["namespace"])
            self._client.call(
                "POST",
                path_of("Pod", *where, "binding"),
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": where[0]},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": name},
                },
            )

    def _place(self, pod: Document, free: dict[str, dict[str, Fraction]]) -> str | None:
        for node in sorted(self._informers.all("Node"), key=lambda n: str(n["metadata"]["name"])):
            name = node["metadata"]["name"]
            fits = all(free[name].get(r, Fraction(0)) >= v for r, v in _asked(pod).items())
            if fits and takes(node, pod):
                return str(name)
        return None

    def _run(self, pod: Document) -> None:
        """Start, end or remove a pod that is on a node, as its kubelet does."""
        metadata, status = pod["metadata"], pod.get("status", {})
        where = (metadata["name"], metadata["namespace"])
        if not pod["spec"].get("nodeName"):
            return
        if "deletionTimestamp" in metadata:
            since = self._ending.setdefault(metadata["uid"], time.monotonic())
            ends_s = float(metadata.get("annotations", {}).get(ENDS_S, 0))
            if time.monotonic() - since >= ends_s:
                self._client.delete("Pod", *where, gracePeriodSeconds=0)
        elif status.get("phase") == "Pending":
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": text_of(_now())}
            self._patch(
                where,
                {"phase": "Running", "startTime": text_of(_now()), "conditions": [ready]},
            )
        elif status.get("phase") == "Running" and _has_run(pod):
            self._patch(where, {"phase": "Succeeded"})

    def _patch(self, where: tuple[str, str], status: Document) -> None:
        name, namespace = where
        found = self._client.patch(
            "Pod", name, {"status": status}, namespace, form=STRATEGIC, subresource="status"
        )
        self._informers.saw(found)


def takes(node: Document, pod: Document) -> bool:
    """Whether a node is one that a pod selects, and one whose taints it tolerates."""
    labels = {
        "kubernetes.io/hostname": node["metadata"]["name"],
        **node["metadata"].get("labels", {}),
    }
    selector = pod["spec"].get("nodeSelector", {})
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    if node.get("spec", {}).get("unschedulable"):
        return False
    tolerations = pod["spec"].get("tolerations", ())
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in node.get("spec", {}).get("taints", ())
        if taint["effect"] in ("NoSchedule", "NoExecute")
    )


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator") == "Exists":
        return bool(toleration.get("key", taint["key"]) == taint["key"])
    same_key = toleration.get("key") == taint["key"]
    return bool(same_key and toleration.get("value", "") == taint.get("value", ""))


def _free(node: Document, pods: Iterable[Document]) -> dict[str, Fraction]:
    """Return what a node has that none of ``pods``, which are on it, asks for."""
    allocatable = node.get("status", {}).get("allocatable", {})
    found = {name: amount(value) for name, value in allocatable.items()}
    for pod in pods:
        for name, value in _asked(pod).items():
            found[name] = found.get(name, Fraction(0)) - value
    return found


def _asked(pod: Document) -> dict[str, Fraction]:
    total: dict[str, Fraction] = defaultdict(Fraction)
    for container in pod["spec"]["containers"]:
        resources = container.get("resources", {})
        asked = {**resources.get("limits", {}), **resources.get("requests", {})}
        for name, value in asked.items():
            total[name] += amount(value)
    return dict(total)


def _pod(job: Document, name: str) -> Document:
    template = job["spec"]["template"]
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job["metadata"]["name"],
        "uid": job["metadata"]["uid"],
        "controller": True,
    }
    metadata = {
        **template.get("metadata", {}),
        "name": name,
        "namespace": job["metadata"]["namespace"],
        "ownerReferences": [owner],
    }
    metadata["labels"] = {**metadata.get("labels", {}), "job-name": job["metadata"]["name"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _has_run(pod: Document) -> bool:
    run_s = pod["metadata"].get("annotations", {}).get(RUN_S)
    if run_s is None:
        return False
    start = moment_of(pod["status"]["startTime"])
    return _now() >= start + datetime.timedelta(seconds=float(run_s))


def _is_over(job: Document) -> bool:
    conditions = job.get("status", {}).get("conditions", ())
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
