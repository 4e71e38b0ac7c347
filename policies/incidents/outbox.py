"""From the outbox to the other side: each notification until it is taken, or given up.

One sender at a time works on a channel, in the order of the queue. It says so on the channel for as
long as it may take, so a worker that dies leaves the channel to the next after that. A notification
may then be sent again: with the same idempotency key, by which receivers tell.

A channel that fails is left alone for a while, the longer the more often it failed. So one that
hangs costs seconds of a thread, and nobody else's time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache, partial
from threading import BoundedSemaphore
from time import monotonic
from typing import TypeAlias

import msgspec
import structlog
from django.conf import settings
from django.db import connections, transaction
from django.db.models import F, Q
from django.utils import timezone

from accounts.audit import SYSTEM
from policies.incidents import follow, outgoing
from policies.incidents.channels import PREPARE, email
from policies.incidents.channels.content import Content, Destination, Event
from policies.incidents.metrics import NOTIFICATIONS
from policies.incidents.models import Delivery, NotificationChannel
from policies.incidents.outgoing import SendingError

__all__ = ["MAX_ATTEMPTS", "Claim", "backoff_s", "claim", "deliver", "prune", "revive", "work"]

log = structlog.get_logger(__name__)

#: A notification that failed so often is given up.
MAX_ATTEMPTS = 10
#: Of a channel so many are sent before others have their turn.
_BATCH = 5
#: Channels at work at once, in one process.
_THREADS = 8
_LONGEST_WAIT_S = 300.0
#: It is kept for so long what became of notifications.
KEPT = timedelta(days=30)

#: Runs a piece of work, now or in a thread.
Runner: TypeAlias = Callable[[Callable[[], None]], None]


@dataclass(frozen=True)
class Claim:
    """Notifications of one channel that this process alone is to send, up to ``until``."""

    channel: NotificationChannel
    deliveries: list[Delivery]
    until: datetime


@dataclass(frozen=True)
class _Outcome:
    """The outcome of one try to send. ``error`` empty: it was taken."""

    error: str = ""
    is_final: bool = False
    retry_after_s: float | None = None


def deliver(*, now: datetime, run: Runner | None = None) -> int:
    """Begin to send queued notifications. Return on how many channels. Does not wait for it."""
    begun = 0
    for channel_id in _channels_with_work(now):
        if not _slots().acquire(blocking=False):
            break  # the next round, or another process
        claimed = claim(channel_id, now)
        if claimed is None:
            _slots().release()
            continue
        begun += 1
        (run or _in_thread)(partial(_work_and_release, claimed))
    return begun


def _channels_with_work(now: datetime) -> list[int]:
    free = Q(channel__not_before=None) | Q(channel__not_before__lte=now)
    waiting = Delivery.objects.waiting().filter(free, next_at__lte=now, channel__enabled=True)
    return list(waiting.order_by().values_list("channel_id", flat=True).distinct())


def claim(channel_id: int, now: datetime) -> Claim | None:
    """Take the channel and its first queued notifications; None where somebody else has it."""
    until = now + timedelta(seconds=_BATCH * settings.NOTIFY_TIMEOUT_S + 10)
    free = Q(not_before=None) | Q(not_before__lte=now)
    with transaction.atomic():
        channels = NotificationChannel.objects.filter(free, pk=channel_id, enabled=True)
        if not channels.update(not_before=until):
            return None
        rows = list(
            Delivery.objects.waiting()
            .filter(channel=channel_id, next_at__lte=now)
            .order_by("id")[:_BATCH]
        )
        if not rows:
            NotificationChannel.objects.filter(pk=channel_id).update(not_before=None)
            return None
        return Claim(NotificationChannel.objects.get(pk=channel_id), rows, until)


def work(claimed: Claim) -> None:
    """Send the claimed notifications, up to the first that fails, and record each outcome."""
    begin = monotonic()
    channel, outcome = claimed.channel, _Outcome()
    for delivery in claimed.deliveries:
        late = monotonic() - begin > (_BATCH - 1) * settings.NOTIFY_TIMEOUT_S
        if late or timezone.now() >= claimed.until:
            break
        # Counted before it is sent: what kills its worker is given up as well. And one that was
        # withdrawn meanwhile is not sent.
        waiting = Delivery.objects.waiting().filter(pk=delivery.pk)
        if not waiting.update(attempts=F("attempts") + 1):
            continue
        delivery.attempts += 1
        outcome = _try(channel, delivery)
        _record(delivery, outcome)
        if outcome.error and not outcome.is_final:
            break
    _release(channel, outcome)


def _try(channel: NotificationChannel, delivery: Delivery) -> _Outcome:
    destination = Destination(channel.target, channel.secret)
    try:
        content = msgspec.convert(delivery.content, Content)
        if channel.kind == NotificationChannel.Kind.EMAIL:
            email.send(content, destination)
            return _Outcome()
        request = PREPARE[channel.kind](content, destination, timezone.now().timestamp())
        answer = outgoing.post(request.url, request.body, request.headers)
    except SendingError as error:
        return _Outcome(str(error), error.is_final)
    except Exception as error:
        # One that cannot be put into words must not hold up those behind it.
        log.exception("notification_failed", delivery=delivery.pk, channel=channel.name)
        return _Outcome(f"{type(error).__name__}: {error}", is_final=True)
    if answer.is_good:
        return _Outcome()
    said = f"the answer is {answer.status}: {answer.text[:200]}".strip(" :")
    return _Outcome(said, answer.is_final, answer.retry_after_s)


def backoff_s(failures: int, chance: float) -> float:
    """Return how long to wait after so many failures in a row, s; ``chance``: 0 to 1."""
    doubled: float = min(_LONGEST_WAIT_S, 2.0 ** min(failures, 20))
    # So that many that failed together do not come back together.
    return doubled * (0.5 + 0.5 * chance)


def _record(delivery: Delivery, outcome: _Outcome) -> None:
    now = timezone.now()
    delivery.error = _clean(outcome.error)
    if not outcome.error:
        delivery.state, delivery.sent_at = Delivery.State.SENT, now
    elif outcome.is_final or delivery.attempts >= MAX_ATTEMPTS:
        delivery.state = Delivery.State.FAILED
    else:
        wait_s = outcome.retry_after_s or backoff_s(delivery.attempts, random.random())  # noqa: S311
        delivery.next_at = now + timedelta(seconds=wait_s)
    with transaction.atomic():
        delivery.save(update_fields=["state", "sent_at", "next_at", "error"])
        _note(delivery, now)
    became = "retried" if delivery.state == Delivery.State.QUEUED else str(delivery.state)
    NOTIFICATIONS.labels(delivery.channel.kind, became).inc()


def _note(delivery: Delivery, now: datetime) -> None:
    """Add the outcome to the incident's timeline, but not that of each renewal."""
    is_over = delivery.state != Delivery.State.QUEUED
    if delivery.incident_id is None or not is_over:
        return
    if delivery.event == Event.REPEATED.value and not delivery.error:
        return
    name = delivery.channel.name
    kind, text = "notified", f"{name} was told: {delivery.event}."
    if delivery.error:
        kind, text = "notify_failed", f"{name} could not be told: {delivery.error}."
    data = {"delivery": delivery.pk, "channel": name, "event": delivery.event}
    follow.note(delivery.incident_id, kind, text, data, SYSTEM, now)


