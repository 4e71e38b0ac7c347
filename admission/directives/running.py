"""What runs now, as decisions about running jobs need it: rows of the inventory, watts, terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from admission.core.shedding import lost_gpu_s
from admission.jobs.models import Attempt, Job, Phase
from fleet.snapshot import FleetArrays
from policies.headroom.evaluate import Headroom

__all__ = ["Active", "Watts", "active", "open_attempts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def open_attempts(ids: Sequence[int]) -> list[Attempt]:
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

    @property
    def phase(self) -> Phase:
        return self.attempt.phase

    @property
    def job(self) -> Job:
        return self.attempt.phase.job

    @property
    def is_preemptible(self) -> bool:
        return bool(self.phase.request.get("preemptible"))

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end, by whomever."""
        return self.phase.state == Phase.State.STOPPING or bool(self.attempt.outcome)

    @property
    def saves(self) -> bool:
        """Whether it writes checkpoints."""
        return self.phase.request.get("checkpoint_interval_s") is not None

    @property
    def gpu_count(self) -> int:
        return sum(len(held) for held in self.attempt.placement.get("gpus", {}).values())

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self.attempt.placement.get("sites", ()))

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
    return Active(attempt, np.array(sorted(nodes), dtype=np.int64), np.array(sorted(gpus), int))


@dataclass(frozen=True, eq=False)
class Watts:
    """Watts of gangs, from the loads of nodes and GPUs: what is read, or may be drawn unseen."""

    headroom: Headroom

    @cached_property
    def _gpu_sums(self) -> tuple[Floats, Ints]:
        fleet = self.headroom.fleet
        count = len(fleet.nodes)
        load_w = np.bincount(
            fleet.gpus.node, weights=self.headroom.summary.gpus.load_w, minlength=count
        )
        gpus = np.bincount(fleet.gpus.node, minlength=count)
        return load_w.astype(np.float64), gpus.astype(np.int64)

    def drawn_w(self, each: Active) -> Floats:
        """Return what a gang draws on each of its nodes, with its share of the host, W."""
        fleet, summary = self.headroom.fleet, self.headroom.summary
        gang_w, gang_gpus = self._of_gang(each, summary.gpus.load_w)
        node_gpu_w, node_gpus = self._gpu_sums
        total_w, total = node_gpu_w[each.nodes], np.maximum(node_gpus[each.nodes], 1)
        share = np.divide(gang_w, total_w, out=gang_gpus / total, where=total_w > 0)
        drawn_w: Floats = share * summary.nodes.load_w[each.nodes]
        return np.asarray(np.minimum(drawn_w, self._rated_w(fleet, each)))

    def idle_w(self, each: Active) -> Floats:
        """Return what the same nodes and GPUs draw while nothing runs on them, W by node."""
        fleet = self.headroom.fleet
        gang_w, gang_gpus = self._of_gang(each, np.nan_to_num(fleet.gpus.idle_w))
        total = np.maximum(self._gpu_sums[1][each.nodes], 1)
        host_w = np.nan_to_num(fleet.nodes.host_idle_w[each.nodes])
        return np.asarray(gang_w + host_w * gang_gpus / total)

    def capped_w(self, each: Active, cap_w: float) -> Floats:
        """Return what it would draw on each node if no GPU drew more than ``cap_w``.

        Hosts draw less along with their GPUs.
        """
        gpu_w = self.headroom.summary.gpus.load_w
        now_w, _ = self._of_gang(each, gpu_w)
        then_w, _ = self._of_gang(each, np.minimum(gpu_w, cap_w))
        share = np.divide(then_w, now_w, out=np.ones(len(now_w)), where=now_w > 0)
        return np.asarray(share * self.drawn_w(each))

    def peak_w(self, each: Active) -> Floats:
        """Return what a gang was let go for on each node, W; rated power where that is not told."""
        fleet = self.headroom.fleet
        told: Mapping[str, float] = each.attempt.placement.get("peak_w", {})
        names = fleet.nodes.names[each.nodes].tolist()
        peaks = np.array([told.get(name, np.nan) for name in names], dtype=np.float64)
        return np.where(np.isnan(peaks), self._rated_w(fleet, each), peaks)

    def _rated_w(self, fleet: FleetArrays, each: Active) -> Floats:
        gang_w, gang_gpus = self._of_gang(each, fleet.gpus.rated_w)
        total = np.maximum(self._gpu_sums[1][each.nodes], 1)
        host_w = np.nan_to_num(fleet.nodes.host_rated_w[each.nodes], nan=np.inf)
        return np.asarray(gang_w + host_w * gang_gpus / total)

    def _of_gang(self, each: Active, gpu_w: Floats) -> tuple[Floats, Floats]:
        """Return the sum over the gang's GPUs, and their number, on each of its nodes."""
        at = np.searchsorted(each.nodes, self.headroom.fleet.gpus.node[each.gpus])
        count = len(each.nodes)
        sums = np.bincount(at, weights=gpu_w[each.gpus], minlength=count)
        return sums.astype(np.float64), np.bincount(at, minlength=count).astype(np.float64)
