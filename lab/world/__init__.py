"""The closed loop in process: a twin, and the server's decisions around it, on one clock."""

from lab.world.arrival import Arrival
from lab.world.bench import bench_case
from lab.world.operators import Operators
from lab.world.policy import Approach, Headroom, Policy, builtin_playbooks, builtin_rules
from lab.world.record import Decision, JobOutcome, Record, Series
from lab.world.world import EPOCH_S, World

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
