"""The constraint matrix on the twin: scenarios by seeds, played in processes."""

from sim.matrix.run import NothingToRun, Progress, run_matrix

__all__ = ["NothingToRun", "Progress", "run_matrix"]
