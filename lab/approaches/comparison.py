"""The approaches on the same fleet and the same jobs, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lab.approaches.approaches import NAMES, Approach, approach
from lab.approaches.figures import Figures, Seen
from lab.approaches.measuring import figures_of, seen_of
from lab.fleet import GPUS_PER_NODE, NODES_PER_RACK, Fleet, make_even_fleet
from lab.spread import Kept, Where, Work, run_all
from lab.traces import JobTrace, helios, openb, philly
from lab.traces.arrivals import Manner, arrivals
from lab.twin import Conditions
from lab.world import Arrival, Policy, World

__all__ = ["RUN", "Run", "Setup", "compare", "run"]


LOADERS = {"philly": philly.load, "openb": openb.load, "helios": helios.load}
#: A fleet that jobs are carried into has run before, and knows its hosts from so long, s.
_BEFORE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The jobs and the fleet that all approaches are run on.

    The default is three hours of the Philly trace, from the evening of 2017-10-04 on: of the spans
    that begin on a whole or half day of the trace the one whose jobs take most GPU hours within it.
    Without waits they would hold 297 of the 384 GPUs on average. At full load the fleet would draw
    more than its budgets: power is short, and not GPUs.
    """

    trace: Path
    #: how the trace is read: see ``lab.traces``
    form: Literal["philly", "openb", "helios"] = "philly"
    from_h: float = 30.5 * 24.0
    hours: float = 3.0
    gpus: int = 384
    sites: int = 2
    nodes_per_rack: int = NODES_PER_RACK
    #: jobs that run at the beginning come then, too, with what was left of them
    carried: bool = False
    #: so many hours of the trace go by in one
    faster: float = 1.0
    #: share of the jobs that come: every so-and-so-manieth line of the trace
    kept: float = 1.0
    #: share of the nodes that another scheduler fills with load of its own
    others_share: float = 0.0
    #: what is left of the capacity of uplinks and spines
    links_share: float = 1.0
    #: what racks may draw, as a share of what is written on their parts; feeds and sites have room
    #: for their racks, and no more
    power_share: float = 0.55
    #: what feeds, PDUs and sites may draw, as a share of what their racks may
    feed_share: float = 1.0
    #: heat that zones carry off, as a share of the budgets of their racks: enough, so that what is
    #: short is power
    cooling_share: float = 1.2
    manner: Manner = field(default_factory=Manner)

    def jobs(self) -> JobTrace:
        """Return the jobs that come. Raises :class:`~lab.traces.TraceError`."""
        from_s = self.from_h * 3600.0
        to_s = from_s + self.hours * self.faster * 3600.0
        trace = LOADERS[self.form](self.trace)
        found = trace.over(from_s, to_s) if self.carried else trace.between(from_s, to_s)
        found = found.thinned(self.kept)
        return found.faster(self.faster) if self.faster != 1.0 else found

    def fleet(self) -> Fleet:
        """Return the fleet that the jobs are submitted to."""
        return make_even_fleet(
            gpus=self.gpus,
            sites=self.sites,
            power_share=self.power_share,
            cooling_share=self.cooling_share,
            feed_share=self.feed_share,
            nodes_per_rack=self.nodes_per_rack,
        )

    def conditions_at(self, _at_s: float, stated: Conditions) -> None:
        """State what is wrong with the fleet, all the time."""
        local = len(stated.rack_budget_share) + self.sites
        stated.link_capacity_share[:local] = self.links_share

    def jobs_said(self) -> str:
        """Return a description of the jobs, as sentences."""
        jobs = self.jobs()
        within_s = np.minimum(jobs.runs_s, self.hours * 3600.0 - jobs.submit_s)
        wanted = float(within_s @ jobs.gpus) / (self.hours * 3600.0)
        return (
            f"Jobs: {len(jobs):,} of the Philly trace that came within {self.hours:g} h from its"
            f" hour {self.from_h:g} on. Without waits they would hold {wanted:.0f} GPUs on average;"
            f" {int((jobs.gpus >= GPUS_PER_NODE).sum())} want a whole node or more,"
            f" the largest {jobs.gpus.max(initial=0)} GPUs."
        )

    def fleet_said(self) -> str:
        """Return a description of the fleet, as sentences."""
        return (
            f"Fleet: {self.gpus} H100s at {self.sites} sites. Racks, feeds and sites may draw"
            f" {100 * self.power_share:g} % of what is written on their parts, and cooling zones"
            f" carry off {100 * self.cooling_share:g} % of that."
        )

    def again(self, seeds: Sequence[int]) -> list[str]:
        """Return the command line that repeats the comparison, but for the path of the trace."""
        words = ["python", "-m", "lab", "approaches", "--trace", self.trace.name]
        for option in ("from_h", "hours", "gpus", "sites", "power_share", "cooling_share"):
            value = getattr(self, option)
            if value != getattr(Setup, option):
                words += [f"--{option.replace('_', '-')}", f"{value:g}"]
        for seed in seeds if tuple(seeds) != (1,) else ():
            words += ["--seed", str(seed)]
        return words


