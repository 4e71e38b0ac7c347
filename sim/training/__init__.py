"""What runs in the twin: jobs by slot, and how far their training has come."""

from sim.training.kinds import JOB_KINDS, NEVER_S, JobKind
from sim.training.making import make_spec
from sim.training.paths import Paths, Speeds, all_reduce_s
from sim.training.spec import LossCurve, SpecError, Stage, TrainingSpec
from sim.training.table import Checkpoint, JobTable, Progress
from sim.training.workload import Load, Pool, Workload

__all__ = [
    "JOB_KINDS",
    "NEVER_S",
    "Checkpoint",
    "JobKind",
    "JobTable",
    "Load",
    "LossCurve",
    "Paths",
    "Pool",
    "Progress",
    "SpecError",
    "Speeds",
    "Stage",
    "TrainingSpec",
    "Workload",
    "all_reduce_s",
    "make_spec",
]
