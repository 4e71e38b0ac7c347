"""The cluster as it is known: what watches bring, read again where it has changed, and only there.

A fleet has tens of thousands of pods and workloads, and few of them change in a second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from headroom.kueue import names, nodes, parameters, pods, reading
from headroom.kueue.api import Document
from headroom.kueue.nodes import Nodes
from headroom.kueue.parameters import BadParameters, Parameters
from headroom.kueue.pods import PodFacts
from headroom.kueue.reading import View
from headroom.kueue.watching import Key, Store
from headroom.schedulers.contract import JobState, SchedulerJob, SchedulerNode

__all__ = ["KINDS", "Seen"]

#: What is watched, and of it what.
KINDS = {
    "AdmissionCheck": "",
    parameters.KIND: "",
    "ResourceFlavor": "",
    "Node": "",
    "Workload": "",
    # Those that nobody has bound to a node hold nothing, nor do those that are over.
    "Pod": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
}


class Seen:
    """Jobs and nodes of a cluster. :meth:`refresh` takes in what has changed."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = stores
        self.jobs: dict[str, SchedulerJob] = {}
        #: keys of workloads, by ref
        self.workloads: dict[str, Key] = {}
        #: our checks: what was chosen for each, or what is wrong with it
        self.checks: dict[str, Parameters | BadParameters] = {}
        self.nodes: list[SchedulerNode] = []
        self.view = View({}, {}, Nodes({}), Parameters())
        self._settings: tuple[Any, ...] = ()
        self._pods: dict[Key, PodFacts] = {}
        self._of_workload: dict[Key, dict[Key, PodFacts]] = defaultdict(dict)
        self._workload_of: dict[Key, Key] = {}
        self._by_uid: dict[str, Key] = {}
        self._uids: dict[Key, frozenset[str]] = {}
        self._documents: dict[str, Document] = {}
        self._told_nodes: dict[str, SchedulerNode] = {}
        self._node_shapes: dict[str, tuple[Any, ...]] = {}
        self._lease_labels: dict[str, list[str]] = {}
        #: by workload
        self._leased: dict[Key, str] = {}
        #: workloads that are admitted, and cannot be whole where they are to run, by ref: why
        self.stranded: dict[str, str] = {}

    @property
    def is_whole(self) -> bool:
        """Whether all kinds were listed."""
        return all(store.is_listed for store in self._stores.values())

    def workload(self, ref: str) -> Document | None:
        """Return a workload; None: it is gone, or is a pod."""
        key = self.workloads.get(ref)
        return self._stores["Workload"].get(key) if key else None

    def pods_of(self, ref: str) -> list[PodFacts]:
        """Return the pods of a workload that hold something."""
        return list(self._of_workload.get(self.workloads.get(ref, ("", "")), {}).values())

    def node(self, name: str) -> Document | None:
        """Return a node."""
        return self._stores["Node"].get(("", name))

    def check(self, name: str) -> Document | None:
        """Return an admission check."""
        return self._stores["AdmissionCheck"].get(("", name))

    def parameters(self) -> list[Document]:
        """Return all parameters that there are."""
        return self._stores[parameters.KIND].all()

    def labels_over(self) -> dict[str, list[str]]:
        """Return the labels of leases that no pods look for any more, by node."""
        in_force = set(self._leased.values())
        return {
            name: over
            for name, labels in self._lease_labels.items()
            if (over := [label for label in labels if label not in in_force])
        }

    def refresh(self) -> None:
        """Take in what has changed."""
        changed = {kind: store.changed() for kind, store in self._stores.items()}
        is_other = self._read_settings(changed)
        if is_other or changed["Node"]:
            keys = set(self._stores_keys("Node")) if is_other else set()
            is_other |= self._read_nodes(changed["Node"] | keys)
        stale = self._follow_workloads(changed["Workload"])
        # Those that are gone are in no store any more.
        keys_of_pods = changed["Pod"] | (set(self._stores_keys("Pod")) if is_other else set())
        stale |= self._follow_pods(keys_of_pods)
        if is_other:
            stale |= set(self._stores_keys("Workload"))
        for key in stale:
            self._read_workload(key)

    def _stores_keys(self, kind: str) -> list[Key]:
        return [
            (each["metadata"].get("namespace") or "", each["metadata"]["name"])
            for each in self._stores[kind].all()
        ]

    # --- Settings and nodes -----------------------------------------------------------------------

    def _read_settings(self, changed: Mapping[str, set[Key]]) -> bool:
        """Read checks, parameters and flavors; return whether anything is other than it was."""
        if not any(changed[kind] for kind in ("AdmissionCheck", parameters.KIND, "ResourceFlavor")):
            return False
        self.checks = {
            each["metadata"]["name"]: self._parameters_of(each)
            for each in self._stores["AdmissionCheck"].all()
            if each["spec"].get("controllerName") == names.CONTROLLER
        }
        good = {
            name: each
            for name, each in sorted(self.checks.items())
            if not isinstance(each, BadParameters)
        }
        flavors = {each["metadata"]["name"]: each for each in self._stores["ResourceFlavor"].all()}
        settings = (good, {name: each.get("spec") for name, each in flavors.items()})
        if settings == self._settings:
            return False
        self._settings = settings
        usual = next(iter(good.values()), Parameters())
        self.view = View(good, flavors, Nodes({}), usual)
        return True

    def _parameters_of(self, check: Document) -> Parameters | BadParameters:
        try:
            name = parameters.reference(check)
            found = self._stores[parameters.KIND].get(("", name))
            if found is None:
                raise BadParameters(f"there is no {parameters.KIND} {name!r}")
            return parameters.read(found)
        except BadParameters as error:
            return error

    def _read_nodes(self, keys: set[Key]) -> bool:
        """Read nodes; return whether pods may run on others, or on more or less, than before."""
        usual, old, is_other = self.view.usual, self.view.nodes, False
        for key in keys:
            name, node = key[1], self._stores["Node"].get(key)
            if node is not None and not nodes.gpus_of(node, usual.gpu_resource):
                node = None
            before = self._node_shapes.pop(name, None)
            self._told_nodes.pop(name, None)
            self._documents.pop(name, None)
            self._lease_labels.pop(name, None)
            if node is not None:
                self._documents[name] = node
                self._told_nodes[name] = nodes.node_of(node, usual)
                self._node_shapes[name] = _shape(node, usual)
                if labels := _lease_labels(node):
                    self._lease_labels[name] = labels
            is_other |= before != self._node_shapes.get(name)
        new = Nodes(dict(self._documents))
        if not is_other:
            # Labels of leases come and go with each start.
            new.keep_matches_of(old)
        self.nodes = list(self._told_nodes.values())
        self.view = View(self.view.checks, self.view.flavors, new, usual)
        return is_other

    # --- Workloads and pods -----------------------------------------------------------------------

    def _follow_workloads(self, keys: set[Key]) -> set[Key]:
        for key in keys:
            workload = self._stores["Workload"].get(key)
            for uid in self._uids.pop(key, frozenset()):
                self._by_uid.pop(uid, None)
            if workload is not None:
                self._uids[key] = reading.workload_uids(workload)
                self._by_uid |= dict.fromkeys(self._uids[key], key)
        known = self._uids.keys()
        lost = [pod for pod, key in self._workload_of.items() if key in keys and key not in known]
        strays = [key for key in self._pods if key not in self._workload_of] if keys else []
        return set(keys) | self._follow_pods({*lost, *strays})

    def _follow_pods(self, keys: set[Key]) -> set[Key]:
        """Read pods; return the workloads that they are, or were, of."""
        stale = set()
        for key in keys:
            before = self._workload_of.pop(key, None)
            if before is not None:
                self._of_workload[before].pop(key, None)
                stale.add(before)
            self._put_job(reading.ref_of(key[0], "pod", key[1]), None)
            self._pods.pop(key, None)
            document = self._stores["Pod"].get(key)
            if document is None:
                continue
            pod = pods.pod_of(document, self.view.usual.gpu_resource)
            if not pod.gpus or not pod.is_alive:
                continue
            self._pods[key] = pod
            workload = self._owner_of(pod)
            if workload is None:
                job = reading.pod_job_of(pod, self.view.usual)
                self._put_job(reading.ref_of(key[0], "pod", key[1]), job)
                continue
            self._workload_of[key] = workload
            self._of_workload[workload][key] = pod
            stale.add(workload)
        return stale

    def _owner_of(self, pod: PodFacts) -> Key | None:
        if pod.workload in self._uids:
            return pod.workload
        return next((self._by_uid[uid] for uid in pod.owner_uids if uid in self._by_uid), None)

    def _read_workload(self, key: Key) -> None:
        ref, workload = reading.ref_of(*key), self._stores["Workload"].get(key)
        self._leased.pop(key, None)
        self.stranded.pop(ref, None)
        if workload is None:
            self.workloads.pop(ref, None)
            self._of_workload.pop(key, None)
            self._put_job(ref, None)
            return
        self.workloads[ref] = key
        mine = list(self._of_workload.get(key, {}).values())
        job, check = reading.job_of(workload, mine, self.view), None
        if job is not None and job.state is not JobState.ENDED:
            check = reading.check_of(workload, self.view.checks)
        for label in check.selector if check else ():
            self._leased[key] = label
        if job is not None and check is not None:
            why = reading.stranded(workload, check, job, mine, self.view)
            self.stranded |= {ref: why} if why else {}
        self._put_job(ref, job)

    def _put_job(self, ref: str, job: SchedulerJob | None) -> None:
        if job is None:
            self.jobs.pop(ref, None)
        else:
            self.jobs[ref] = job


def _shape(node: Document, usual: Parameters) -> tuple[Any, ...]:
    """Return what of a node decides which pods may run there."""
    labels = node["metadata"].get("labels") or {}
    taints = (node.get("spec") or {}).get("taints") or ()
    return (
        nodes.gpus_of(node, usual.gpu_resource),
        {key: value for key, value in labels.items() if not names.is_lease_label(key)},
        [each for each in taints if each.get("key") != names.RESTRICTED],
    )


def _lease_labels(node: Document) -> list[str]:
    return [key for key in node["metadata"].get("labels") or {} if names.is_lease_label(key)]
