"""Workloads and pods of a cluster, as the contract has them. Pure.

A workload waits for us while Kueue has reserved its quota, our check of it is pending, and every
other check is ready. Each eviction counts as a start: with it a lease is over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headroom.kueue import names
from headroom.kueue.api import Document
from headroom.kueue.nodes import Nodes, Selection, gpus_of
from headroom.kueue.parameters import Parameters
from headroom.kueue.pods import PodFacts, asked_of
from headroom.kueue.watching import key_of
from headroom.schedulers import words
from headroom.schedulers.contract import EndedAs, JobState, SchedulerJob

__all__ = [
    "Check",
    "Gang",
    "View",
    "check_of",
    "comment_of",
    "condition_of",
    "gang_of",
    "is_reserved",
    "job_of",
    "pod_job_of",
    "ref_of",
    "reserved_at",
    "stranded",
    "unix",
    "workload_uids",
    "wrong_words",
]

_LONGEST_REF = 100
_ODD = re.compile(r"[\s;]+")
#: Of ours in annotations of pods that are no words of owners.
_NO_WORDS = frozenset({names.LEASE, names.RESTARTS, names.WORKLOAD, names.DIRECTIVES, names.STATUS})
_TIMED_OUT = "MaximumExecutionTimeExceeded"
_UNBOUND = "it was admitted without Headroom, and none of its pods is on a node yet"


@dataclass(frozen=True)
class Check:
    """Our check of one workload: its name, and what Kueue and we have written there."""

    name: str
    parameters: Parameters
    written: Mapping[str, Any]

    @property
    def state(self) -> str:
        """Pending, Ready, Retry or Rejected."""
        return str(self.written.get("state", "Pending"))

    @property
    def annotations(self) -> Mapping[str, str]:
        """What pods are given under it."""
        updates = self.written.get("podSetUpdates") or ()
        return (updates[0].get("annotations") or {}) if updates and self.state == "Ready" else {}

    @property
    def selector(self) -> Mapping[str, str]:
        """The labels of the nodes that its pods are to run on."""
        updates = self.written.get("podSetUpdates") or ()
        return (updates[0].get("nodeSelector") or {}) if updates and self.state == "Ready" else {}


@dataclass(frozen=True)
class View:
    """What workloads are read with. ``checks``: ours, with what was chosen for each."""

    checks: Mapping[str, Parameters]
    flavors: Mapping[str, Document]
    nodes: Nodes
    #: for workloads that none of our checks looks at
    usual: Parameters


@dataclass(frozen=True)
class Gang:
    """The pods of a workload that ask for GPUs; ``podsets``: of those, by name.

    ``only`` are the nodes that they may run on, None: any.
    """

    gpus: int
    step: int | None
    nodes_wanted: int
    only: tuple[str, ...] | None
    podsets: tuple[str, ...]


def ref_of(*parts: str) -> str:
    """Return how the server calls something: its names, cut where they are too long."""
    whole = "/".join(parts)
    if len(whole) <= _LONGEST_REF:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:16]
    return f"{whole[: _LONGEST_REF - 17]}-{digest}"


def check_of(workload: Mapping[str, Any], checks: Mapping[str, Parameters]) -> Check | None:
    """Return our check of a workload; None: none of ours looks at it."""
    for each in (workload.get("status") or {}).get("admissionChecks") or ():
        if each["name"] in checks:
            return Check(each["name"], checks[each["name"]], each)
    return None


def model_of(resource: str) -> str:
    """Return which GPU a resource is: of slices their profile, ``nvidia.com/mig-1g.10gb``."""
    _, found, profile = resource.partition("/mig-")
    return profile if found else ""


def workload_uids(workload: Mapping[str, Any]) -> frozenset[str]:
    """Return the uids of the objects that a workload stands for, which own its pods."""
    metadata = workload["metadata"]
    labelled = (metadata.get("labels") or {}).get(names.KUEUE_JOB_UID)
    owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
    return frozenset(owners | ({labelled} if labelled else set()))


# --- Shape ---------------------------------------------------------------------------------------


def gang_of(workload: Mapping[str, Any], parameters: Parameters, view: View) -> Gang:
    """Return what the pods of a workload ask for, with what Kueue has assigned them."""
    resource, assigned = parameters.gpu_resource, _assigned(workload)
    gpus, most, podsets = 0, 0, []
    only: set[str] | None = None
    size = 0
    for podset in workload["spec"].get("podSets") or ():
        spec = podset["template"].get("spec") or {}
        of_pod, name = asked_of(spec, resource), podset.get("name") or "main"
        given = assigned.get(name, {})
        count = int(given.get("count", podset.get("count", 1)))
        if not of_pod or not count:
            continue
        gpus, most = gpus + of_pod * count, max(most, of_pod)
        podsets.append(name)
        match = view.nodes.matching(_selection(spec, given, parameters, view), resource)
        size = max(size, match.gpus)
        if not match.is_all:
            only = set(match.names) if only is None else only & set(match.names)
    step = _step(gpus, most, size)
    each = step or size or most or 1
    return Gang(
        gpus=gpus,
        step=step,
        nodes_wanted=-(-gpus // each),
        only=None if only is None else tuple(sorted(only)),
        podsets=tuple(podsets),
    )


def _assigned(workload: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    admission = (workload.get("status") or {}).get("admission") or {}
    return {each.get("name", "main"): each for each in admission.get("podSetAssignments") or ()}


def _selection(
    spec: Mapping[str, Any], given: Mapping[str, Any], parameters: Parameters, view: View
) -> Selection:
    labels: dict[str, str] = {}
    tolerations: list[Mapping[str, Any]] = [
        {"key": each.key, "operator": each.operator, "value": each.value, "effect": each.effect}
        for each in parameters.tolerations
    ]
    for flavor in sorted(set((given.get("flavors") or {}).values())):
        of_flavor = (view.flavors.get(flavor) or {}).get("spec") or {}
        labels |= of_flavor.get("nodeLabels") or {}
        tolerations += of_flavor.get("tolerations") or ()
    return Selection.of(spec, labels, tolerations)


def _step(gpus: int, of_pod: int, of_node: int) -> int | None:
    """Return how many GPUs of each node a gang takes; None: as they come.

    One node where it holds all, else whole nodes where pods fill them: then the scheduler of
    Kubernetes has no choice between the nodes of a gang.
    """
    if not of_node or of_pod > of_node:
        return of_pod or None
    if gpus <= of_node:
        return gpus
    if of_node % of_pod == 0 and gpus % of_node == 0:
        return of_node
    return of_pod if of_pod > 1 and gpus % of_pod == 0 else None


# --- State ---------------------------------------------------------------------------------------


def condition_of(document: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition of an object, as it was written last; empty: it was never."""
    conditions = (document.get("status") or {}).get("conditions") or ()
    found: Mapping[str, Any] = next((each for each in conditions if each["type"] == kind), {})
    return found


