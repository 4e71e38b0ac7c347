"""After a step of the clock: rows put off by the wall clock become due in their turn.

Rows of the database say when something is to be looked at again. Where the clock was set back by
three hours, a step of a playbook that was to be looked at in two seconds would wait for as long.
All of these are times *before which* nothing is done, so doing it early does no harm. Set forth,
the clock makes things due that are not: that cannot be taken back, and is told
(``config.condition``).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F, Model

from admission.jobs.models import Phase
from policies.incidents.models import Delivery, Incident, NotificationChannel
from policies.playbooks.models import PlaybookRun

__all__ = ["PUT_OFF", "follow"]

#: The columns that say when something is to be looked at again.
PUT_OFF: tuple[tuple[type[Model], str], ...] = (
    (PlaybookRun, "due_at"),
    (Delivery, "next_at"),
    (NotificationChannel, "not_before"),
    (Incident, "notify_at"),
    (Incident, "quiet_since"),
    (Phase, "not_before"),
)


def follow(by_s: float, now: datetime) -> int:
    """Bring put-off times back by the step, s; return how many rows. Only steps back matter."""
    if by_s >= 0:
        return 0
    by, count = timedelta(seconds=by_s), 0
    for model, column in PUT_OFF:
        rows = model._default_manager.filter(**{f"{column}__gt": now})
        count += rows.update(**{column: F(column) + by})
    return count
