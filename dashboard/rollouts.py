"""Rollouts as pages show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dashboard import scopes, units
from fleet.tables import FleetArrays
from policies.rollouts.evidence import METRICS
from policies.rollouts.judging import GuardState
from policies.rollouts.machine import RolloutState
from policies.rollouts.showing import Shown
from policies.scopes import Scope, ScopeKind
from telemetry.versions.running import Running

__all__ = ["GuardRow", "VersionRow", "guard_rows", "imbalance_rows", "tag_of", "version_rows"]

#: A version that no more nodes than these run is told with their names.
_NAMED = 8

_TAGS = {
    RolloutState.HELD: " warning",
    RolloutState.ROLLING_BACK: " error",
    RolloutState.ROLLED_BACK: " error",
}
_FIELD_WORDS = {"vbios": "VBIOS", "nic_firmware": "NIC firmware", "nccl": "NCCL"}
_GUARD_TAGS = {GuardState.WORSE: " error", GuardState.UNSEEN: " warning"}


@dataclass(frozen=True)
class GuardRow:
    """A guard with what the evidence says of it, in words."""

    name: str
    help: str
    matters: str
    difference: str
    bounds: str
    state: str
    tag: str
    blocks: int


def tag_of(state: str) -> str:
    """Return the class of the tag of a state."""
    return _TAGS.get(RolloutState(state), "")


def guard_rows(shown: Shown) -> list[GuardRow]:
    """Return the guards of a rollout, with the last judgement where there is one."""
    judged = shown.judged or {"findings": []}
    found = {each["metric"]: each for each in judged["findings"]}
    return [
        _row(guard.metric, guard.matters, found.get(guard.metric)) for guard in shown.plan.guards
    ]


def _row(metric: str, matters: float | None, finding: Mapping[str, Any] | None) -> GuardRow:
    known = METRICS[metric]
    said = {"difference": None, "lower": None, "upper": None, "blocks": 0} | dict(finding or {})
    state = GuardState(finding["state"]) if finding else GuardState.UNSEEN
    bounds = f"{_figure(metric, said['lower'])} to {_figure(metric, said['upper'])}"
    if said.get("evidence") is not None:
        bounds = f"evidence {said['evidence']:.3g} of {said['needed']:.3g}"
    return GuardRow(
        name=metric.replace("_", " "),
        help=f"{known.help}, {known.unit}",
        matters=units.DASH if matters is None else _figure(metric, matters),
        difference=_figure(metric, said["difference"]),
        bounds=bounds if said["blocks"] else units.DASH,
        state=state.value if finding else "not judged yet",
        tag=_GUARD_TAGS.get(state, "") if finding else "",
        blocks=int(said["blocks"]),
    )


def _figure(metric: str, value: Any) -> str:
    """Return a difference in the unit of its metric: more is worse."""
    if value is None or isinstance(value, str):
        return units.DASH
    if metric == "temperature":
        return f"{value:+.2f} °C"
    if METRICS[metric].unit.startswith("share"):
        return f"{100 * value:+.2f} %"
    return f"{value:+.3g}"


def imbalance_rows(shown: Shown) -> list[tuple[str, str]]:
    """Return by how much the arms differ, the most first, in standard deviations."""
    found = sorted(shown.run.imbalance.items(), key=lambda each: -abs(each[1]))
    return [(name, f"{value:+.2f} SD") for name, value in found]


@dataclass(frozen=True)
class VersionRow:
    """A version that nodes report; ``nodes``: names and pages of these, where they are few."""

    field: str
    version: str
    count: int
    nodes: list[tuple[str, str]]


def version_rows(found: Sequence[Running], fleet: FleetArrays) -> list[VersionRow]:
    """Return what nodes run, as a table shows it."""
    return [
        VersionRow(
            _FIELD_WORDS.get(each.field, each.field.replace("_", " ")),
            each.version,
            len(each.nodes),
            [(name, scopes.href(fleet, Scope(ScopeKind.NODE, name))) for name in each.nodes]
            if len(each.nodes) <= _NAMED
            else [],
        )
        for each in found
    ]
