"""The closed loop in process: a twin, and what the server does around it, on one clock."""

from sim.world.arrival import Arrival
from sim.world.bench import bench_case
from sim.world.operators import Operators
from sim.world.policy import Approach, Headroom, Policy, builtin_playbooks, builtin_rules
from sim.world.record import Decision, JobOutcome, Record, Series
from sim.world.world import EPOCH_S, World

__all__ = [
    "EPOCH_S",
    "Approach",
    "Arrival",
    "Decision",
    "Headroom",
    "JobOutcome",
    "Operators",
    "Policy",
    "Record",
    "Series",
    "World",
    "bench_case",
    "builtin_playbooks",
    "builtin_rules",
]
