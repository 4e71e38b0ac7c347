"""Published results, and the twin's own figures where its set-up allows a comparison.

None of them is this twin, this fleet or these jobs: each says what differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lab.approaches.approaches import approach
from lab.approaches.comparison import Setup, policy_of, run
from lab.approaches.figures import Anchor, Figures
from lab.approaches.table import by_approach, mean_of
from lab.fleet import GPUS_PER_NODE, Fleet, inventory, make_even_fleet
from lab.traces import JobTrace
from lab.traces.arrivals import arrivals
from lab.twin import Conditions, domain_names
from lab.world import Arrival, World
from lab.world.record import Record

__all__ = ["Held", "anchors_of", "cut_load", "emerald", "polca", "tapas"]

_BASE, _ALL, _TUNED = "single-queue", "all-together", "tuned"


def anchors_of(runs: Sequence[Figures], setup: Setup) -> list[Anchor]:
    """Return all anchors. Those of POLCA and Emerald take two more runs each."""
    return [tapas(runs), polca(setup), emerald()]


def tapas(runs: Sequence[Figures]) -> Anchor:
    """Return the share of the single queue's throttling that all mechanisms together avoid."""
    found = by_approach(runs)
    heat = _avoided(found, lambda each: each.thermal_gpu_h)
    power = _avoided(found, lambda each: each.brake_gpu_h)
    return Anchor(
        name="TAPAS (Stojkovic et al., ASPLOS 2025)",
        source="https://arxiv.org/abs/2501.02600",
        published="97 % of thermal and 99 % of power throttle events avoided",
        here=f"of throttled GPU hours avoided: {heat} by heat, {power} by power brakes",
        differs="theirs are inference clusters of Azure beside their usual placement; "
        "ours trains, beside a queue that knows no watts",
    )


def _avoided(found: dict[str, list[Figures]], value: Callable[[Figures], float]) -> str:
    if _BASE not in found or _ALL not in found:
        return "not run"
    base, own = mean_of(found[_BASE], value), mean_of(found[_ALL], value)
    return f"{100.0 * (1.0 - own / base):.1f} %" if base > 0.0 else "none occurred"


# --- More servers under the same power ------------------------------------------------------------


def polca(setup: Setup, *, seed: int = 1, more: float = 0.3) -> Anchor:
    """Return the work that a fleet with more servers does on the same power budget.

    The fleet of ``setup`` has power for fewer GPUs at most; the other one has only those.
    """
    nodes = round(setup.gpus / (1.0 + more) / GPUS_PER_NODE / setup.sites) * setup.sites
    gpus = nodes * GPUS_PER_NODE
    few = replace(setup, gpus=gpus, power_share=setup.power_share * setup.gpus / gpus)
    before = run(few, approach(_BASE), seed=seed).figures
    after = run(setup, approach(_TUNED), seed=seed).figures
    work = after.work_gpu_h / before.work_gpu_h - 1.0
    return Anchor(
        name="POLCA (Patel et al., ASPLOS 2024)",
        source="https://arxiv.org/abs/2308.12908",
        published="30 % more servers under the same power, with little loss of performance",
        here=f"{setup.gpus / gpus - 1.0:.0%} more GPUs under the same power ({gpus} to"
        f" {setup.gpus}), and all together for scarce power in place of the single queue:"
        f" {work:+.1%} work, {before.over_budget_s:,.0f} s over a budget before and"
        f" {after.over_budget_s:,.0f} s after",
        differs="theirs is inference, whose peaks seldom coincide; ours is training, which draws "
        "near its peak all the time",
    )


# --- A cut of a quarter, held for three hours -----------------------------------------------------


@dataclass(frozen=True)
class Held:
    """The result of a cut. Shares are of the mean power before it."""

    #: from the cut until the power was below its target, s
    reached_s: float
    #: share of the time from then on, to the end of the cut, in which it was
    held_share: float
    #: mean and largest power from then on
    mean_share: float
    most_share: float
    #: work done during the cut, beside the same hours without it: of all jobs, and of those that
    #: agreed to no slowdown
    work_share: float
    rigid_work_share: float


def emerald(*, seed: int = 1) -> Anchor:
    """Return how well 256 GPUs hold a cut of their power by a quarter for three hours."""
    held = cut_load(seed=seed)
    return Anchor(
        name="Emerald Conductor in Phoenix (Colangelo et al., 2025)",
        source="https://arxiv.org/abs/2507.00909",
        published="25 % less power on 256 GPUs for 3 h, service kept as agreed",
        here=f"below the target after {held.reached_s / 60.0:.1f} min, and then for "
        f"{held.held_share:.1%} of the 3 h ({1.0 - held.mean_share:.1%} less on average); "
        f"{held.work_share:.1%} of the work of the same hours without a cut, "
        f"{held.rigid_work_share:.1%} for jobs that agreed to no slowdown",
        differs="theirs is a real cluster of A100s with inference among its jobs, warned ahead; "
        "ours is told by a lowered budget at the moment",
    )


