"""What the bridge writes into objects of a cluster, as documents to apply. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from headroom.kueue import names
from headroom.kueue.api import Document
from headroom.kueue.nodes import Nodes
from headroom.kueue.parameters import KIND, Parameters
from headroom.kueue.reading import Check, Gang, condition_of
from headroom.schedulers.contract import Wait

__all__ = [
    "Refusal",
    "condition",
    "cordoned",
    "of_check",
    "pod_set_updates",
    "refusal",
    "selector",
    "taints",
    "with_condition",
]

#: Of a check's message: the CRD's.
_LONGEST = 32_768
_EFFECT = "NoSchedule"


def stamp(now: float) -> str:
    """Return Unix s as Kubernetes writes a time."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- Checks of workloads -------------------------------------------------------------------------


def of_check(
    workload: Document,
    check: Check,
    state: str,
    message: str,
    now: float,
    *,
    updates: Sequence[Document] = (),
    requeue_after_s: int | None = None,
) -> Document:
    """Return the state of our check of a workload, to be applied to it as it was read."""
    metadata = workload["metadata"]
    is_same = check.state == state and check.written.get("lastTransitionTime")
    entry: Document = {
        "name": check.name,
        "state": state,
        "message": message[:_LONGEST],
        "lastTransitionTime": check.written["lastTransitionTime"] if is_same else stamp(now),
    }
    if updates:
        entry["podSetUpdates"] = list(updates)
    if requeue_after_s is not None:
        entry["requeueAfterSeconds"] = requeue_after_s
    return {
        "apiVersion": workload["apiVersion"],
        "kind": workload["kind"],
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            # What was decided is for the workload as it was seen: else it is looked at again.
            "resourceVersion": metadata["resourceVersion"],
        },
        "status": {"admissionChecks": [entry]},
    }


def selector(lease: str, nodes: Sequence[str], known: Nodes) -> tuple[dict[str, str], bool]:
    """Return the labels of nodes that pods of a lease ask for, and whether we have to set them.

    A selector has one value for each key. So one node is asked for by its host name, which it has,
    and several by a label of the lease.
    """
    if len(nodes) == 1:
        labels = known.documents[nodes[0]]["metadata"].get("labels") or {}
        if hostname := labels.get(names.HOSTNAME):
            return {names.HOSTNAME: hostname}, False
    return {names.lease_label(lease): "true"}, True


def pod_set_updates(
    workload: Document,
    gang: Gang,
    lease: str,
    restarts: int,
    node_selector: Mapping[str, str],
    parameters: Parameters,
) -> list[Document]:
    """Return what pods that ask for GPUs are given under a lease."""
    annotations = {
        names.LEASE: lease,
        names.RESTARTS: str(restarts),
        names.WORKLOAD: workload["metadata"]["name"],
    }
    update: Document = {"annotations": annotations}
    if node_selector:
        update["nodeSelector"] = dict(node_selector)
    if parameters.tolerations:
        update["tolerations"] = msgspec.to_builtins(parameters.tolerations)
    return [{"name": podset, **update} for podset in gang.podsets]


@dataclass(frozen=True)
class Refusal:
    """What becomes of a workload that waits: ``Rejected``, or ``Retry`` after a time, s."""

    state: str
    requeue_after_s: int | None = None


def refusal(
    parameters: Parameters, wait: Wait, reserved_at: float | None, now: float
) -> Refusal | None:
    """Return whether a workload that holds quota gives it back; None: it keeps it.

    It comes back before it is likely to start: only who holds quota can be admitted.
    """
    if wait.is_never and parameters.never_possible == "Reject":
        return Refusal("Rejected")
    give = parameters.give_back
    held_s = 0.0 if reserved_at is None else now - reserved_at
    if not give.enabled or held_s < give.after_seconds:
        return None
    if wait.start_in_s is None or wait.is_never:
        return Refusal("Retry", give.most_seconds)
    if wait.start_in_s <= give.after_seconds:
        return None
    return Refusal(
        "Retry", int(min(max(wait.start_in_s / 2, give.least_seconds), give.most_seconds))
    )


# --- Conditions ----------------------------------------------------------------------------------


def condition(
    document: Mapping[str, Any], kind: str, *, holds: bool, reason: str, message: str, now: float
) -> Document | None:
    """Return a condition as it has to be; None: it is so."""
    known = condition_of(document, kind)
    status = "True" if holds else "False"
    wanted = {"type": kind, "status": status, "reason": reason, "message": message[:_LONGEST]}
    if all(known.get(key) == value for key, value in wanted.items()):
        return None
    since = known["lastTransitionTime"] if known.get("status") == status else stamp(now)
    generation = document["metadata"].get("generation", 1)
    return {**wanted, "lastTransitionTime": since, "observedGeneration": generation}


def with_condition(document: Document, new: Document) -> Document:
    """Return the status of a check, or of parameters, to be applied."""
    is_ours = document.get("kind") == KIND
    version = f"{names.GROUP}/{names.VERSION}" if is_ours else document["apiVersion"]
    return {
        "apiVersion": version,
        "kind": document["kind"],
        "metadata": {"name": document["metadata"]["name"]},
        "status": {"conditions": [new]},
    }


# --- Nodes ---------------------------------------------------------------------------------------


def cordoned(name: str, reason: str) -> Document:
    """Return a node cordoned by us for ``reason``, to be applied; without one, it is let go."""
    document: Document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    if reason:
        document["metadata"]["annotations"] = {names.RESTRICTED: reason}
        document["spec"] = {"unschedulable": True}
    return document


def taints(node: Document, *, restricted: bool) -> Document | None:
    """Return a patch that gives a node our taint, or takes it away; None: it is so.

    Taints are one list that nobody owns a part of: so it is written as a whole, and only where the
    node is as it was read.
    """
    known = (node.get("spec") or {}).get("taints") or []
    others = [each for each in known if each.get("key") != names.RESTRICTED]
    if (len(others) < len(known)) == restricted:
        return None
    ours = [{"key": names.RESTRICTED, "effect": _EFFECT}] if restricted else []
    return {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "spec": {"taints": [*others, *ours] or None},
    }
