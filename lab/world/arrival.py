"""A job that comes to a world."""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.core.request import Request
from admission.core.response.respond import Throttling
from lab.training import TrainingSpec

__all__ = ["Arrival"]


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """One phase of a job: its submission, its request, and its true behavior."""

    #: seconds of the twin
    at_s: float
    #: ``submitted_at`` is set by the world
    request: Request
    #: on all GPUs of the request at full speed, s
    runs_s: float
    #: how it trains; None: a plain load without steps, losses or a network
    training: TrainingSpec | None = None
    #: what it agrees to when room gets small
    throttling: Throttling = field(default_factory=Throttling)
    #: whether it may go on at another site
    moves: bool = False
    #: how often it begins again after it was lost or ended, at most
    max_restarts: int = 10
    #: of a plain load: the share of its work in which its GPUs wait in line for one another, as in
    #: ``physics.scaling.usl_speedup``
    contention: float = 0.0
    #: of a plain load: how long each of its attempts takes until it goes on from what is saved, s
    starts_s: float = 0.0
    #: activity of its GPUs while they compute, 1 being what they are rated for; None: drawn
    activity: float | None = None

    def __post_init__(self) -> None:
        if not self.at_s >= 0.0:
            raise ValueError(f"{self.request.key}: at_s must be at least 0, not {self.at_s}")
        if not 0.0 <= self.contention <= 1.0:
            text = f"contention must be from 0 to 1, not {self.contention}"
            raise ValueError(f"{self.request.key}: {text}")
        if not 0.0 < self.runs_s < float("inf"):
            raise ValueError(f"{self.request.key}: runs_s must be above 0, not {self.runs_s}")