@dataclass(frozen=True)
class Run:
    """The result of a run: its figures, and its series for plots."""

    figures: Figures
    seen: Seen


def policy_of(chosen: Approach) -> Policy:
    """Return the policy under which a world follows an approach."""
    policy = Policy(name=chosen.name, approach=chosen, reserve=chosen.reserve, tuning=chosen.tuning)
    if not chosen.follows_rules:
        return replace(policy, rules=(), playbooks={})
    kept = tuple(rule for rule in policy.rules if rule.name not in chosen.retired_rules)
    return replace(policy, rules=kept)


def run(
    setup: Setup,
    chosen: Approach,
    *,
    seed: int,
    jobs: Sequence[Arrival] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Run:
    """Run one approach. ``jobs``: those of the trace of ``setup``, if they are at hand."""
    came = arrivals(setup.jobs(), setup.manner, seed=seed) if jobs is None else jobs
    hosts = None
    if setup.carried and chosen.controls:
        before = _world(setup, chosen, came, seed, None)
        before.run(_BEFORE_S)
        hosts = before.hosts
    world = _world(setup, chosen, came, seed, hosts)
    record = world.run(setup.hours * 3600.0, progress)
    return Run(
        figures_of(record, approach=chosen.name, gpus=setup.gpus, hours=setup.hours),
        seen_of(record),
    )


def _world(
    setup: Setup,
    chosen: Approach,
    came: Sequence[Arrival],
    seed: int,
    hosts: Mapping[int, NDArray[np.float64]] | None,
) -> World:
    return World(
        setup.fleet(),
        came,
        policy_of(chosen),
        seed=seed,
        others_share=setup.others_share,
        conditions_at=setup.conditions_at if setup.links_share < 1.0 else None,
        hosts=hosts,
    )


def compare(
    setup: Setup,
    *,
    names: Sequence[str] = NAMES,
    seeds: Sequence[int] = (1,),
    where: Where | None = None,
    kept: Kept | None = None,
) -> Iterator[Run]:
    """Yield the runs of all approaches and seeds as they end; those that are kept, first.

    Raises :class:`~lab.spread.Broken` for a run that raised.
    """
    for name in names:
        approach(name)
    todo = [Part(setup, name, seed) for seed in seeds for name in names]
    for ended in run_all(RUN, todo, where=where, kept=kept):
        yield ended.value()


@dataclass(frozen=True)
class Part:
    """One run of a comparison: jobs and fleet, the name of an approach, and a seed."""

    setup: Setup
    approach: str
    seed: int


def _run(part: Part) -> Run:
    return run(part.setup, approach(part.approach), seed=part.seed)


RUN = Work(f"{__name__}:RUN", _run, Part, Run)