def _release(channel: NotificationChannel, outcome: _Outcome) -> None:
    """Give the channel back: at once after a success, after a wait when it failed."""
    failed = bool(outcome.error) and not outcome.is_final
    failures = channel.failures + 1 if failed else 0
    not_before = None
    if failed:
        wait_s = outcome.retry_after_s or backoff_s(failures, random.random())  # noqa: S311
        not_before = timezone.now() + timedelta(seconds=wait_s)
    NotificationChannel.objects.filter(pk=channel.pk).update(
        failures=failures, not_before=not_before, last_error=_clean(outcome.error)
    )


def _clean(text: str) -> str:
    """Return an error's text in a form that the database can store."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:500]


def revive(delivery: Delivery, *, now: datetime) -> bool:
    """Queue again a notification that was given up. Return False where it was not."""
    failed = Delivery.objects.filter(pk=delivery.pk, state=Delivery.State.FAILED)
    return bool(failed.update(state=Delivery.State.QUEUED, attempts=0, next_at=now, error=""))


def prune(*, now: datetime) -> None:
    """Delete old notifications that are over, but those on which an incident's next depends."""
    over = Delivery.objects.exclude(state=Delivery.State.QUEUED)
    goes_on = Q(incident__isnull=False) & ~Q(incident__state="resolved")
    needed = goes_on & ~Q(event__in=[Event.REPEATED.value, Event.MESSAGE.value])
    over.filter(queued_at__lt=now - KEPT).exclude(needed).delete()


# --- Threads -------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _slots() -> BoundedSemaphore:
    return BoundedSemaphore(_THREADS)


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    # Made by the first who needs it: after the worker has forked.
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="notify")


def _work_and_release(claimed: Claim) -> None:
    try:
        work(claimed)
    finally:
        _slots().release()


def _in_thread(job: Callable[[], None]) -> None:
    def with_own_connection() -> None:
        try:
            job()
        except Exception:
            log.exception("notification_thread_failed")
        finally:
            connections.close_all()

    _pool().submit(with_own_connection)
