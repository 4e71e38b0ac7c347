"""Celery tasks: what is learnt of the fleet in the background."""

from __future__ import annotations

import time

import structlog
from celery import shared_task

from policies.headroom import fits, forecasts, live

log = structlog.get_logger(__name__)


@shared_task
def refit() -> None:
    """Fit some GPUs, and the hosts, to what they have read within the hour."""
    now = time.time()
    gpus = fits.refit(now)
    hosts = fits.refit_hosts(live.current(now))
    log.debug("refitted", gpus=gpus, hosts=hosts)


@shared_task
def score_forecasts() -> None:
    """Compare forecasts that are due with what came."""
    now = time.time()
    forecasts.score(live.current(now))
    forecasts.forget(now)
