"""Kueue's controllers in one thread: workloads, quota, and jobs of batch/v1."""

from __future__ import annotations

import copy
import datetime
import hashlib
import queue
import threading
import time
from types import TracebackType
from typing import Any

import urllib3

from tests.kubernetes.client import Client, Refused
from tests.kubernetes.kueue import podsets, quota, states
from tests.kubernetes.kueue.informers import Informers
from tests.kubernetes.kueue.nodes import Nodes

Document = dict[str, Any]

_KINDS = (
    "AdmissionCheck",
    "ClusterQueue",
    "Job",
    "LocalQueue",
    "Node",
    "Pod",
    "ResourceFlavor",
    "Workload",
)
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
#: How long nothing has to have changed before quota is given anew, seconds.
_PAUSE_S = 0.02


class Kueue:
    """What runs beside an API server in a cluster with Kueue, until the block is left.

    Jobs with a queue are held and started; their pods are bound to nodes that fit, run for
    ``tests/run-s`` seconds (an annotation of the pod template) and succeed. A workload that no job
    owns counts as one whose pods are gone as soon as it is evicted.
    """

    def __init__(self, client: Client, *, evicts_at_once: bool = True) -> None:
        self._client = client
        self._evicts_at_once = evicts_at_once
        self._informers = Informers(client, _KINDS)
        self._nodes = Nodes(client, self._informers)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: While it is set, Kueue has other things to do.
        self.is_busy = threading.Event()
        #: What went wrong in its thread, for tests to see.
        self.errors: list[Exception] = []

    def __enter__(self) -> Kueue:
        self._informers.start()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(timeout=10)
        self._informers.stop()
        if self.errors and error is None:
            raise self.errors[0]

    def _run(self) -> None:
        looked_at = 0.0
        while not self._stopping.is_set():
            if self.is_busy.is_set():
                time.sleep(_PAUSE_S)
                continue
            try:
                is_quiet = self._take_change()
                if is_quiet or time.monotonic() - looked_at > 0.2:
                    self._round()
                    looked_at = time.monotonic()
            except (urllib3.exceptions.HTTPError, OSError):
                time.sleep(0.05)
            except Refused as refused:
                # Conflicts and objects that went are news on their way, as is a server that starts.
                if refused.code not in (404, 409, 429, 500, 503):
                    self.errors.append(refused)
                time.sleep(_PAUSE_S)
            except Exception as error:
                self.errors.append(error)
                time.sleep(_PAUSE_S)

    def _take_change(self) -> bool:
        """Look at one changed object. Return whether there was none."""
        try:
            kind, (namespace, name) = self._informers.changed.get(timeout=_PAUSE_S)
        except queue.Empty:
            return True
        if kind == "Workload":
            self._look_at_workload(namespace, name)
        elif kind == "Job":
            self._look_at_job(namespace, name)
        return False

    def _round(self) -> None:
        """Do what goes by time, or by many objects at once."""
        for definition in self._informers.all("ClusterQueue"):
            self._serve(definition)
        self._nodes.round()
        now = _now()
        for workload in self._informers.all("Workload"):
            at, requeued = states.requeue_at(workload), states.condition(workload, "Requeued")
            is_put_off = requeued is not None and requeued["status"] == "False"
            if (at is not None and at <= now) or is_put_off:
                self._look_at_workload(
                    workload["metadata"]["namespace"], workload["metadata"]["name"]
                )
        for job in self._informers.all("Job"):
            self._look_at_job(job["metadata"]["namespace"], job["metadata"]["name"])

    # Workloads

    def _look_at_workload(self, namespace: str, name: str) -> None:
        workload = self._informers.get("Workload", name, namespace)
        if workload is None:
            return
        definition = self._queue_of(workload)
        wanted = quota.checks_for(workload, definition) if definition else None
        rules = states.Rules(wanted, self._evicts_at_once)
        write = states.next_write(workload, rules, _now())
        if write is not None:
            self._write(write.how, write.workload)
        elif not workload["metadata"].get("ownerReferences"):
            self._clear(workload)

    def _clear(self, workload: Document) -> None:
        """Give back the quota of what was evicted and has no pods any more."""
        if states.holds(workload, "Evicted") and states.holds(workload, "QuotaReserved"):
            wanted = copy.deepcopy(workload)
            states.clear_admission(wanted, _now())
            self._write("apply status", wanted)

    def _write(self, how: str, workload: Document) -> None:
        if how == "apply status":
            found = self._client.apply(
                states.applied(workload), "status", force=True, fieldManager=states.MANAGER
            )
        elif how == "update status":
            found = self._client.update(workload, "status", fieldManager="kueue")
        else:
            found = self._client.update(workload, fieldManager="kueue")
        self._informers.saw(found)

    def _queue_of(self, workload: Document) -> Document | None:
        name = workload["spec"].get("queueName", "")
        local = self._informers.get("LocalQueue", name, workload["metadata"]["namespace"])
        if local is None:
            return None
        return self._informers.get("ClusterQueue", local["spec"].get("clusterQueue", ""))

    # Quota

    def _serve(self, definition: Document) -> None:
        checks = {
            check["metadata"]["name"]: check for check in self._informers.all("AdmissionCheck")
        }
        flavors = {flavor["metadata"]["name"] for flavor in self._informers.all("ResourceFlavor")}
        why = quota.inactive_reason(definition, checks, flavors)
        self._report(definition, why)
        every = [w for w in self._informers.all("Workload") if self._is_of(w, definition)]
        now = _now()
        if why:
            message = f"ClusterQueue {definition['metadata']['name']} is inactive"
            for workload in every:
                if states.is_queued(workload, now):
                    self._hold(workload, "Inadmissible", message)
            return
        looked_at = [each for each in every if self._has_its_checks(each, definition)]
        for decision in quota.decide(definition, looked_at, now):
            self._carry_out(decision, now)

    def _has_its_checks(self, workload: Document, definition: Document) -> bool:
        """Whether the checks of all flavors stand in it, as they do before there is quota."""
        there = {check["name"] for check in states.checks(workload)}
        wanted = quota.checks_for(workload, definition)
        if there >= wanted or not states.is_queued(workload, _now()):
            return True
        self._look_at_workload(workload["metadata"]["namespace"], workload["metadata"]["name"])
        return False

    def _is_of(self, workload: Document, definition: Document) -> bool:
        found = self._queue_of(workload)
        return found is not None and found["metadata"]["name"] == definition["metadata"]["name"]

    def _report(self, definition: Document, why: str) -> None:
        wanted = copy.deepcopy(definition)
        message = f"Can't admit new workloads: {why}" if why else "Can admit new workloads"
        if states.set_condition(wanted, "Active", not why, why or "Ready", message, _now()):
            found = self._client.update(wanted, "status", fieldManager="kueue")
            self._informers.saw(found)

    def _carry_out(self, decision: quota.Decision, now: datetime.datetime) -> None:
        if decision.waits_for:
            self._hold(decision.workload, "Pending", decision.waits_for)
            return
        wanted = copy.deepcopy(decision.workload)
        if decision.admission is not None:
            states.reserve(wanted, decision.admission, now)
            definition = self._queue_of(wanted)
            needed = quota.checks_for(wanted, definition) if definition else frozenset()
            # Quota and admission come in one write where no check has to be heard.
            if {check["name"] for check in states.checks(wanted)} >= needed:
                states.sync_admitted(wanted, now)
            self._write("apply status", wanted)
        else:
            message = (
                f"Preempted to accommodate a workload (UID: {decision.preempted_for}, JobUID:"
                " UNKNOWN) due to prioritization in the ClusterQueue"
            )
            states.preempt(wanted, message, now)
            self._write("apply status", wanted)

    def _hold(self, workload: Document, reason: str, message: str) -> None:
        known = states.condition(workload, "QuotaReserved") or {}
        if (known.get("status"), known.get("reason"), known.get("message")) == (
            "False", reason, message
        ):  # fmt: skip
            return
        wanted = copy.deepcopy(workload)
        if states.set_condition(wanted, "QuotaReserved", False, reason, message, _now()):
            self._write("apply status", wanted)

    # Jobs

    def _look_at_job(self, namespace: str, name: str) -> None:
        job = self._informers.get("Job", name, namespace)
        if job is None or _QUEUE_LABEL not in job["metadata"].get("labels", {}):
            return
        workload = self._informers.get("Workload", workload_name(job), namespace)
        if workload is None:
            self._make_workload(job)
        elif not states.holds(workload, "Finished"):
            self._drive(job, workload)

    def _make_workload(self, job: Document) -> None:
        if "deletionTimestamp" in job["metadata"] or _ended(job):
            return
        spec = job["spec"]
        pod_set = {
            "name": "main",
            "count": spec.get("parallelism", 1),
            "template": spec["template"],
        }
        owner = {
            "apiVersion": job["apiVersion"],
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        made = self._client.create(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {
                    "name": workload_name(job),
                    "namespace": job["metadata"]["namespace"],
                    "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                    "labels": {"kueue.x-k8s.io/job-uid": job["metadata"]["uid"]},
                    "annotations": job["metadata"].get("annotations", {}),
                    "ownerReferences": [owner],
                },
                "spec": {
                    "queueName": job["metadata"]["labels"][_QUEUE_LABEL],
                    "podSets": [pod_set],
                    "priority": int(job["metadata"]["labels"].get("tests/priority", 0)),
                },
            },
            fieldManager="kueue",
        )
        self._informers.saw(made)

    def _drive(self, job: Document, workload: Document) -> None:
        ended = _ended(job)
        if ended is not None:
            wanted = copy.deepcopy(workload)
            reason = "Succeeded" if ended["type"] == "Complete" else "Failed"
            states.finish(wanted, reason, ended.get("message", ""), _now())
            self._write("apply status", wanted)
        elif states.holds(workload, "Evicted"):
            self._stop(job, workload)
        elif job["spec"].get("suspend") and states.holds(workload, "Admitted"):
            self._begin(job, workload)
        elif not job["spec"].get("suspend") and not states.holds(workload, "Admitted"):
            self._stop(job, workload)

    def _begin(self, job: Document, workload: Document) -> None:
        flavors = {f["metadata"]["name"]: f for f in self._informers.all("ResourceFlavor")}
        try:
            template = podsets.started(job["spec"]["template"], workload, flavors)
        except podsets.PodSetConflict as conflict:
            wanted = copy.deepcopy(workload)
            states.finish(wanted, "FailedToStart", str(conflict), _now())
            self._write("apply status", wanted)
            return
        spec = {**job["spec"], "suspend": False, "template": template}
        self._informers.saw(self._client.update({**job, "spec": spec}, fieldManager="kueue"))

    def _stop(self, job: Document, workload: Document) -> None:
        """Suspend a job, put its template back, and clear the admission once its pods are gone."""
        if not job["spec"].get("suspend"):
            spec = {**job["spec"], "suspend": True}
            found = self._client.update({**job, "spec": spec}, fieldManager="kueue")
            self._informers.saw(found)
        elif job["spec"]["template"] != workload["spec"]["podSets"][0]["template"]:
            template = workload["spec"]["podSets"][0]["template"]
            spec = {**job["spec"], "template": template}
            found = self._client.update({**job, "spec": spec}, fieldManager="kueue")
            self._informers.saw(found)
        elif not job.get("status", {}).get("active"):
            self._clear(workload)


def workload_name(job: Document) -> str:
    """Return the name of the workload that is made of a job."""
    metadata = job["metadata"]
    digest = hashlib.sha1(f"Job/{metadata['name']}/{metadata['uid']}".encode()).hexdigest()
    return f"job-{metadata['name']}-{digest[:5]}"


def _ended(job: Document) -> Document | None:
    conditions = job.get("status", {}).get("conditions", ())
    return next(
        (c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"),
        None,
    )


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
