"""Celery tasks of admission."""

from __future__ import annotations

import time

from celery import shared_task
from django.utils import timezone

from admission.cycle import accounting, asking, estimating, loop
from admission.executors import output
from admission.executors.schedulers import news
from admission.failures import metrics as failure_metrics
from admission.learned import draws, energy, forecasts
from admission.policy import shadowing
from admission.shells import opening

#: A task begins no further cycle after this, s.
_AT_A_STRETCH_S = 1.0


@shared_task
def cycle() -> bool:
    """Do one cycle; False where another process is at it, or a part failed.

    From then on this process answers what is asked about the queue. What is asked for while it
    decides follows at once, unless cycles take so long that the next beat is near. Between two
    beats cycles are short.
    """
    began = time.monotonic()
    while True:
        done = loop.cycle_once(time.time(), may_be_short=True)
        if done is None:
            news.follow_up()
            return False
        if done.decisions is not None:
            asking.hold(done.decisions)
        # After the lock is free: whoever found it taken has left this to us.
        if time.monotonic() - began > _AT_A_STRETCH_S or not news.is_cycle_asked():
            return not done.failed


@shared_task
def estimate() -> bool:
    """Estimate when phases begin; False where another process is at it."""
    return estimating.estimate_once(time.time()) is not None


@shared_task
def follow_shells() -> int:
    """End terminals whose time is up; return how many ended."""
    return opening.follow(timezone.now())


@shared_task
def observe() -> None:
    """Measure the draw of running attempts and the energy of all, and have owners read it."""
    now = time.time()
    draws.observe(now)
    energy.measure(now)
    accounting.account(now)


@shared_task
def count_failures() -> None:
    """Show how many failures there were of late, and how often a GPU fails."""
    failure_metrics.show(time.time())


@shared_task
def look_back() -> None:
    """Ask new shadows of the admission policy about the day before them."""
    # Imported here: reading recorded telemetry takes libraries that a worker else does without.
    from admission.policy import lookback

    lookback.look_back(timezone.now())


@shared_task
def forget() -> None:
    """Drop old estimates, decisions of shadows more than a day old, and output beyond its bound."""
    forecasts.prune(timezone.now())
    shadowing.prune(timezone.now())
    output.prune()
