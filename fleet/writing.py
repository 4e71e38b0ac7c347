"""Writing the inventory by hand, one row at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction

from fleet import snapshot
from fleet.models import InventoryGeneration


@contextmanager
def writing() -> Iterator[None]:
    """Run a check and the write that it allows in one transaction, with other writers waiting.

    Without the lock two rows could each be fine beside what was there, and not beside each other.
    """
    with transaction.atomic():
        InventoryGeneration.lock()
        yield
        snapshot.invalidate()
        transaction.on_commit(snapshot.invalidate)
