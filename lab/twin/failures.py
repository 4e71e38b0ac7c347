"""When parts fail: drawn ahead, so that a step in which nothing fails costs nothing.

The failures have random numbers of their own. So they come at the same moments whatever the fleet
is made to do, and two policies on one seed meet the same bad luck.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lab.fleet import GPUS_PER_NODE

Array = NDArray[np.float64]

YEAR_S = 365.25 * 86_400.0


@dataclass(frozen=True)
class XidKind:
    """The effects of an Xid error. ``weight``: how often it comes beside the others."""

    code: int
    weight: float
    ends_job: bool
    #: Whether the node is out until it is repaired.
    downs_node: bool


#: Page fault of a program, row remapped, NVLink error, contained and uncontained memory errors, and
#: a GPU that fell off the bus. The weights are set, not measured.
XID_KINDS = (
    XidKind(31, 0.35, ends_job=True, downs_node=False),
    XidKind(63, 0.20, ends_job=False, downs_node=False),
    XidKind(94, 0.15, ends_job=True, downs_node=False),
    XidKind(74, 0.10, ends_job=True, downs_node=False),
    XidKind(48, 0.05, ends_job=True, downs_node=True),
    XidKind(79, 0.15, ends_job=True, downs_node=True),
)
XIDS = tuple(kind.code for kind in XID_KINDS)


@dataclass(frozen=True, kw_only=True)
class FailureModel:
    """Rates of failures: means over the fleet as it stands, per part and second."""

    xid_per_gpu_s: float = 4e-8
    #: Weibull shape of Xids over a GPU's age; 1: age does not matter, less: the young fail more.
    #: Schroeder and Gibson 2006 find 0.7 to 0.8 in the failures of large machines.
    xid_shape: float = 0.78
    #: GPUs are up to so old.
    oldest_s: float = 2.0 * YEAR_S
    #: Lemon nodes: their share, and how much more often they fail. Of Meta's research clusters,
    #: 1.2 % of the nodes were lemons (Kokolis et al. 2024).
    lemon_share: float = 0.012
    lemon_factor: float = 10.0
    ecc_per_gpu_s: float = 2e-7
    #: Of 192 nodes, the agent of one falls silent about every ten minutes.
    silence_per_node_s: float = 1.0 / (600.0 * 192)
    silence_s: tuple[float, float] = (120.0, 360.0)
    #: Nodes that go down for another reason than a GPU.
    loss_per_node_s: float = 2e-8
    #: Repair of a node: median, and sigma of its logarithm.
    repair_s: float = 3600.0
    repair_sigma: float = 0.8
    #: Loss of a feed, and of all power of a site.
    loss_per_feed_s: float = 0.0
    loss_per_site_s: float = 0.0
    power_back_s: float = 1800.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = min(value) if isinstance(value, tuple) else value
            if not 0.0 <= least < np.inf:
                raise ValueError(f"{name} must be finite and at least 0, not {value}")
        if self.xid_shape == 0.0:
            raise ValueError("xid_shape must be over 0; 1 where age does not matter")


#: Nothing fails but by the conditions that somebody states.
NO_FAILURES = FailureModel(
    xid_per_gpu_s=0.0, ecc_per_gpu_s=0.0, silence_per_node_s=0.0, loss_per_node_s=0.0
)

What = Literal["xid", "ecc", "silence", "node", "feed", "site"]


class Failure(NamedTuple):
    """One failure: of the GPU, node, feed or site with number ``where``.

    ``lasts_s`` is how long the part is away; 0 for what leaves it in use.
    """

    at_s: float
    what: What
    where: int
    lasts_s: float = 0.0
    xid: XidKind | None = None


class Failures:
    """The failures to come. :attr:`next_s` is when the next one is due."""

    def __init__(
        self,
        model: FailureModel,
        rng: np.random.Generator,
        *,
        gpus: int,
        feeds: int,
        sites: int,
    ) -> None:
        self._model, self._rng = model, rng
        nodes = gpus // GPUS_PER_NODE
        lemons = rng.random(nodes) < model.lemon_share
        weight = np.repeat(np.where(lemons, model.lemon_factor, 1.0), GPUS_PER_NODE)
        #: Nodes that fail more often than others.
        self.lemons = lemons
        self._age_s: Array = rng.uniform(0.0, model.oldest_s, gpus)
        self._hazard = _Weibull(model.xid_per_gpu_s, model.xid_shape, model.oldest_s)
        self._weight: Array = weight / weight.mean()
        self._due: list[tuple[float, int, What, int]] = []
        self._serial = 0
        self._rates: dict[What, tuple[float, int]] = {
            "ecc": (model.ecc_per_gpu_s * gpus, gpus),
            "silence": (model.silence_per_node_s * nodes, nodes),
            "node": (model.loss_per_node_s * nodes, nodes),
            "feed": (model.loss_per_feed_s * feeds, feeds),
            "site": (model.loss_per_site_s * sites, sites),
        }
        for what in self._rates:
            self._draw_next(what, 0.0)
        # All GPUs' first ones at once.
        waits_s = self._hazard.wait_s(self._age_s, rng.exponential(1.0, gpus) / self._weight)
        self._due += [
            (float(wait_s), -gpu - 1, "xid", gpu)
            for gpu, wait_s in enumerate(waits_s)
            if wait_s < np.inf
        ]
        heapq.heapify(self._due)

    @property
    def next_s(self) -> float:
        return self._due[0][0] if self._due else np.inf

    def until(self, now_s: float) -> Iterator[Failure]:
        """Yield the failures up to ``now_s``, in order of time, each once."""
        while self.next_s <= now_s:
            at_s, _, what, where = heapq.heappop(self._due)
            if what == "xid":
                yield self._xid(at_s, where)
            else:
                self._draw_next(what, at_s)
                yield Failure(at_s, what, where, self._lasts_s(what))

    def _xid(self, at_s: float, gpu: int) -> Failure:
        weights = np.array([kind.weight for kind in XID_KINDS])
        kind = XID_KINDS[int(self._rng.choice(len(XID_KINDS), p=weights / weights.sum()))]
        lasts_s = self._lasts_s("node") if kind.downs_node else 0.0
        # A GPU that took its node down is replaced: the new one is young.
        age_s = np.array([0.0 if kind.downs_node else self._age_s[gpu] + at_s])
        if kind.downs_node:
            self._age_s[gpu] = -(at_s + lasts_s)
        drawn = np.array([self._rng.exponential(1.0) / self._weight[gpu]])
        wait_s = float(self._hazard.wait_s(age_s, drawn)[0])
        self._push(at_s + lasts_s + wait_s, "xid", gpu)
        return Failure(at_s, "xid", gpu, lasts_s, kind)

    def _draw_next(self, what: What, now_s: float) -> None:
        rate, count = self._rates[what]
        if rate > 0.0:
            wait_s = float(self._rng.exponential(1.0 / rate))
            self._push(now_s + wait_s, what, int(self._rng.integers(count)))

    def _push(self, at_s: float, what: What, where: int) -> None:
        self._serial += 1
        heapq.heappush(self._due, (at_s, self._serial, what, where))

    def _lasts_s(self, what: What) -> float:
        model = self._model
        if what == "silence":
            return float(self._rng.uniform(*model.silence_s))
        if what == "node":
            return float(model.repair_s * self._rng.lognormal(0.0, model.repair_sigma))
        return model.power_back_s if what in ("feed", "site") else 0.0


class _Weibull:
    """Times to failure of parts of all ages up to ``oldest_s``, whose mean rate is ``rate``."""

    def __init__(self, rate: float, shape: float, oldest_s: float) -> None:
        self._shape = shape
        #: Over ages from 0 to the oldest, the mean of the hazard is the rate.
        oldest_s = max(oldest_s, 1.0)
        self._scale_s = oldest_s / (rate * oldest_s) ** (1.0 / shape) if rate > 0.0 else np.inf

    def wait_s(self, age_s: Array, drawn: Array) -> Array:
        """Return how long parts of these ages last on; ``drawn``: hazards to use up, mean 1."""
        if self._scale_s == np.inf:
            return np.full(len(age_s), np.inf)
        used = (age_s / self._scale_s) ** self._shape
        wait_s: Array = self._scale_s * (used + drawn) ** (1.0 / self._shape) - age_s
        return wait_s
