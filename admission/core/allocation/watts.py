"""Present, capped, idle and peak draw of gangs, from the loads of nodes and GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fleet.tables import FleetArrays
from policies.headroom.evaluate import Headroom

__all__ = ["Gang", "Watts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Gang(Protocol):
    """A running job on the fleet: rows of its nodes and of its GPUs, each sorted."""

    @property
    def nodes(self) -> Ints: ...

    @property
    def gpus(self) -> Ints: ...

    @property
    def told_w(self) -> Floats:
        """The power that it was admitted with on each of its nodes, W; NaN where unknown."""


@dataclass(frozen=True, eq=False)
class Watts:
    """The draw of gangs, from the loads of nodes and GPUs: measured, or assumed while unread."""

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

    @cached_property
    def _gpu_idle_w(self) -> Floats:
        return np.nan_to_num(self.headroom.fleet.gpus.idle_w)

    def drawn_w(self, each: Gang) -> Floats:
        """Return the draw of a gang on each of its nodes, with its share of the host, W."""
        fleet, summary = self.headroom.fleet, self.headroom.summary
        gang_w, gang_gpus = self._of_gang(each, summary.gpus.load_w)
        node_gpu_w, node_gpus = self._gpu_sums
        total_w, total = node_gpu_w[each.nodes], np.maximum(node_gpus[each.nodes], 1)
        share = np.divide(gang_w, total_w, out=gang_gpus / total, where=total_w > 0)
        drawn_w: Floats = share * summary.nodes.load_w[each.nodes]
        return np.asarray(np.minimum(drawn_w, self._rated_w(fleet, each)))

    def idle_w(self, each: Gang) -> Floats:
        """Return the draw of the same nodes and GPUs while nothing runs on them, W by node."""
        fleet = self.headroom.fleet
        gang_w, gang_gpus = self._of_gang(each, self._gpu_idle_w)
        total = np.maximum(self._gpu_sums[1][each.nodes], 1)
        host_w = np.nan_to_num(fleet.nodes.host_idle_w[each.nodes])
        return np.asarray(gang_w + host_w * gang_gpus / total)

    def capped_w(self, each: Gang, cap_w: float) -> Floats:
        """Return the draw of a gang on each node if no GPU drew more than ``cap_w``.

        Hosts draw less along with their GPUs.
        """
        gpu_w = self.headroom.summary.gpus.load_w
        now_w, _ = self._of_gang(each, gpu_w)
        then_w, _ = self._of_gang(each, np.minimum(gpu_w, cap_w))
        share = np.divide(then_w, now_w, out=np.ones(len(now_w)), where=now_w > 0)
        return np.asarray(share * self.drawn_w(each))

    def peak_w(self, each: Gang) -> Floats:
        """Return the peak of a gang on each node, W; rated power where that is not told."""
        rated_w = self._rated_w(self.headroom.fleet, each)
        return np.where(np.isnan(each.told_w), rated_w, each.told_w)

    def _rated_w(self, fleet: FleetArrays, each: Gang) -> Floats:
        gang_w, gang_gpus = self._of_gang(each, fleet.gpus.rated_w)
        total = np.maximum(self._gpu_sums[1][each.nodes], 1)
        host_w = np.nan_to_num(fleet.nodes.host_rated_w[each.nodes], nan=np.inf)
        return np.asarray(gang_w + host_w * gang_gpus / total)

    def _of_gang(self, each: Gang, gpu_w: Floats) -> tuple[Floats, Floats]:
        """Return the sum over the gang's GPUs, and their number, on each of its nodes."""
        at = np.searchsorted(each.nodes, self.headroom.fleet.gpus.node[each.gpus])
        count = len(each.nodes)
        sums = np.bincount(at, weights=gpu_w[each.gpus], minlength=count)
        return sums.astype(np.float64), np.bincount(at, minlength=count).astype(np.float64)
