"""Five common ways to run a fleet under limits, and all together, compared on the same jobs."""

from lab.approaches.approaches import APPROACHES, NAMES, Approach, approach

__all__ = ["APPROACHES", "NAMES", "Approach", "approach"]