_CUT = 0.25
#: Gangs that fill a fleet, the largest first, over and over.
_GANGS = (64, 32, 32, 32, 16, 16, 16, 16, 8, 8, 8, 8)


def cut_load(
    *, seed: int = 1, gpus: int = 256, warm_s: float = 2 * 3600.0, cut_s: float = 3 * 3600.0
) -> Held:
    """Run a full fleet with and without a cut of its power budget to three quarters of its draw.

    Both runs are the same up to the cut, ``warm_s`` after the start.
    """
    # A little more than is written on the parts, so that all of it is let in.
    fleet = make_even_fleet(gpus=gpus, power_share=1.05)
    jobs = _busy(gpus, 2.0 * (warm_s + cut_s), seed=seed)
    ends_s = (warm_s, warm_s + cut_s)
    begun, usual = _run(fleet, jobs, ends_s, seed=seed)
    settled = begun.times_s > warm_s / 2.0
    before_w = float(begun.series.site_w.sum(axis=1)[settled].mean())
    lowered = _lowered(fleet, (1.0 - _CUT) * before_w, warm_s)
    _, cut = _run(fleet, jobs, ends_s, seed=seed, conditions_at=lowered)
    rigid = {each.request.key for each in jobs if not each.request.max_slowdown}
    return _held(begun, usual, cut, before_w, rigid)


def _run(
    fleet: Fleet,
    jobs: Sequence[Arrival],
    ends_s: Sequence[float],
    *,
    seed: int,
    conditions_at: Callable[[float, Conditions], None] | None = None,
) -> list[Record]:
    """Return the records of one world at each of ``ends_s``."""
    policy = policy_of(approach(_ALL))
    world = World(fleet, jobs, policy, seed=seed, conditions_at=conditions_at)
    return [world.run(end_s) for end_s in ends_s]


def _lowered(fleet: Fleet, target_w: float, from_s: float) -> Callable[[float, Conditions], None]:
    """Return conditions under which the site may draw ``target_w`` in all from ``from_s`` on."""
    budget_w = sum(float(site["budget_w"]) for site in inventory(fleet)["sites"])
    tops = np.array([name == "utility" for _, name in domain_names(fleet)])

    def conditions_at(now_s: float, conditions: Conditions) -> None:
        if now_s >= from_s:
            conditions.domain_budget_share[tops] = target_w / budget_w

    return conditions_at


def _busy(gpus: int, runs_s: float, *, seed: int) -> list[Arrival]:
    """Return jobs that fill ``gpus`` GPUs from the start, for ``runs_s`` each."""
    sizes: list[int] = []
    for size in itertools.cycle(each for each in _GANGS if each <= max(gpus // 4, min(_GANGS))):
        left = gpus - sum(sizes)
        if left < min(_GANGS):
            break
        sizes.append(min(size, left // GPUS_PER_NODE * GPUS_PER_NODE))
    count = len(sizes)
    trace = JobTrace(
        name="full",
        line=np.arange(count),
        submit_s=np.zeros(count),
        runs_s=np.full(count, runs_s),
        gpus=np.array(sizes, dtype=np.int64),
        gpu_share=np.ones(count),
        walltime_s=np.full(count, np.nan),
        wait_s=np.full(count, np.nan),
        project=("demo",) * count,
    )
    return arrivals(trace, seed=seed)


def _held(
    begun: Record, usual: Record, cut: Record, before_w: float, rigid: Collection[str]
) -> Held:
    during = cut.times_s > begun.until_s
    times_s, site_w = cut.times_s[during], cut.series.site_w.sum(axis=1)[during]
    below = site_w <= (1.0 - _CUT) * before_w
    first = int(np.argmax(below)) if below.any() else len(below) - 1
    return Held(
        reached_s=float(times_s[first] - begun.until_s) if below.any() else float("inf"),
        held_share=float(below[first:].mean()),
        mean_share=float(site_w[first:].mean()) / before_w,
        most_share=float(site_w[first:].max()) / before_w,
        work_share=_work_share(begun, usual, cut, {each.key for each in usual.jobs}),
        rigid_work_share=_work_share(begun, usual, cut, rigid),
    )


def _work_share(begun: Record, usual: Record, cut: Record, keys: Collection[str]) -> float:
    """Return the work of some jobs since the cut, beside that of the run without one."""
    at_cut, without, under = (
        sum(each.work_gpu_s for each in record.jobs if each.key in keys)
        for record in (begun, usual, cut)
    )
    return (under - at_cut) / (without - at_cut) if without > at_cut else float("nan")
