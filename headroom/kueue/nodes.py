"""Nodes of a cluster: what the server is told of them, and which of them pods may run on. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headroom.kueue import names
from headroom.kueue.api import Document
from headroom.kueue.parameters import Parameters
from headroom.schedulers.contract import NodeState, SchedulerNode

__all__ = ["Match", "Nodes", "Selection", "gpus_of", "has_cordon_of_ours", "node_of", "quantity"]

#: Taints that say that a node has no power, by people or by a cloud.
_OFF = ("node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown")
#: Of Kubernetes itself: the state of the node, which the server is told, says the same.
_OF_NODES = "node.kubernetes.io/"
_KEEPS_OFF = frozenset({"NoSchedule", "NoExecute"})


def quantity(text: Any) -> int:
    """Return how many ``4``, ``"4"`` or ``"1k"`` are; GPUs come whole."""
    word = str(text or 0)
    factor = {"k": 1000}.get(word[-1], 1)
    return int(float(word.rstrip("k")) * factor)


def gpus_of(node: Mapping[str, Any], resource: str) -> int:
    """Return how many GPUs a node has."""
    status = node.get("status") or {}
    return quantity((status.get("capacity") or status.get("allocatable") or {}).get(resource))


def node_of(node: Mapping[str, Any], parameters: Parameters) -> SchedulerNode:
    """Return what the server is told of a node."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    labels, topology = metadata.get("labels") or {}, parameters.topology
    is_ours = has_cordon_of_ours(node)
    owners = _cordoned_by(node)
    reason = (metadata.get("annotations") or {}).get(names.RESTRICTED, "") if is_ours else ""

    def label(key: str | None) -> str:
        return str(labels.get(key, ""))[:200] if key else ""

    return SchedulerNode(
        node=parameters.node_name.format(node=metadata["name"]),
        state=_state(node),
        reason=(reason or ("cordoned" if spec.get("unschedulable") else ""))[:1000],
        drained_by=", ".join(owners)[:200],
        is_ours=is_ours and spec.get("unschedulable") is True,
        rack=label(topology.rack),
        zone=label(topology.zone),
        feed_a=label(topology.feed_a),
        feed_b=label(topology.feed_b),
    )


def _state(node: Mapping[str, Any]) -> NodeState:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    taints = {taint.get("key") for taint in spec.get("taints") or ()}
    if taints & set(_OFF):
        return NodeState.OFF
    ready = [each for each in status.get("conditions") or () if each.get("type") == "Ready"]
    if ready and ready[0].get("status") != "True":
        return NodeState.DOWN
    return NodeState.DRAINED if spec.get("unschedulable") else NodeState.UP


def has_cordon_of_ours(node: Mapping[str, Any]) -> bool:
    """Say whether we, and nobody else, have cordoned a node."""
    return _cordoned_by(node) == [names.FIELD_MANAGER]


def _cordoned_by(node: Mapping[str, Any]) -> list[str]:
    """Return the field managers that have cordoned a node, others first."""
    if not (node.get("spec") or {}).get("unschedulable"):
        return []
    owners = {
        str(each.get("manager", ""))
        for each in node["metadata"].get("managedFields") or ()
        if "f:unschedulable" in ((each.get("fieldsV1") or {}).get("f:spec") or {})
    }
    return sorted(owners, key=lambda owner: (owner == names.FIELD_MANAGER, owner))


