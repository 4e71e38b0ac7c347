"""Scaling advice for a running job: out to more GPUs, up, a smaller batch, or nothing.

More nodes draw more, heat more and talk more, and a job that is let grow into the last watts is
told to shrink a minute later. So each option is judged on power, heat and links by the solver that
would have to grant it, and on what would be left after it; and on work done, by the GPU's power
curve and the ratio of communication to computing. Pure.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from admission.core.placement.cluster import Cluster
from admission.core.placement.comm_ratio import comm_ratio
from admission.core.placement.elastic import CAP_STEP_W, Draw, draw_of
from admission.core.placement.place import place
from admission.core.reasons import Reason, dominant
from admission.core.request import Placement, Refusal
from admission.core.response.shedding import Floats
from admission.core.snapshot import Running
from admission.core.throughput import Curve, Expected
from policies.headroom.reach import Reach, Room

__all__ = ["Advice", "Direction", "Growing", "Option", "advise"]

#: Less than so much more work is not worth a restart.
_LEAST_GAIN = 0.03
#: Caps that are tried between the present one and none.
_CAPS = 4


class Direction(enum.StrEnum):
    """Which way a job could scale."""

    #: more GPUs
    OUT = "out"
    #: the same GPUs under a higher cap, or none
    UP = "up"
    #: the same GPUs with a smaller batch
    SHRINK_BATCH = "shrink-batch"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Growing:
    """Terms and state of a job that may grow. Shares of a budget, of its batch, of its speed."""

    max_gpus: int
    #: of the tightest budget it wants so much left, or it would give way; None: it never does
    shrink_below: float | None = None
    #: what it works on now, and the least; equal where it cannot shrink
    batch_scale: float = 1.0
    min_batch_scale: float = 1.0
    #: beyond ``shrink_below`` so much has to be left after it has grown
    band: float = 0.05
    #: what it did at each size that it ran at
    curve: Curve = field(default_factory=Curve)

    @property
    def keeps(self) -> float:
        """The share that has to be left of every budget."""
        return (self.shrink_below or 0.0) + self.band


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to scale, its effect, and why or why not.

    ``throughput`` is the work done in a second beside that of now: 1.0 is as now. ``margin`` is the
    share that is left of the tightest budget after it; None: not known, or it is not possible.
    """

    direction: Direction
    is_possible: bool
    throughput: float
    gpus: int
    power_cap_w: float | None
    batch_scale: float
    added_w: float
    sentence: str
    margin: float | None = None
    comm_ratio: float | None = None
    comm_model: str = ""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Advice:
    """All options to scale, and the best one."""

    key: str
    best: Direction
    options: tuple[Option, ...]
    sentence: str


def advise(
    cluster: Cluster, running: Running, growing: Growing, room: Room, reach: Reach
) -> Advice:
    """Return the advice for a running job. ``cluster`` holds it, and is left as it is.

    ``room`` is what is left of each budget by what is drawn.
    """
    return _Adviser(cluster, running, growing, room, reach).advise()


