"""Published traces of GPU jobs, read as arrays, and as jobs that come to a twin.

Each format has a module with ``load(path) -> JobTrace``: :mod:`~sim.traces.philly`,
:mod:`~sim.traces.openb` and :mod:`~sim.traces.swf`.
"""

from sim.traces.trace import BadRow, JobTrace, TraceError

__all__ = ["BadRow", "JobTrace", "TraceError"]