# --- Which nodes pods may run on -----------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """What pods ask of nodes. Of ``terms`` any has to hold, of a term's expressions all."""

    labels: frozenset[tuple[str, str]] = frozenset()
    terms: tuple[tuple[tuple[str, str, tuple[str, ...]], ...], ...] = ()
    tolerations: frozenset[tuple[str, str, str, str]] = frozenset()

    @classmethod
    def of(
        cls,
        spec: Mapping[str, Any],
        labels: Mapping[str, str],
        tolerations: Iterable[Mapping[str, Any]],
    ) -> Selection:
        """Return what a pod asks for, with labels and tolerations that it is given."""
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = tuple(_term(term) for term in required.get("nodeSelectorTerms") or ())
        all_tolerations = [*(spec.get("tolerations") or ()), *tolerations]
        return cls(
            frozenset({**(spec.get("nodeSelector") or {}), **labels}.items()),
            terms,
            frozenset(
                (
                    str(each.get("key") or ""),
                    str(each.get("operator") or "Equal"),
                    str(each.get("value") or ""),
                    str(each.get("effect") or ""),
                )
                for each in all_tolerations
            ),
        )


def _term(term: Mapping[str, Any]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    labels = [
        (each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in term.get("matchExpressions") or ()
    ]
    # The only field that Kubernetes knows here is the node's name.
    named = [
        ("", each["operator"], tuple(each.get("values") or ()))
        for each in term.get("matchFields") or ()
    ]
    return tuple(labels + named)


@dataclass(frozen=True)
class Match:
    """Nodes that pods may run on, by Kubernetes' names; ``gpus``: what most of them have.

    ``is_all``: there are no others with GPUs.
    """

    names: tuple[str, ...]
    gpus: int
    is_all: bool


class Nodes:
    """The nodes of a cluster that have GPUs, at one moment."""

    def __init__(self, documents: Mapping[str, Document]) -> None:
        self.documents = documents
        self._matches: dict[tuple[Selection, str], Match] = {}

    def matching(self, selection: Selection, resource: str) -> Match:
        """Return the nodes that a selection leaves. Many workloads ask for the same."""
        found = self._matches.get((selection, resource))
        if found is None:
            fits = [
                name
                for name, node in self.documents.items()
                if _fits(node, name, selection, resource)
            ]
            sizes = Counter(gpus_of(self.documents[name], resource) for name in fits)
            size = max(sizes, key=lambda each: (sizes[each], each), default=0)
            found = Match(tuple(fits), size, len(fits) == len(self.documents))
            self._matches[selection, resource] = found
        return found

    def keep_matches_of(self, other: Nodes) -> None:
        """Take over what ``other`` has found, whose nodes have the same labels."""
        self._matches = other._matches

    def with_labels(self, labels: Mapping[str, str]) -> list[str]:
        """Return the nodes that have all of these labels."""
        wanted = labels.items()
        return [
            name
            for name, node in self.documents.items()
            if wanted <= (node["metadata"].get("labels") or {}).items()
        ]


def _fits(node: Document, name: str, selection: Selection, resource: str) -> bool:
    labels = node["metadata"].get("labels") or {}
    if not selection.labels <= labels.items():
        return False
    if selection.terms and not any(_holds(term, labels, name) for term in selection.terms):
        return False
    return all(
        _is_tolerated(taint, selection)
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("effect") in _KEEPS_OFF and not _says_state(taint, resource)
    )


def _says_state(taint: Mapping[str, Any], resource: str) -> bool:
    """Say whether a taint is of the node's state, of ours, or tolerated by all that have GPUs."""
    key = str(taint.get("key", ""))
    return key.startswith(_OF_NODES) or key in (names.RESTRICTED, resource, *_OFF)


def _is_tolerated(taint: Mapping[str, Any], selection: Selection) -> bool:
    key, value = taint.get("key") or "", taint.get("value") or ""
    return any(
        effect in ("", taint["effect"])
        and (of == key or (not of and operator == "Exists"))
        and (operator == "Exists" or wanted == value)
        for of, operator, wanted, effect in selection.tolerations
    )


def _holds(
    term: Sequence[tuple[str, str, tuple[str, ...]]], labels: Mapping[str, str], name: str
) -> bool:
    return bool(term) and all(
        _matches(labels.get(key) if key else name, operator, values)
        for key, operator, values in term
    )


def _matches(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or not value.lstrip("-").isdecimal():
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False
