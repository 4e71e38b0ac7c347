"""Names that stand in objects of a cluster: ours, and those of Kueue that we read."""

from __future__ import annotations

import hashlib

__all__ = [
    "CONDITION_AGREES",
    "CONTROLLER",
    "FIELD_MANAGER",
    "GROUP",
    "PREFIX",
    "VERSION",
    "lease_label",
]

GROUP = "headroom.dev"
VERSION = "v1beta1"
PREFIX = f"{GROUP}/"
#: ``spec.controllerName`` of our admission checks.
CONTROLLER = f"{GROUP}/kueue"
FIELD_MANAGER = "headroom"

#: On pods, by ``podSetUpdates``: the lease, the starts before it, and whose pod it is.
LEASE = f"{PREFIX}lease"
RESTARTS = f"{PREFIX}restarts"
WORKLOAD = f"{PREFIX}workload"
#: On pods that run: what they are to do now, and what they say of themselves.
DIRECTIVES = f"{PREFIX}directives"
STATUS = f"{PREFIX}status"
#: On workloads that we have ended for good.
CANCELLED = f"{PREFIX}cancelled"
#: On nodes that we have cordoned: why. The taint has the same key.
RESTRICTED = f"{PREFIX}restricted"
#: A condition of our parameters: whether labels of nodes say what the inventory says.
CONDITION_AGREES = "InventoryAgrees"

HOSTNAME = "kubernetes.io/hostname"
KUEUE = "kueue.x-k8s.io"
#: On pods, by Kueue, where it tells.
KUEUE_WORKLOAD = f"{KUEUE}/workload"
#: On workloads, by Kueue.
KUEUE_JOB_UID = f"{KUEUE}/job-uid"
KUEUE_JOB_NAME = f"{KUEUE}/job-owner-name"

_LEASE_PREFIX = f"lease.{PREFIX}"


def lease_label(key: str) -> str:
    """Return the label of nodes on which the pods of a lease may run.

    A key of its own, as a node has one value for each: so leases can share a node.
    """
    return f"{_LEASE_PREFIX}{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def is_lease_label(key: str) -> bool:
    """Say whether a label of a node stands for a lease."""
    return key.startswith(_LEASE_PREFIX)
