"""Celery tasks of curtailments."""

from __future__ import annotations

import structlog
from celery import shared_task
from django.utils import timezone

from admission.curtailments import judging
from admission.curtailments.openadr import following
from admission.curtailments.openadr.client import VtnError

log = structlog.get_logger(__name__)


@shared_task
def judge() -> None:
    """Judge curtailments that are over."""
    judging.judge_due(timezone.now())


@shared_task
def follow_vtn() -> bool:
    """Ask the grid's VTN what it wants, where one is set; False: in vain, and the loop is late."""
    try:
        return following.follow(timezone.now())
    except VtnError as error:
        log.warning("openadr_vtn_away", why=str(error))
        return False
