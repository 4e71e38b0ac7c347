"""An account of a job in words and numbers, for the API and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings

from admission.core.account import Cause, Ints
from admission.core.fleet_account import CAUSES, FLEET_LEVERS, Unheld
from admission.core.program import NOTHING, Floats, Work
from admission.goodput.queue import Wait
from admission.goodput.reading import JobAccount
from admission.goodput.summing import By, Found

__all__ = ["BADPUT", "NOT_TOLD", "money_of_wait", "told", "told_of_fleet"]

#: Causes by the names that ml-goodput-measurement has for lost time.
BADPUT: Mapping[str, str] = {
    Cause.STARTING: "program_startup",
    Cause.RESTARTING: "infrastructure_recovery_from_disruption",
    Cause.REPEATED: "wasted_progress_from_disruption",
    Cause.DATA_WAIT: "data_loading_sync",
}

#: Of this time no loop tells: some of it may have been productive.
NOT_TOLD = (Cause.UNKNOWN, Cause.BUSY, Cause.LOW_DRAW)
_US_PER_H = 3.6e9
#: What only a loop tells.
_ONLY_TOLD = (
    Cause.PRODUCTIVE,
    Cause.REPEATED,
    Cause.OUTSIDE_STEPS,
    Cause.DATA_WAIT,
    Cause.SYNCHRONIZATION,
)


def told(job: str, found: JobAccount | None, waits: Sequence[Wait] = ()) -> dict[str, Any]:
    """Return the account of a job by cause, the greatest first; None: it never held a GPU.

    ``waits`` are those of all the time since it was submitted, if they are asked for.
    """
    causes = found.causes if found else {}
    attempts = found.attempts if found else ()
    held_us = sum(causes.values())
    has_told = any(each.told for each in attempts)
    silent = any(not each.told and each.held_us for each in attempts)
    return {
        "job": job,
        "start": found.span.start if found else None,
        "end": found.span.end if found else None,
        "gpu_s": held_us / 1e6,
        "goodput": causes[Cause.PRODUCTIVE] / held_us if has_told and held_us else None,
        **_program(found.work if found else NOTHING, causes.get(Cause.PRODUCTIVE, 0)),
        "cannot_tell": [*_ONLY_TOLD] if silent else [],
        "currency": settings.ENERGY_CURRENCY,
        "waiting": [_waited(each.reason, each.demand_us) for each in waits],
        "causes": _causes(causes),
        "attempts": [
            {
                "phase": each.phase, "attempt": each.number, "gpus": each.gpus,
                "told": each.told, "gpu_s": each.held_us / 1e6, "causes": _causes(each.causes),
                **_program(each.work, each.causes[Cause.PRODUCTIVE]),
            }
            for each in attempts
        ],
    }  # fmt: skip


def _waited(reason: str, demand_us: int) -> dict[str, Any]:
    """Return demand that waited, and what that comes to."""
    money = money_of_wait(demand_us)
    return {"reason": reason, "demand_gpu_s": demand_us / 1e6, "money": money}


def _program(work: Work, productive_us: int) -> dict[str, Any]:
    """Return what models took of what GPUs can compute, and of which productive time it is known.

    Without stated FLOPs it is not known, and nothing is put in their place.
    """
    return {
        "program_goodput": work.goodput,
        "program_known": work.stated_gpu_s * 1e6 / productive_us if productive_us else None,
        "program_verdict": work.verdict,
    }


def _causes(causes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return those that took any time, the greatest first."""
    held_us = sum(causes.values())
    return [
        {
            "cause": cause,
            "gpu_s": us / 1e6,
            "share": us / held_us,
            "lever": FLEET_LEVERS[cause],
            "badput": BADPUT.get(cause, ""),
        }
        for cause, us in sorted(causes.items(), key=lambda each: -each[1])
        if us
    ]


# --- The fleet -----------------------------------------------------------------------------------

_UNHELD = [CAUSES.index(cause) for cause in Unheld]
_PRODUCTIVE = CAUSES.index(Cause.PRODUCTIVE)
_NOT_TOLD = [CAUSES.index(cause) for cause in NOT_TOLD]


