"""Amending a specification by the change of a counterfactual. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from headroom.contracts import FieldError
from headroom.jobs.reading import SpecError

__all__ = ["CHANGES", "amended"]

Values = dict[str, Any]


#: In place of a section: the phase itself.
PHASE = "phase"
#: What may be changed, by the name that counterfactuals and the API give it: where it stands in
#: the specification of the phase, or, without a section, in that of the job.
CHANGES: dict[str, tuple[str, str]] = {
    "gpus": ("gang", "gpus"),
    "slice": ("gang", "slice"),
    "lowest_cap_w": ("power", "lowest_cap_w"),
    "max_slowdown": ("throttling", "max_slowdown"),
    "walltime_s": (PHASE, "walltime_s"),
    "checkpoint_interval_s": ("checkpoint", "interval_s"),
    "cross_site": ("checkpoint", "cross_site"),
    "sites": ("locality", "sites"),
    "locality": ("locality", "required"),
    "job_class": ("", "class"),
    "may_wait_s": ("energy", "may_wait_s"),
    "priority": ("", "priority"),
}
#: Of an adopted job: its scheduler starts it as it was submitted there, with all its GPUs, and lets
#: it run for as long.
_OF_SCHEDULERS = frozenset({"gpus", "slice", "walltime_s"})


def amended(spec: Values, phase: str, change: Mapping[str, Any]) -> tuple[Values, str]:
    """Return ``spec`` with ``change`` made to one of its phases, and the change in words.

    ``phase`` is empty where only the whole job is changed. Raises :class:`SpecError` where there
    is nothing that may be changed so.
    """
    wanted = {name: value for name, value in change.items() if value is not None}
    unknown = sorted(set(wanted) - set(CHANGES))
    if unknown or not wanted:
        raise SpecError([FieldError(
            code="unknown_change", field=unknown[0] if unknown else "",
            message=f"{unknown[0]} cannot be changed" if unknown else "nothing is to be changed",
            hint=f"give one of {', '.join(CHANGES)}",
        )])  # fmt: skip
    _refuse_what_its_scheduler_decides(spec, wanted)
    changed = copy.deepcopy(spec)
    inside: Values = next((each for each in changed["phases"] if each["name"] == phase), {})
    for name, value in wanted.items():
        section, field = CHANGES[name]
        place = inside if section == PHASE else changed
        if section not in ("", PHASE):
            place = inside.setdefault(section, {})
        place[field] = _written(name, value)
    _fewer_still(inside, wanted)
    told = ", ".join(f"{name.replace('_', ' ')} {_told(value)}" for name, value in wanted.items())
    return changed, told


def _refuse_what_its_scheduler_decides(spec: Values, wanted: Mapping[str, Any]) -> None:
    scheduler, kept = spec.get("scheduler"), sorted(_OF_SCHEDULERS & wanted.keys())
    if scheduler and kept:
        raise SpecError([FieldError(
            code="of_a_scheduler", field=kept[0],
            message=f"{kept[0]} of an adopted job is what {scheduler} was asked for",
            hint=f"change it in {scheduler}: Headroom follows",
        )])  # fmt: skip


def _written(name: str, value: Any) -> Any:
    """Return a value as the specification writes it: words of counterfactuals are joined by "-"."""
    if name == "locality" and isinstance(value, str):
        return value.replace("-", "_")
    return list(value) if isinstance(value, tuple) else value


def _fewer_still(phase: Values, wanted: Mapping[str, Any]) -> None:
    """Lower a phase's least number of GPUs to the number that it now asks for."""
    gang = phase.get("gang", {})
    if isinstance(wanted.get("gpus"), int) and gang.get("min_gpus") is not None:
        gang["min_gpus"] = min(gang["min_gpus"], wanted["gpus"])


def _told(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "any"
    return f"{value:g}" if isinstance(value, float) else str(value)
