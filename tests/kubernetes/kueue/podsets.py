"""What an admission makes of a job's pods: labels, selectors and tolerations, merged.

Facts by file of Kueue v0.19.2: ``pkg/podset/podset.go`` and ``getPodSetsInfoFromStatus`` of
``pkg/controller/jobframework/reconciler.go``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

Document = dict[str, Any]


class PodSetConflict(Exception):
    """Two sides ask for different values of one key: the workload cannot start, ever."""


def started(template: Document, workload: Document, flavors: Mapping[str, Document]) -> Document:
    """Return the pod template of a job as it starts, with what flavors and checks add.

    Raises:
        PodSetConflict: A key would be changed, which nothing may do.
    """
    assignment = workload["status"]["admission"]["podSetAssignments"][0]
    added = _of_flavors(assignment, flavors)
    added["labels"] = {"kueue.x-k8s.io/podset": assignment["name"]}
    for check in workload["status"].get("admissionChecks", ()):
        for update in check.get("podSetUpdates", ()):
            if update["name"] == assignment["name"]:
                try:
                    _merge(added, update)
                except PodSetConflict as conflict:
                    raise PodSetConflict(
                        f'in admission check "{check["name"]}": {conflict}'
                    ) from None
                break
    return _with(template, added)


def _of_flavors(assignment: Document, flavors: Mapping[str, Document]) -> Document:
    added: Document = {"nodeSelector": {}, "tolerations": []}
    for name in sorted(set(assignment.get("flavors", {}).values())):
        spec = flavors[name].get("spec", {})
        added["nodeSelector"] |= spec.get("nodeLabels", {})
        added["tolerations"] += spec.get("tolerations", [])
    return added


def _merge(into: Document, update: Mapping[str, Any]) -> None:
    for part in ("annotations", "labels", "nodeSelector"):
        have, more = into.get(part, {}), update.get(part, {})
        for key in sorted(have.keys() & more.keys()):
            if have[key] != more[key]:
                raise PodSetConflict(
                    f"invalid admission check PodSetUpdate: conflict for {part}: conflict for key"
                    f"={key}, value1={have[key]}, value2={more[key]}"
                )
        into[part] = {**have, **more}
    into["tolerations"] = _joined(into.get("tolerations", ()), update.get("tolerations", ()))


def _joined(have: Iterable[Document], more: Iterable[Document]) -> list[Document]:
    found = list(have)
    return found + [toleration for toleration in more if toleration not in found]


def _with(template: Document, added: Document) -> Document:
    found = copy.deepcopy(template)
    metadata = found.setdefault("metadata", {})
    spec = found["spec"]
    parts = {
        "annotations": metadata.get("annotations", {}),
        "labels": metadata.get("labels", {}),
        "nodeSelector": spec.get("nodeSelector", {}),
        "tolerations": spec.get("tolerations", []),
    }
    _merge(parts, added)
    metadata["annotations"], metadata["labels"] = parts["annotations"], parts["labels"]
    spec["nodeSelector"], spec["tolerations"] = parts["nodeSelector"], parts["tolerations"]
    return found