def told_of_fleet(found: Found) -> dict[str, Any]:
    """Return sums over a range of time, those of the most time first."""
    total = found.us.sum(axis=0)
    groups = [
        {
            "key": _key(found, key),
            **_sums(us, found.works.get(key, NOTHING), money, float(priced_us)),
        }
        for key, us, money, priced_us in zip(
            found.keys, found.us, found.money, found.priced_us, strict=True
        )
    ]
    if found.asked.by is not By.HOUR:
        groups.sort(key=lambda each: -each["gpu_s"])
    demand_us = sum(each.demand_us for each in found.waiting)
    whole = _sums(total, found.work, found.money.sum(axis=0), float(found.priced_us.sum()))
    scheduling = _scheduling(total, demand_us, is_whole=found.asked.is_whole)
    runtime, program = whole["goodput"], whole["program_goodput"]
    fleet = None if scheduling is None or runtime is None else scheduling * runtime
    return {
        "start": float(found.asked.start),
        "end": float(found.asked.end),
        "by": found.asked.by.value,
        "currency": settings.ENERGY_CURRENCY,
        "hours": found.hours,
        "missing_hours": len(found.missing),
        "first_missing": float(found.missing[0]) if found.missing else None,
        **whole,
        "scheduling_goodput": scheduling,
        "runtime_goodput": runtime,
        "fleet_goodput": fleet,
        "ml_productivity_goodput": None if fleet is None or program is None else fleet * program,
        "groups": groups,
        "waiting": [
            {**_waited(each.reason, each.demand_us), "wanted_gpu_s": each.wanted_us / 1e6}
            for each in found.waiting
        ],
        "iterations": [
            {"project": each.project, "week": each.week.isoformat(), "moved": each.moved,
             "repeated": each.repeated, "missed": each.missed, "index": each.index}
            for each in found.iterations
        ],
    }  # fmt: skip


def money_of_wait(demand_us: int) -> float | None:
    """Return what demand that waited comes to; None: what a GPU-hour of it costs is not stated."""
    price = settings.ENERGY_WAITING_GPU_HOUR
    return demand_us / _US_PER_H * price if price else None


def _key(found: Found, key: tuple[Any, ...]) -> dict[str, Any]:
    """Return the key of a group by the names that parameters have."""
    names = {"job_class": "class", "attempt_id": "attempt"}
    return {
        names.get(name, name): value.timestamp() if isinstance(value, datetime) else value
        for name, value in zip(found.columns, key, strict=True)
    }


def _sums(us: Ints, work: Work, money: Floats, priced_us: float) -> dict[str, Any]:
    """Return sums by cause; ``money`` is by cause, too, of ``priced_us`` of all of the time."""
    gpu_us = int(us.sum())
    held_us = gpu_us - int(us[_UNHELD].sum())
    productive_us, not_told_us = int(us[_PRODUCTIVE]), int(us[_NOT_TOLD].sum())
    most_us = productive_us + not_told_us
    return {
        "gpu_s": gpu_us / 1e6,
        "held_gpu_s": held_us / 1e6,
        "goodput": productive_us / held_us if held_us else None,
        "goodput_at_most": most_us / held_us if held_us else None,
        **_program(work, productive_us),
        "money": float(money.sum()) if priced_us else None,
        "price_known": priced_us / gpu_us if gpu_us else None,
        "causes": [
            {**each, "money": float(money[CAUSES.index(each["cause"])]) if priced_us else None}
            for each in _causes(dict(zip(CAUSES, us.tolist(), strict=True)))
        ],
    }


def _scheduling(us: Ints, demand_us: int, *, is_whole: bool) -> float | None:
    """Return the share of time that was held: of all GPUs, or of all that was asked for."""
    held_us = int(us.sum() - us[_UNHELD].sum())
    of_us = int(us.sum()) if is_whole else held_us + demand_us
    return held_us / of_us if of_us else None
