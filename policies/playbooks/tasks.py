"""Celery tasks: runs that are due are moved on."""

from __future__ import annotations

from datetime import UTC, datetime

import structlog
from celery import shared_task
from django.db import InterfaceError, OperationalError

from policies.playbooks import runs
from policies.playbooks.run_context import Conditions

log = structlog.get_logger(__name__)


@shared_task
def advance(run_id: int) -> None:
    """Move one run on: something has just happened to it."""
    runs.advance(run_id, datetime.now(UTC))


@shared_task
def advance_due() -> None:
    """Move all runs on that are due. A run that cannot be moved does not hold up the others."""
    now = datetime.now(UTC)
    conditions = Conditions(now)
    for run_id in runs.due_runs(now):
        try:
            runs.advance(run_id, now, conditions)
        except (InterfaceError, OperationalError):
            raise  # nothing is wrong with the run
        except Exception:
            log.exception("playbook_run_not_moved", run=run_id)
            runs.put_off(run_id, now)
