"""Objectives, events and samples for the tests of service levels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from admission.slos.document import Objective, read
from admission.slos.facts import FACTS, Samples
from admission.slos.judging import Event

#: Samples are a minute apart.
EVERY_S = 60.0


def make_objective(**fields: Any) -> Objective:
    """Return "90 % begin within 10 min while there is power", with ``fields`` in its place."""
    given = {
        "name": "starts",
        "measure": "start",
        "target": 0.9,
        "within": "10m",
        "when": "power_headroom > 0.2",
        **fields,
    }
    lines = [f"{name}: {value}" for name, value in given.items() if value != ""]
    return read("\n".join(lines))


def make_event(key: str = "job/train", **fields: Any) -> Event:
    """Return an event that began at 0 and is still waited for."""
    job, _, phase = key.partition("/")
    given: dict[str, Any] = {"job_class": "dense", "project": "vision", "begun_at": 0.0, **fields}
    return Event(key=key, job=job, phase=phase, **given)


def make_samples(power: dict[str, Sequence[float]], *, start: float = 0.0) -> Samples:
    """Return samples of the power headroom of sites, and nothing else known."""
    count = len(next(iter(power.values())))
    shape = (count, len(power))
    facts = {name: np.full(shape, np.nan) for name in FACTS}
    facts["power_headroom"] = np.array(list(power.values()), dtype=float).T.reshape(shape)
    return Samples(start + EVERY_S * np.arange(count, dtype=np.float64), tuple(power), facts)