def _is(workload: Mapping[str, Any], kind: str) -> bool:
    return bool(condition_of(workload, kind).get("status") == "True")


def is_reserved(workload: Mapping[str, Any]) -> bool:
    """Say whether Kueue keeps quota for a workload, and is not about to take it back."""
    return _is(workload, "QuotaReserved") and not _is(workload, "Evicted")


def reserved_at(workload: Mapping[str, Any]) -> float | None:
    """Return since when Kueue keeps quota for a workload, Unix s."""
    return unix(condition_of(workload, "QuotaReserved").get("lastTransitionTime"))


def _state(
    workload: Mapping[str, Any], check: Check | None, pods: Sequence[PodFacts]
) -> tuple[JobState, str]:
    """Return the state of a workload, and why it waits or how it ended."""
    if _is(workload, "Finished"):
        return JobState.ENDED, str(condition_of(workload, "Finished").get("message", ""))
    is_evicted, is_admitted = _is(workload, "Evicted"), _is(workload, "Admitted")
    why = str(condition_of(workload, "Evicted").get("message", ""))
    begun = is_admitted or any(each.node for each in pods)
    if is_evicted and begun:
        # The quota may be back while its pods still end: they draw until they are gone.
        return JobState.ENDING, why
    if workload["spec"].get("active") is False:
        return _deactivated(workload, why)
    if is_admitted:
        return JobState.RUNNING, ""
    if is_evicted:
        return JobState.BLOCKED, f"it has given its quota back: {why}"
    if not _is(workload, "QuotaReserved"):
        said = condition_of(workload, "QuotaReserved").get("message")
        return JobState.BLOCKED, f"it waits for quota: {said or 'Kueue has not looked at it yet'}"
    return _of_checks(workload, check)


def _deactivated(workload: Mapping[str, Any], why: str) -> tuple[JobState, str]:
    annotations = workload["metadata"].get("annotations") or {}
    if names.CANCELLED in annotations:
        return JobState.ENDED, annotations[names.CANCELLED]
    if _TIMED_OUT in str(condition_of(workload, "Evicted").get("reason", "")):
        return JobState.ENDED, why
    return JobState.BLOCKED, f"it is deactivated: {why or 'spec.active is false'}"


def _of_checks(workload: Mapping[str, Any], check: Check | None) -> tuple[JobState, str]:
    for each in (workload.get("status") or {}).get("admissionChecks") or ():
        if (check is None or each["name"] != check.name) and each.get("state") != "Ready":
            said = each.get("message") or "it does not say why"
            return JobState.BLOCKED, f"it waits for the check {each['name']}: {said}"
    if check is not None and check.state in ("Retry", "Rejected"):
        return JobState.BLOCKED, f"it gives its quota back: {check.written.get('message', '')}"
    is_ready = check is None or check.state == "Ready"
    return (JobState.RELEASED if is_ready else JobState.HELD), ""


