"""One writer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from fleet import locks

__all__ = ["writing"]

_LOCK = 0x494E43  # "INC"


@contextmanager
def writing() -> Iterator[None]:
    """Run in one transaction, with everybody else who changes incidents waiting.

    The loop, alerts from elsewhere and people change the same few rows at once; each decides by all
    that fires, so the decision and its record belong together.
    """
    with transaction.atomic():
        locks.wait_until_commit(_LOCK)
        yield
