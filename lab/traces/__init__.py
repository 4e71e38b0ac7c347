"""Published traces of GPU jobs, read as arrays, and as jobs that come to a twin.

Each format has a module with ``load(path) -> JobTrace``: :mod:`~lab.traces.philly`,
:mod:`~lab.traces.openb`, :mod:`~lab.traces.helios` and :mod:`~lab.traces.swf`.
"""

from lab.traces.trace import BadRow, JobTrace, TraceError

__all__ = ["BadRow", "JobTrace", "TraceError"]
