"""Numbers that are not finite, in JSON: one encoding for answers and for stored values.

What is not known is null. What has no bound, such as the time until something that never comes, is
the text "Infinity" or "-Infinity", as in the JSON mapping of Protocol Buffers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

__all__ = ["ENDLESS", "number_of", "plain"]

#: Texts of what has no bound.
ENDLESS = {"Infinity": math.inf, "-Infinity": -math.inf}


def plain(value: Any) -> Any:
    """Return ``value`` in a form that JSON has, with all that is inside of it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    return value.isoformat() if isinstance(value, datetime) else value


def number_of(value: Any) -> Any:
    """Return the number that :func:`plain` wrote as a text; anything else as it is."""
    return ENDLESS.get(value, value) if isinstance(value, str) else value
