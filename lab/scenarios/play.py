"""One run of a scenario on the twin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab.fleet import Fleet, make_even_fleet
from lab.matrix.scenario import Fleet as FleetOf
from lab.matrix.scenario import Scenario
from lab.scenarios.faults import Faults
from lab.scenarios.loads import arrivals_of
from lab.scenarios.measures import log_of, losses_of, measures_of, series_of, work_gpu_s
from lab.scenarios.played import Played
from lab.scenarios.policies import load_policy
from lab.twin import NO_FAILURES
from lab.world import World

__all__ = ["fleet_of", "play"]


def fleet_of(given: FleetOf) -> Fleet:
    """Return the fleet that a scenario asks for."""
    return make_even_fleet(
        gpus=given.gpus,
        sites=given.sites,
        power_share=given.power_share,
        feed_share=given.feed_share,
        cooling_share=given.cooling_share,
    )


def play(
    scenario: Scenario,
    policy: Path | None = None,
    seed: int = 1,
    *,
    progress: Callable[[float], None] | None = None,
) -> Played:
    """Play ``scenario`` under the policy in a folder; None: the built-in one.

    ``progress`` is told the seconds of the run that are done.
    """
    fleet = fleet_of(scenario.fleet)
    world = World(
        fleet,
        arrivals_of(scenario, fleet, seed=seed),
        load_policy(policy),
        seed=seed,
        conditions_at=Faults(scenario, fleet, seed=seed),
        # What goes wrong is what the scenario says, and nothing else.
        failures=NO_FAILURES,
    )
    before = world.run(scenario.warm_up_s, progress)
    record = world.run(scenario.duration_s, progress)
    return Played(
        series=tuple(series_of(record)),
        measures=tuple(measures_of(record, before)),
        losses=losses_of(record),
        work_gpu_s=work_gpu_s(record, before),
        digest=record.digest,
        log=log_of(record),
    )
