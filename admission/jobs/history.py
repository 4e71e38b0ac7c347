"""The history of a job: its events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from admission.jobs.models import JobEvent

__all__ = ["AMENDED", "CANCELLED", "ENDED", "HELD", "PRIORITY", "RELEASED_HOLD", "SUBMITTED"]
__all__ += ["NEVER", "TERMINAL_ENDED", "UNLOCKED", "WAIVED", "event"]

#: Kinds of events. Other parts of admission add their own.
SUBMITTED = "submitted"
HELD = "held"
RELEASED_HOLD = "hold-released"
AMENDED = "amended"
PRIORITY = "priority"
CANCELLED = "cancelled"
#: a phase may begin, since what it needs has succeeded
UNLOCKED = "unlocked"
#: what it waits for can never come about
NEVER = "never"
#: somebody let it begin without what it waits for
WAIVED = "waived"
#: that of an interactive job, which ends with it
TERMINAL_ENDED = "terminal-ended"
#: a phase, or the whole job, is over
ENDED = "ended"


def event(
    job_id: int, kind: str, text: str, now: datetime, *, phase: str = "", **data: Any
) -> JobEvent:
    """Return an event that is not saved yet. Save it in the transaction that it tells of."""
    return JobEvent(job_id=job_id, phase=phase, at=now, kind=kind, text=text[:1000], data=data)
