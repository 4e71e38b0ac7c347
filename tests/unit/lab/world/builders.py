"""Jobs and fleets for worlds."""

from __future__ import annotations

from typing import Any

import numpy as np

from admission.core.request import Locality, Request
from admission.core.response.respond import Throttling
from lab.fleet import Fleet, make_even_fleet
from lab.hardware import H100
from lab.world import Arrival

#: What a GPU draws more at its worst than by its activity alone: no two are alike.
_SPREAD = 1.08


def make_arrival(name: str = "job", **values: Any) -> Arrival:
    """Return a job that draws no more than it says, but for ``values`` of its request or of it."""
    own: dict[str, Any] = {"at_s": 0.0, "runs_s": 600.0, "activity": 0.9}
    own |= {key: values.pop(key) for key in list(values) if key in Arrival.__dataclass_fields__}
    activity = own["activity"]
    gpus = values.setdefault("gpus", 8)
    given: dict[str, Any] = {
        "project": "vision",
        "job_class": "training",
        "priority": 0,
        "submitted_at": 0.0,
        "min_gpus": gpus,
        "gpu_peak_w": min(_SPREAD * (H100.awake_w + H100.dynamic_w * activity), H100.rated_w),
        "walltime_s": 4.0 * own["runs_s"],
        "required": Locality.SITE,
        **values,
    }
    key = f"{name}/train"
    return Arrival(request=Request(key=key, job=name, phase="train", **given), **own)


def make_arrivals(count: int, *, seed: int, within_s: float, **values: Any) -> list[Arrival]:
    """Return jobs of several sizes that come one after the other, save, and agree to give way."""
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {
        "throttling": Throttling(0.05, 0.02, 0.5),
        "checkpoint_interval_s": 300.0,
        "preemptible": True,
        **values,
    }
    return [
        make_arrival(
            f"j{number}",
            at_s=float(rng.uniform(0.0, within_s)),
            runs_s=float(rng.lognormal(6.3, 0.8)),
            activity=float(rng.uniform(0.4, 1.0)),
            gpus=int(rng.choice([1, 2, 4, 8, 16])),
            **given,
        )
        for number in range(count)
    ]


def tight_fleet(*, gpus: int = 64, sites: int = 2, **values: Any) -> Fleet:
    """Return a fleet that cannot feed all of its GPUs at once."""
    shares: dict[str, Any] = {"power_share": 0.75, "feed_share": 0.9, "nodes_per_rack": 2, **values}
    return make_even_fleet(gpus=gpus, sites=sites, **shares)
