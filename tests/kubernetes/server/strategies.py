"""What core kinds do besides their schemas: first states, and what cannot be changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from tests.kubernetes.server.errors import Cause
from tests.kubernetes.server.schemas import Resource
from tests.kubernetes.server.validation import check_quantities

Document = dict[str, Any]

_IMMUTABLE = "field is immutable"


def begin(resource: Resource, document: Document) -> None:
    """Give a new object, in place, the state that it starts in."""
    if resource.status and resource.plural != "nodes":
        document.pop("status", None)
    if resource.origin == "custom":
        return
    if resource.plural == "pods":
        document["status"] = {"phase": "Pending", "qosClass": "Burstable"}
        document["spec"].setdefault("restartPolicy", "Always")
        document["spec"].setdefault("schedulerName", "default-scheduler")
        document["spec"].setdefault("terminationGracePeriodSeconds", 30)
        gates = document["spec"].get("schedulingGates")
        if gates:
            document["status"]["conditions"] = [
                {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
            ]
    elif resource.plural == "nodes":
        document.setdefault("spec", {})
        document.setdefault("status", {})
    elif resource.plural == "namespaces":
        document["status"] = {"phase": "Active"}
    elif resource.plural == "customresourcedefinitions":
        document["status"] = _established(document["spec"])


def _established(spec: Document) -> Document:
    versions = [version["name"] for version in spec["versions"] if version["storage"]]
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": ""}
        for kind, reason in (
            ("NamesAccepted", "NoConflicts"),
            ("Established", "InitialNamesAccepted"),
        )
    ]
    return {"acceptedNames": spec["names"], "conditions": conditions, "storedVersions": versions}


def check_kind(resource: Resource, document: Document, old: Document | None) -> Iterator[Cause]:
    """Find what a core kind refuses although its schema allows it."""
    if resource.origin == "custom":
        return
    spec = document.get("spec", {})
    if resource.plural == "pods":
        yield from _check_pod(spec, old and old["spec"])
    elif resource.plural == "leases":
        if spec.get("leaseDurationSeconds", 1) <= 0:
            yield Cause(
                "FieldValueInvalid",
                "spec.leaseDurationSeconds",
                f"Invalid value: {spec['leaseDurationSeconds']}: must be greater than 0",
            )
    elif resource.plural == "jobs" and old:
        for name in ("completions", "selector", "template", "completionMode"):
            suspended = old["spec"].get("suspend") and name == "template"
            if not suspended and spec.get(name) != old["spec"].get(name):
                yield Cause("FieldValueInvalid", f"spec.{name}", f"Invalid value: {_IMMUTABLE}")


def _check_pod(spec: Document, old: Document | None) -> Iterator[Cause]:
    for number, container in enumerate(spec.get("containers", ())):
        for kind in ("requests", "limits"):
            amounts = container.get("resources", {}).get(kind, {})
            yield from check_quantities(amounts, f"spec.containers[{number}].resources.{kind}")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield Cause(
            "FieldValueForbidden",
            "spec.nodeName",
            "Forbidden: cannot be set until all schedulingGates have been cleared",
        )
    if old is not None and _fixed(spec, old) != _fixed(old, old):
        yield Cause(
            "FieldValueForbidden",
            "spec",
            "Forbidden: pod updates may not change fields other"
            " than `spec.containers[*].image`,`spec.initContainers[*].image`,"
            "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing"
            " tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was"
            " previously negative)",
        )


def _fixed(spec: Document, old: Document) -> Document:
    """Return what may not change: all but images, more tolerations, and fewer gates."""
    found = copy.deepcopy(spec)
    for container in [*found.get("containers", ()), *found.get("initContainers", ())]:
        container.pop("image", None)
    found.pop("activeDeadlineSeconds", None)
    given = found.pop("tolerations", [])
    found["lost"] = [t for t in old.get("tolerations", ()) if t not in given]
    gates = found.pop("schedulingGates", [])
    found["new gates"] = [g for g in gates if g not in old.get("schedulingGates", ())]
    if old.get("schedulingGates"):
        selector = found.pop("nodeSelector", {})
        kept = old.get("nodeSelector", {})
        found["lost selectors"] = [k for k, v in kept.items() if selector.get(k) != v]
    return found
