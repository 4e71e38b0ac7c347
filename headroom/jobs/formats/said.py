"""Words of ours that owners write into jobs of other schedulers, as parts of a phase, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headroom.jobs.spec import PhaseSpec, Response
from headroom.schedulers.words import Words

__all__ = ["phase_of", "said_of"]


def phase_of(said: Words, phase: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``phase`` with what its owner says in words of ours."""
    sections: dict[str, dict[str, Any]] = {
        "power": {"expected_peak_w": said.peak_w, "lowest_cap_w": said.cap_w},
        "checkpoint": {"interval_s": said.checkpoint_s},
        "throttling": {
            "responses": [str(each) for each in said.responses] or None,
            "min_batch_scale": said.min_batch_scale,
        },
    }
    known = {
        name: {key: value for key, value in section.items() if value is not None}
        for name, section in sections.items()
    }
    return {**phase, **{name: section for name, section in known.items() if section}}


def said_of(phase: PhaseSpec, job_class: str) -> dict[str, str]:
    """Return the words that say what a phase says and its scheduler has no option for, by name.

    Bridges say themselves what may move, so that is no word here.
    """
    responses = [each for each in phase.throttling.responses or () if each is not Response.MIGRATE]
    said: dict[str, str | float | None] = {
        "class": job_class,
        "peak_w": phase.power.expected_peak_w,
        "cap_w": phase.power.lowest_cap_w,
        "checkpoint_s": phase.checkpoint.interval_s,
        "responses": ",".join(responses),
        "min_batch_scale": phase.throttling.min_batch_scale,
    }
    return {
        name: value if isinstance(value, str) else f"{value:g}"
        for name, value in said.items()
        if value
    }
