"""Running attempts as decisions about them need them: rows of the inventory and terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from admission.core.request import Request
from admission.core.response.respond import Level, ResponseStatus
from admission.core.response.shedding import lost_gpu_s
from admission.directives.models import Control
from admission.jobs import resolution
from admission.jobs.models import Attempt, Job, Phase
from fleet.snapshot import FleetArrays

__all__ = ["Active", "active", "attempts_of"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def attempts_of(ids: Sequence[int]) -> list[Attempt]:
    """Return those of ``ids`` that hold GPUs, with phase, job and control. One query.

    Specifications of jobs are left out: they are large, and few are asked for.
    """
    rows = Attempt.objects.open().filter(pk__in=ids).select_related("phase__job", "control")
    return list(rows.defer("phase__job__spec"))


@dataclass(frozen=True, eq=False)
class Active:
    """An open attempt on the fleet: rows of its nodes and of its GPUs, each sorted.

    What the inventory no longer has is left out.
    """

    attempt: Attempt
    nodes: Ints
    gpus: Ints
    #: what it was admitted for on each of its nodes, W; NaN where that is not told
    told_w: Floats

    @property
    def phase(self) -> Phase:
        return self.attempt.phase

    @property
    def job(self) -> Job:
        return self.attempt.phase.job

    @property
    def id(self) -> int:
        return self.attempt.pk

    @property
    def key(self) -> str:
        return self.attempt.key

    @cached_property
    def request(self) -> Request:
        return resolution.request_of(self.phase)

    @property
    def placed_cap_w(self) -> float | None:
        cap_w: float | None = self.attempt.placement.get("power_cap_w")
        return cap_w

    @property
    def has_begun(self) -> bool:
        return self.attempt.started_at is not None

    @property
    def status(self) -> ResponseStatus:
        """The status of its graduated response."""
        control: Control | None = getattr(self.attempt, "control", None)
        if control is None or not control.response:
            return ResponseStatus()
        kept = dict(control.response)
        return ResponseStatus(
            **{**kept, "level": Level(kept["level"]), "full_w": tuple(kept["full_w"])}
        )

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, by whomever."""
        return self.phase.state == Phase.State.STOPPING or bool(self.attempt.outcome)

    @property
    def gpu_count(self) -> int:
        return sum(len(held) for held in self.attempt.placement.get("gpus", {}).values())

    def lost_gpu_s(self, now: float) -> float:
        """Return the work that ending now would throw away, GPU·s."""
        started, saved = self.attempt.started_at, self.attempt.checkpoint_at
        return lost_gpu_s(
            gpus=self.gpu_count,
            started_at=now if started is None else started.timestamp(),
            last_checkpoint_at=None if saved is None else saved.timestamp(),
            now=now,
        )


def active(fleet: FleetArrays, attempts: Iterable[Attempt]) -> list[Active]:
    """Return attempts with their rows of the inventory, in the order of their keys."""
    return [_on(fleet, attempt) for attempt in sorted(attempts, key=lambda each: each.key)]


def _on(fleet: FleetArrays, attempt: Attempt) -> Active:
    held: Mapping[str, list[int]] = attempt.placement.get("gpus", {})
    by_name, by_index = fleet.nodes.index_by_name, fleet.gpu_index_by_node
    nodes = [by_name[name] for name in held if name in by_name]
    gpus = [
        by_index[name, index] for name, ids in held.items() for index in ids
        if (name, index) in by_index
    ]  # fmt: skip
    rows = np.array(sorted(nodes), dtype=np.int64)
    told: Mapping[str, float] = attempt.placement.get("peak_w", {})
    told_w = [told.get(name, np.nan) for name in fleet.nodes.names[rows].tolist()]
    return Active(
        attempt, rows, np.array(sorted(gpus), dtype=np.int64), np.array(told_w, dtype=np.float64)
    )
