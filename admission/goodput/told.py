"""An account of a job in words and numbers, for the API and its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.core.account import LEVERS, Cause
from admission.goodput.reading import JobAccount

__all__ = ["told"]

#: What only a loop tells.
_ONLY_TOLD = (
    Cause.PRODUCTIVE,
    Cause.REPEATED,
    Cause.OUTSIDE_STEPS,
    Cause.DATA_WAIT,
    Cause.SYNCHRONIZATION,
)


def told(job: str, found: JobAccount | None) -> dict[str, Any]:
    """Return the account of a job by cause, the greatest first; None: it never held a GPU."""
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
        "cannot_tell": [*_ONLY_TOLD] if silent else [],
        "causes": _causes(causes),
        "attempts": [
            {
                "phase": each.phase, "attempt": each.number, "gpus": each.gpus,
                "told": each.told, "gpu_s": each.held_us / 1e6, "causes": _causes(each.causes),
            }
            for each in attempts
        ],
    }  # fmt: skip


def _causes(causes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return those that took any time, the greatest first."""
    held_us = sum(causes.values())
    return [
        {"cause": cause, "gpu_s": us / 1e6, "share": us / held_us, "lever": LEVERS[cause]}
        for cause, us in sorted(causes.items(), key=lambda each: -each[1])
        if us
    ]
