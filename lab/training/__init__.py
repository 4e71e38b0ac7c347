"""The jobs that run in the twin, by slot, and the progress of their training."""

from lab.training.kinds import JOB_KINDS, NEVER_S, JobKind
from lab.training.making import make_spec
from lab.training.paths import Paths, Speeds, all_reduce_s
from lab.training.spec import LossCurve, SpecError, Stage, TrainingSpec
from lab.training.table import BEHIND_S, Checkpoint, JobTable, Progress
from lab.training.workload import Load, Pool, Workload

__all__ = [
    "BEHIND_S",
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