class _Adviser:
    """The advice for one job, on a fleet without it."""

    def __init__(
        self, cluster: Cluster, running: Running, growing: Growing, room: Room, reach: Reach
    ) -> None:
        self.request, self.growing = running.request, growing
        self.now, self.room, self.reach = running.placement, room, reach
        self.cluster = cluster.copy()
        self.cluster.free(self.now, self.request)
        fleet = cluster.fleet
        self.draw: Draw = draw_of(fleet, int(fleet.gpus.model[self.now.gpus[0]]), 0, self.request)
        self.work = self._work(self.now) * growing.batch_scale

    def advise(self) -> Advice:
        nothing = self._nothing()
        options = (self._out(), self._up(), self._shrink(nothing), nothing)
        best, why = self._choose(options, nothing)
        return Advice(self.request.key, best.direction, options, why)

    def _choose(self, options: tuple[Option, ...], nothing: Option) -> tuple[Option, str]:
        out, up, shrink, _ = options
        is_tight = nothing.margin is not None and nothing.margin < (
            self.growing.shrink_below or 0.0
        )
        if is_tight and shrink.is_possible:
            return shrink, shrink.sentence
        more = [each for each in (up, out) if each.is_possible and _gain(each) >= _LEAST_GAIN]
        if more:
            # Of two that do as much the one that draws less.
            best = max(more, key=lambda each: (round(each.throughput, 3), -each.added_w))
            return best, best.sentence
        return nothing, f"{nothing.sentence} {out.sentence} {up.sentence}".strip()

    # --- Ways -------------------------------------------------------------------------------------

    def _nothing(self) -> Option:
        margin = self._margin(self.now, self.now)
        left = "" if margin is None else f" {100 * margin:.1f} % of its tightest budget is left."
        return self._option(
            Direction.NOTHING, self.now, 1.0, margin, f"As now: {_gpus(len(self.now.gpus))}.{left}"
        )

    def _out(self) -> Option:
        """Return the size that does the most work, or the smallest reason why there is none."""
        best, refused = None, None
        for gpus in self._sizes():
            asked = replace(self.request, gpus=gpus, min_gpus=gpus)
            found = place(self.cluster, asked)
            if isinstance(found, Refusal):
                refused = (gpus, found)
                continue
            option = self._grown(found)
            if best is None or (option.is_possible, option.throughput) > (
                best.is_possible, best.throughput,
            ):  # fmt: skip
                best = option
        if best is not None:
            return best
        if refused is None:
            most = _gpus(self.growing.max_gpus)
            return self._impossible(Direction.OUT, f"Out: it takes no more than {most}.")
        gpus, refusal = refused
        said = dominant(refusal.reasons).sentence
        sentence = f"Out to {_gpus(gpus)}: {said}."
        return replace(self._impossible(Direction.OUT, sentence), reasons=refusal.reasons)

    def _sizes(self) -> Iterator[int]:
        """Return sizes between the present one and the most, the largest first."""
        now, most = len(self.now.gpus), self.growing.max_gpus
        step = self.request.gpus_per_node or 1
        halfway = now + (most - now) // 2
        sizes = {size // step * step for size in (most, halfway, now + step)}
        return iter(sorted((size for size in sizes if now < size <= most), reverse=True))

    def _grown(self, found: Placement) -> Option:
        expected = self._expected(found)
        throughput = expected.ratio
        margin = self._margin(self.now, found)
        cap = "" if found.power_cap_w is None else f" at {found.power_cap_w:.0f} W each"
        text = f"Out to {_gpus(len(found.gpus))}{cap}: {expected.told()}"
        if found.comm_ratio is not None:
            text += f", communication {found.comm_ratio:.2f} times computing ({found.comm_model})"
        option = self._option(Direction.OUT, found, throughput, margin, text)
        return self._judged(option)

    def _expected(self, found: Placement) -> Expected:
        """Return its throughput there by its own curve, and by its power curve under a cap."""
        have, gpus = len(self.now.gpus), len(found.gpus)
        by_law = self._work(found) * self.growing.batch_scale / self.work
        there, here = (
            self.draw.speed(each.power_cap_w or self.draw.peak_w) for each in (found, self.now)
        )
        expected = self.growing.curve.expected(have, gpus, prior=by_law * here / there)
        return replace(expected, ratio=expected.ratio * there / here)

    def _up(self) -> Option:
        """Return the highest cap that fits, or why the present one stays."""
        cap_w = self.now.power_cap_w
        if cap_w is None or cap_w >= self.draw.peak_w:
            return self._impossible(Direction.UP, "Up: it runs under no cap.")
        for higher_w in self._caps(cap_w):
            raised = self._raised(higher_w)
            if self.cluster.admits(raised, self.request):
                throughput = self._work(raised) * self.growing.batch_scale / self.work
                to = "no cap" if raised.power_cap_w is None else f"{higher_w:.0f} W"
                text = f"Up from {cap_w:.0f} W to {to} per GPU: {throughput:.2f} times the work"
                margin = self._margin(self.now, raised)
                return self._judged(self._option(Direction.UP, raised, throughput, margin, text))
        return self._impossible(
            Direction.UP, f"Up: power or heat leave no more than {cap_w:.0f} W per GPU here."
        )

    def _caps(self, cap_w: float) -> Iterator[float]:
        yield self.draw.peak_w
        step_w = (self.draw.peak_w - cap_w) / _CAPS
        for place_ in range(_CAPS - 1, 0, -1):
            higher_w = CAP_STEP_W * math.floor((cap_w + place_ * step_w) / CAP_STEP_W)
            if higher_w > cap_w:
                yield higher_w

    def _raised(self, cap_w: float) -> Placement:
        """Return the same placement under a higher cap."""
        nodes = np.asarray(self.now.nodes)
        of_node = np.searchsorted(nodes, self.cluster.fleet.gpus.node[list(self.now.gpus)])
        count = np.bincount(of_node, minlength=len(nodes))
        more_w = cap_w - (self.now.power_cap_w or cap_w)
        peak_w = np.asarray(self.now.peak_w) + self.cluster.constants.factor[nodes] * more_w * count
        return replace(
            self.now,
            power_cap_w=None if cap_w >= self.draw.peak_w else cap_w,
            peak_w=tuple(peak_w.tolist()),
        )

    def _shrink(self, nothing: Option) -> Option:
        scale, least = self.growing.batch_scale, self.growing.min_batch_scale
        if least >= scale:
            return self._impossible(Direction.SHRINK_BATCH, "Smaller batch: it takes none.")
        share = least / scale
        idle_w = len(self.now.gpus) * self.draw.static_w
        freed_w = (1.0 - share) * max(self.now.total_w - idle_w, 0.0)
        margin = self._margin_of(-np.asarray(self.now.peak_w) * freed_w / self.now.total_w)
        below = self.growing.shrink_below or 0.0
        is_wanted = nothing.margin is not None and nothing.margin < below
        left = "" if nothing.margin is None else (
            f": {100 * nothing.margin:.1f} % of its tightest budget is left, and it wants "
            f"{100 * below:.1f} %"
        )  # fmt: skip
        why = left if is_wanted else f"{left}: there is no need" if left else ""
        option = self._option(
            Direction.SHRINK_BATCH, self.now, share, margin,
            f"Batch from {scale:.2g} to {least:.2g}: {share:.2f} times the work, about "
            f"{freed_w / 1e3:.1f} kW less{why}.",
        )  # fmt: skip
        return replace(option, batch_scale=least, added_w=-freed_w)

    # --- What they come to ------------------------------------------------------------------------

    def _judged(self, option: Option) -> Option:
        """Rule out an option that leaves too little: the job would be told to give way again."""
        keeps = self.growing.keeps
        if option.margin is not None and option.margin < keeps:
            text = (
                f"{option.sentence}, and {100 * option.margin:.1f} % of its tightest budget left, "
                f"under the {100 * keeps:.1f} % that it has to keep: it would soon be told to give "
                "way."
            )
            return replace(option, is_possible=False, sentence=text)
        if _gain(option) < _LEAST_GAIN:
            text = f"{option.sentence}: not worth it."
            return replace(option, sentence=text)
        watts = f"{option.added_w / 1e3:+.1f} kW"
        left = "" if option.margin is None else (
            f", {100 * option.margin:.1f} % of its tightest budget left"
        )  # fmt: skip
        return replace(option, sentence=f"{option.sentence}, {watts}{left}.")

    def _work(self, placement: Placement) -> float:
        """Return the work of a placement in a second, in GPUs at full speed that never wait.

        Communication hides behind computing as long as it takes less time.
        """
        speed = self.draw.speed(placement.power_cap_w or self.draw.peak_w)
        ratio = comm_ratio(self.cluster.topology, placement, self.request, speed)
        return len(placement.gpus) * speed / (1.0 if ratio is None else max(ratio.ratio, 1.0))

    def _margin(self, was: Placement, then: Placement) -> float | None:
        """Return the least share left of the budgets above either, if ``then`` took its place."""
        change_w = np.zeros(len(self.cluster.fleet.nodes))
        change_w[list(was.nodes)] -= was.peak_w
        change_w[list(then.nodes)] += then.peak_w
        rows = np.union1d(was.nodes, then.nodes).astype(np.int64)
        return self._least_share(rows.tolist(), change_w[rows])

    def _margin_of(self, change_w: Floats) -> float | None:
        return self._least_share(list(self.now.nodes), change_w)

    def _least_share(self, nodes: list[int], change_w: Floats) -> float | None:
        found = self.room.tightest(self.reach, nodes, change_w.tolist())
        return None if found is None else found[1]

    def _option(
        self,
        direction: Direction,
        placement: Placement,
        throughput: float,
        margin: float | None,
        sentence: str,
    ) -> Option:
        return Option(
            direction=direction,
            is_possible=True,
            throughput=throughput,
            gpus=len(placement.gpus),
            power_cap_w=placement.power_cap_w,
            batch_scale=self.growing.batch_scale,
            added_w=placement.total_w - self.now.total_w,
            margin=margin,
            comm_ratio=placement.comm_ratio,
            comm_model=placement.comm_model,
            sentence=sentence,
        )

    def _impossible(self, direction: Direction, sentence: str) -> Option:
        option = self._option(direction, self.now, 1.0, None, sentence)
        return replace(option, is_possible=False)


def _gain(option: Option) -> float:
    return option.throughput - 1.0


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
