"""Bringing the audit log to a syslog receiver: in order, each entry at least once."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from accounts import audit_chain, syslog
from accounts.models import AuditShipment

__all__ = ["Shipped", "step"]

log = structlog.get_logger(__name__)

#: Entries of one connection.
_AT_ONCE = 500


@dataclass(frozen=True)
class Shipped:
    """The result of one step: how many entries it brought, and up to where all are there."""

    count: int
    position: int
    error: str = ""


def step() -> Shipped:
    """Bring the next entries to the receiver, if there is one.

    The cursor moves once they are there. Where another process is at it, nothing is done.
    """
    if not settings.AUDIT_SYSLOG_URL:
        return Shipped(0, 0)
    AuditShipment.objects.get_or_create(pk=1)
    with transaction.atomic():
        cursor = AuditShipment.objects.select_for_update(skip_locked=True).filter(pk=1).first()
        return Shipped(0, 0) if cursor is None else _bring(cursor)


def _bring(cursor: AuditShipment) -> Shipped:
    receiver = syslog.Receiver.parse(settings.AUDIT_SYSLOG_URL)
    found = list(audit_chain.links(cursor.position, _AT_ONCE))
    if not found:
        return Shipped(0, cursor.position)
    hostname = socket.gethostname()
    messages = [
        syslog.message(audit_chain.Exported.of(link), hostname, is_stream=receiver.is_stream)
        for link in found
    ]
    try:
        syslog.deliver(receiver, messages, ca_file=settings.AUDIT_SYSLOG_CA)
    except syslog.Undelivered as error:
        _note_failure(cursor, str(error))
        return Shipped(0, cursor.position, str(error))
    _note_success(cursor, found[-1].position)
    return Shipped(len(found), cursor.position)


def _note_failure(cursor: AuditShipment, error: str) -> None:
    if cursor.failing_since is None:
        cursor.failing_since = timezone.now()
        log.warning("audit_not_shipped", position=cursor.position, error=error)
    cursor.last_error = error[:500]
    cursor.save(update_fields=["failing_since", "last_error"])


def _note_success(cursor: AuditShipment, position: int) -> None:
    if cursor.failing_since is not None:
        log.info("audit_shipped_again", position=position, failing_since=cursor.failing_since)
    cursor.position, cursor.shipped_at = position, timezone.now()
    cursor.failing_since, cursor.last_error = None, ""
    cursor.save(update_fields=["position", "shipped_at", "failing_since", "last_error"])
