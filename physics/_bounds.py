"""What arguments of several modules may be, beyond the types of :mod:`physics.law`."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np

from physics.law import Array, Bound, Values

__all__ = [
    "AtLeastOne",
    "NonNegativeSeries",
    "PartShare",
    "PositiveShare",
    "Probability",
    "Several",
]

PositiveShare: TypeAlias = Annotated[
    Values, Bound("above 0 and at most 1", low=0.0, above_low=True, high=1.0)
]
#: A share that is never the whole.
PartShare: TypeAlias = Annotated[
    Values, Bound("at least 0 and below 1", low=0.0, high=float(np.nextafter(1.0, 0.0)))
]
NonNegativeSeries: TypeAlias = Annotated[
    Array, Bound("finite and at least 0", low=0.0, series=True)
]
AtLeastOne: TypeAlias = Annotated[Values, Bound("finite and at least 1", low=1.0)]
Several: TypeAlias = Annotated[Values, Bound("a whole number, at least 2", low=2.0, whole=True)]
#: A probability that is neither impossible nor certain.
Probability: TypeAlias = Annotated[
    Values,
    Bound("above 0 and below 1", low=0.0, above_low=True, high=float(np.nextafter(1.0, 0.0))),
]
