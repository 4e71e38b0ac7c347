"""The FLOPs that specifications state of a step, and the peaks of the GPUs that take it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from django.db.models import F, Func, JSONField, TextField, Value
from django.db.models.functions import Cast

from admission.core.account import Ints
from admission.core.program import Floats, Stated, peak_flops
from fleet.tables import FleetArrays
from headroom.jobs.spec import Precision

__all__ = ["OF_ATTEMPT", "stated"]


def _of_phase(field: str) -> Func:
    """Return a field of the phase's specification, for a query of attempts; null: not said."""
    return Func(
        F("phase__job__spec"), Value("phases"), Cast("phase__index", TextField()), Value(field),
        function="jsonb_extract_path", output_field=JSONField(),
    )  # fmt: skip


#: What a query of attempts reads for :func:`stated`.
OF_ATTEMPT = (_of_phase("flops_per_step"), _of_phase("precision"))


def stated(
    said: Sequence[tuple[float | None, str | None]], gpu: Ints, attempt: Ints, fleet: FleetArrays
) -> Stated:
    """Return what attempts state; ``said``: by attempt, FLOPs of a step and their precision.

    ``gpu`` are rows of the whole GPUs that attempts hold, each by the attempt of the same place; -1
    for one that has no peak that is known, such as a slice.
    """
    codes = {each.value: code for code, each in enumerate(Precision)}
    names = fleet.models.names.tolist()
    # The last column is that of what is not known.
    peaks = np.full((len(codes), len(names) + 1), np.nan)
    peaks[:, :-1] = [peak_flops(names, precision) for precision in codes]
    model = np.append(fleet.gpus.model, -1)[gpu]
    code = np.array([codes[precision or Precision.BF16] for _, precision in said], dtype=np.int64)
    own = peaks[code[attempt], model]
    count = len(said)
    gpus = np.bincount(attempt, minlength=count).astype(np.float64)
    total: Floats = np.bincount(attempt, own, count).astype(np.float64)
    mean = np.divide(total, gpus, out=np.full(count, np.nan), where=gpus > 0.0)
    flop = np.array([np.nan if flop is None else flop for flop, _ in said], dtype=np.float64)
    return Stated(flop, mean)