def _evictions(workload: Mapping[str, Any]) -> int:
    stats = (workload.get("status") or {}).get("schedulingStats") or {}
    return sum(int(each.get("count", 0)) for each in stats.get("evictions") or ())


_ENDS = {
    "Succeeded": EndedAs.SUCCEEDED,
    "Failed": EndedAs.FAILED,
    "FailedToStart": EndedAs.FAILED,
}


def _ended_as(workload: Mapping[str, Any]) -> EndedAs:
    if _is(workload, "Finished"):
        reason = str(condition_of(workload, "Finished").get("reason", ""))
        return _ENDS.get(reason, EndedAs.CANCELLED)
    if names.CANCELLED in (workload["metadata"].get("annotations") or {}):
        return EndedAs.CANCELLED
    return EndedAs.TIMED_OUT


def _ended_at(workload: Mapping[str, Any]) -> float | None:
    kind = "Finished" if _is(workload, "Finished") else "Evicted"
    return unix(condition_of(workload, kind).get("lastTransitionTime"))


# --- Jobs ----------------------------------------------------------------------------------------


def job_of(workload: Document, pods: Sequence[PodFacts], view: View) -> SchedulerJob | None:
    """Return one workload; ``pods``: those of its that live.

    None: it is nobody's business yet. It asks for no GPUs, waits without a check of ours, or runs
    without one and nobody knows where. One that a check of ours looks at is told in each state of
    its: what is told no more counts as lost.
    """
    check = check_of(workload, view.checks)
    parameters = check.parameters if check else view.usual
    gang = gang_of(workload, parameters, view)
    state, why = _state(workload, check, pods)
    waits = state in (JobState.HELD, JobState.BLOCKED, JobState.RELEASED)
    runs = state in (JobState.RUNNING, JobState.ENDING)
    if not gang.gpus or (check is None and waits):
        return None
    restarts = max(_evictions(workload) - (state is JobState.ENDING), 0)
    lease = _lease(check, pods, restarts)
    nodes = _nodes(check, pods, view) if runs else []
    if runs and not lease and check is None and not (nodes and all(each.node for each in pods)):
        return None
    if state is JobState.RUNNING and not lease and not nodes and check and check.state == "Ready":
        state, why = JobState.BLOCKED, _UNBOUND
    if waits and gang.only == ():
        state, why = JobState.BLOCKED, "no node has the labels that it asks for, and GPUs"
    metadata, spec = workload["metadata"], workload["spec"]
    name = parameters.node_name
    ended_as = _ended_as(workload) if state is JobState.ENDED else None
    return SchedulerJob(
        ref=ref_of(*key_of(workload)),
        state=state,
        restarts=restarts,
        lease=lease,
        name=_name(workload)[:200],
        user=_label(workload, parameters.user_label) or metadata["namespace"],
        account=_label(workload, parameters.project_label) or metadata["namespace"],
        partition=str(spec.get("queueName", ""))[:200],
        comment=_comment(workload),
        priority=int(spec.get("priority") or 0),
        submitted_at=unix(metadata.get("creationTimestamp")) or 0.0,
        gpus=gang.gpus if lease or not nodes else sum(each.gpus for each in pods),
        nodes_wanted=gang.nodes_wanted,
        gpus_per_node=gang.step,
        model=model_of(parameters.gpu_resource),
        only_nodes=[] if runs else [name.format(node=each) for each in gang.only or ()],
        time_limit_s=float(spec.get("maximumExecutionTimeSeconds") or 0) or None,
        can_requeue=not _is_of_pods(workload),
        why=why[:1000],
        nodes=[name.format(node=each) for each in nodes],
        started_at=_started_at(workload) if runs or state is JobState.ENDED else None,
        ended_at=_ended_at(workload) if state is JobState.ENDED else None,
        ended_as=ended_as,
        exit_code=0 if ended_as is EndedAs.SUCCEEDED else None,
        signals_seen=min((each.directives_seq for each in pods), default=0),
        signals_done=min((each.status.done for each in pods), default=0),
        checkpoint_at=_checkpoint_at(pods),
    )


