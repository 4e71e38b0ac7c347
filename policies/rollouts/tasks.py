"""Celery tasks: rollouts that are not over are followed."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from policies.rollouts import following

log = structlog.get_logger(__name__)


@shared_task
def follow() -> None:
    """Look at each rollout. One that cannot be followed does not hold up the others."""
    for run_id in following.due():
        try:
            following.follow(run_id, timezone.now())
        except (InterfaceError, OperationalError):
            raise  # nothing is wrong with the rollout
        except Exception:
            log.exception("rollout_not_followed", rollout=run_id)
