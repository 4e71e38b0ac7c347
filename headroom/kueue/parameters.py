"""``HeadroomCheck``: what operators choose for the workloads of an admission check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from headroom.errors import HeadroomError
from headroom.kueue.names import GROUP
from headroom.schedulers.contract import WhenAway

__all__ = ["KIND", "BadParameters", "GiveBack", "Parameters", "Topology", "read", "reference"]

KIND = "HeadroomCheck"

_Label = Annotated[str, Meta(max_length=317, pattern=r"^[A-Za-z0-9]([\w./-]*[A-Za-z0-9])?$(?!\n)")]
_Seconds = Annotated[int, Meta(ge=1, le=86_400)]


class BadParameters(HeadroomError):
    """The parameters of an admission check cannot be read; the text names the field."""


class _Section(
    Struct,
    rename="camel",
    kw_only=True,
    omit_defaults=True,
    frozen=True,
    forbid_unknown_fields=True,
):
    """A part of the parameters."""


class GiveBack(_Section, frozen=True):
    """When a workload that waits for watts gives its quota back to others, and for how long."""

    enabled: bool = True
    #: it keeps its quota while it is likely to start within this time
    after_seconds: _Seconds = 60
    #: bounds of ``requeueAfterSeconds``; between them it is half of the time it is likely to wait
    least_seconds: _Seconds = 30
    most_seconds: _Seconds = 600


class Topology(_Section, frozen=True):
    """The labels of nodes that name their rack, cooling zone and power feeds; empty: none does."""

    rack: _Label | None = None
    zone: _Label | None = None
    feed_a: _Label | None = None
    feed_b: _Label | None = None


class Toleration(Struct, rename="camel", kw_only=True, omit_defaults=True, frozen=True):
    """A toleration, as Kubernetes has it."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class Parameters(_Section, frozen=True):
    """The ``spec`` of a :data:`KIND`."""

    gpu_resource: Annotated[str, Meta(min_length=1, max_length=317)] = "nvidia.com/gpu"
    when_away: Annotated[str, Meta(pattern="^(Open|Closed)$")] = "Closed"
    away_seconds: _Seconds = 60
    give_back: GiveBack = GiveBack()
    #: what becomes of a workload that can never start: ``Reject`` deactivates it
    never_possible: Annotated[str, Meta(pattern="^(Reject|Wait)$")] = "Reject"
    #: of pods that are admitted, for taints that keep others off the nodes
    tolerations: Annotated[list[Toleration], Meta(max_length=8)] = []
    topology: Topology = Topology()
    #: the inventory's name of a node; ``{node}`` stands for Kubernetes'
    node_name: Annotated[str, Meta(pattern=r"^[^{}]*\{node\}[^{}]*$")] = "{node}"
    #: labels of pod templates that say whose a workload is; else its namespace
    user_label: _Label = "headroom.dev/user"
    project_label: _Label = "headroom.dev/project"

    @property
    def on_silence(self) -> WhenAway:
        """What becomes of new workloads while Headroom is away."""
        return WhenAway(self.when_away.lower())


def read(document: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a :data:`KIND`. Raises :class:`BadParameters`."""
    name = document.get("metadata", {}).get("name", "")
    try:
        found = msgspec.convert(document.get("spec") or {}, Parameters)
    except msgspec.ValidationError as error:
        raise BadParameters(f"{KIND} {name!r}: {error}") from error
    if found.give_back.least_seconds > found.give_back.most_seconds:
        raise BadParameters(f"{KIND} {name!r}: giveBack.leastSeconds is above mostSeconds")
    return found


def reference(check: Mapping[str, Any]) -> str:
    """Return the name of the parameters of an admission check. Raises :class:`BadParameters`."""
    given = check.get("spec", {}).get("parameters")
    if not given:
        raise BadParameters(f"spec.parameters is missing: it names a {KIND} of {GROUP}")
    if (given.get("apiGroup"), given.get("kind")) != (GROUP, KIND):
        raise BadParameters(
            f"spec.parameters is a {given.get('kind')} of {given.get('apiGroup')}, "
            f"not a {KIND} of {GROUP}"
        )
    return str(given.get("name", ""))