def stranded(
    workload: Document, check: Check, job: SchedulerJob, pods: Sequence[PodFacts], view: View
) -> str:
    """Return why a workload that runs under a lease can never be whole; empty: it can.

    Nodes that it was placed on have gone from the cluster, and its pods are kept off all others.
    """
    if job.state is not JobState.RUNNING or not job.lease or not check.selector:
        return ""
    nodes, resource = view.nodes, check.parameters.gpu_resource
    left = nodes.with_labels(check.selector)
    there = sum(gpus_of(nodes.documents[name], resource) for name in left)
    bound = sum(each.gpus for each in pods if each.node)
    wanted = gang_of(workload, check.parameters, view).gpus
    if there >= wanted or bound >= wanted:
        return ""
    return f"of the nodes that it was placed on {len(left)} are left, with {there} GPUs of {wanted}"


def pod_job_of(pod: PodFacts, parameters: Parameters) -> SchedulerJob | None:
    """Return a pod that holds GPUs past Kueue as a job that runs; None: it holds none."""
    if not pod.gpus or not pod.node or not pod.is_alive:
        return None
    namespace, name = pod.key
    return SchedulerJob(
        ref=ref_of(namespace, "pod", name),
        state=JobState.RUNNING,
        name=(pod.owner or name)[:200],
        user=str(pod.labels.get(parameters.user_label) or namespace)[:200],
        account=str(pod.labels.get(parameters.project_label) or namespace)[:200],
        submitted_at=unix(pod.created_at) or 0.0,
        gpus=pod.gpus,
        gpus_per_node=pod.gpus,
        model=model_of(parameters.gpu_resource),
        nodes=[parameters.node_name.format(node=pod.node)],
        started_at=unix(pod.created_at),
        why="it runs past Kueue",
    )


def _lease(check: Check | None, pods: Sequence[PodFacts], restarts: int) -> str:
    """Return the lease of a workload that is good for its present start."""
    annotations = check.annotations if check else {}
    if annotations.get(names.RESTARTS) == str(restarts):
        return annotations.get(names.LEASE, "")
    return next((each.lease for each in pods if each.lease and each.restarts == restarts), "")


def _nodes(check: Check | None, pods: Sequence[PodFacts], view: View) -> list[str]:
    """Return where a workload runs; before its pods are bound, where they are to run."""
    bound = sorted({each.node for each in pods if each.node})
    if bound or check is None or not check.selector:
        return bound
    return sorted(view.nodes.with_labels(check.selector))


def _name(workload: Mapping[str, Any]) -> str:
    metadata = workload["metadata"]
    owners = metadata.get("ownerReferences") or ()
    said = (metadata.get("annotations") or {}).get(names.KUEUE_JOB_NAME)
    return str(said or (owners[0]["name"] if owners else metadata["name"]))


def _is_of_pods(workload: Mapping[str, Any]) -> bool:
    """Say whether a workload stands for plain pods: evicted, they are gone for good."""
    owners = workload["metadata"].get("ownerReferences") or ()
    return bool(owners) and all(each.get("kind") == "Pod" for each in owners)


def _templates(workload: Mapping[str, Any], part: str) -> Iterable[Mapping[str, str]]:
    for podset in workload["spec"].get("podSets") or ():
        yield (podset["template"].get("metadata") or {}).get(part) or {}


def _label(workload: Mapping[str, Any], key: str) -> str:
    metadata = workload["metadata"]
    found = (metadata.get("labels") or {}).get(key)
    return str(
        found or next(filter(None, (each.get(key) for each in _templates(workload, "labels"))), "")
    )[:200]


def _comment(workload: Mapping[str, Any]) -> str:
    return comment_of(_templates(workload, "annotations"))


def comment_of(annotations: Iterable[Mapping[str, str]]) -> str:
    """Return annotations of pods as words of ours: ``headroom.dev/peak-w`` is peak_w."""
    said: dict[str, str] = {}
    for given in annotations:
        for key, value in given.items():
            if key.startswith(names.PREFIX) and key not in _NO_WORDS:
                word = key.removeprefix(names.PREFIX).replace("-", "_")
                said.setdefault(word, _ODD.sub("_", value.strip()))
    if not said:
        return ""
    return ("headroom: " + " ".join(f"{word}={value}" for word, value in sorted(said.items())))[
        :1000
    ]


def wrong_words(workload: Mapping[str, Any]) -> list[str]:
    """Return what of a workload's annotations cannot be read, and why."""
    return words.read(_comment(workload)).wrong


def _started_at(workload: Mapping[str, Any]) -> float | None:
    admitted = condition_of(workload, "Admitted")
    if admitted.get("status") == "True":
        return unix(admitted.get("lastTransitionTime"))
    return None


def _checkpoint_at(pods: Sequence[PodFacts]) -> float | None:
    told = [each.status.checkpoint_at for each in pods if each.status.checkpoint_at]
    return min(told) if told and len(told) == len(pods) else None


def unix(text: str | None) -> float | None:
    """Return a time of Kubernetes in Unix s."""
    return datetime.fromisoformat(text).timestamp() if text else None
