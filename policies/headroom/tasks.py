"""Celery tasks: fits of GPUs and hosts, and scores of forecasts, in the background."""

from __future__ import annotations

import time

import structlog
from celery import shared_task

from policies import current
from policies.headroom import fits, forecasts, live

log = structlog.get_logger(__name__)


@shared_task
def refit() -> None:
    """Fit some GPUs, and the hosts, to their readings of the last hour."""
    now = time.time()
    gpus = fits.refit(now)
    hosts = fits.refit_hosts(live.current(now))
    log.debug("refitted", gpus=gpus, hosts=hosts)


@shared_task
def score_forecasts() -> None:
    """Compare forecasts that are due with the loads now, and drop old scores."""
    now = time.time()
    # Under the restrictions in force: they lower budgets, too.
    forecasts.score(current.headroom(now))
    forecasts.prune(now)
