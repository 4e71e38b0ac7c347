"""Results of matrices."""

from __future__ import annotations

from lab.matrix.result import Cell, SubjectKind, Verdict, dumps, make_result

__all__ = ["result_of"]


def result_of(*verdicts: Verdict) -> bytes:
    """Return a result as ``headroom matrix run`` writes it, with a cell for each verdict."""
    cells = [
        Cell(scenario="calm", title="", seed=seed, verdict=verdict)
        for seed, verdict in enumerate(verdicts)
    ]
    return dumps(make_result(subject="serve.py", kind=SubjectKind.COMMAND, at="", cells=cells))
