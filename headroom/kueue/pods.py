"""Pods that hold GPUs: whose they are, and where they run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headroom.kueue import names
from headroom.kueue.nodes import quantity
from headroom.kueue.watching import Key, key_of

__all__ = ["PodFacts", "PodStatus", "asked_of", "pod_of"]


class PodStatus(msgspec.Struct):
    """What a pod says of itself, in an annotation: its last checkpoint, the last directive done."""

    checkpoint_at: float | None = None
    done: int = 0


@dataclass(frozen=True)
class PodFacts:
    """One pod. ``workload``: that it is a part of, as far as it says; ``owner``: its controller."""

    key: Key
    node: str
    gpus: int
    is_alive: bool
    workload: Key | None
    owner: str
    owner_uids: frozenset[str]
    created_at: str
    labels: Mapping[str, str]
    lease: str
    restarts: int
    directives_seq: int
    status: PodStatus


def pod_of(document: Mapping[str, Any], resource: str) -> PodFacts:
    """Return the facts of a pod."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    owners = metadata.get("ownerReferences") or ()
    controller = next((each for each in owners if each.get("controller")), None)
    workload = annotations.get(names.WORKLOAD) or annotations.get(names.KUEUE_WORKLOAD)
    key = key_of(document)  # type: ignore[arg-type]
    return PodFacts(
        key=key,
        node=spec.get("nodeName") or "",
        gpus=asked_of(spec, resource),
        is_alive=(document.get("status") or {}).get("phase") not in ("Succeeded", "Failed"),
        workload=(key[0], workload) if workload else None,
        owner=f"{controller['kind']}/{controller['name']}" if controller else "",
        owner_uids=frozenset(each["uid"] for each in owners),
        created_at=metadata.get("creationTimestamp") or "",
        labels=metadata.get("labels") or {},
        lease=annotations.get(names.LEASE, ""),
        restarts=_whole(annotations.get(names.RESTARTS)),
        directives_seq=_seq(annotations.get(names.DIRECTIVES)),
        status=_status(annotations.get(names.STATUS)),
    )


def asked_of(spec: Mapping[str, Any], resource: str) -> int:
    """Return how many GPUs a pod asks for: all of its containers, or its greediest first one."""
    run = sum(_of_container(each, resource) for each in spec.get("containers") or ())
    first = (_of_container(each, resource) for each in spec.get("initContainers") or ())
    return max(run, max(first, default=0))


def _of_container(container: Mapping[str, Any], resource: str) -> int:
    resources = container.get("resources") or {}
    asked: Iterable[Any] = (
        (resources.get(part) or {}).get(resource) for part in ("requests", "limits")
    )
    return max(map(quantity, asked))


def _whole(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else -1


def _seq(text: str | None) -> int:
    try:
        return int(msgspec.json.decode(text, type=dict[str, Any]).get("seq", 0)) if text else 0
    except (msgspec.MsgspecError, TypeError, ValueError):
        return 0


def _status(text: str | None) -> PodStatus:
    try:
        return msgspec.json.decode(text, type=PodStatus) if text else PodStatus()
    except msgspec.MsgspecError:
        return PodStatus()
