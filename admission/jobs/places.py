"""The nodes of running jobs, to check which agents may report on them."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Iterable
from datetime import timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.utils import timezone

from admission.jobs.models import Attempt, Job

__all__ = ["Places"]

#: That the grace of an ended job is over shows in no row: so often it is looked at anyway, s.
_LOOK_AGAIN_S = 30.0

# Both from the end of an index.
_GENERATION = "SELECT max(id), (SELECT max(ended_at) FROM {table}) FROM {table}"


class Places:
    """The attempts that run, and those that ended less than ``TELEMETRY_JOB_GRACE_S`` ago."""

    def generation(self) -> Hashable:
        """Return a value that changes when an attempt begins or ends. One query."""
        with connection.cursor() as cursor:
            cursor.execute(_GENERATION.format(table=Attempt._meta.db_table))
            last, ended_at = cursor.fetchone()
        return last, ended_at, time.monotonic() // _LOOK_AGAIN_S

    def placed(self) -> Iterable[tuple[str, Collection[str]]]:
        """Return the job of each attempt and the names of its nodes. One query."""
        since = timezone.now() - timedelta(seconds=settings.TELEMETRY_JOB_GRACE_S)
        rows = Attempt.objects.filter(Q(state__in=Attempt.OPEN) | Q(ended_at__gt=since))
        return rows.order_by().values_list("phase__job__name", "placement__nodes")

    def ended(self, jobs: Collection[str]) -> Iterable[tuple[str, Collection[str], float]]:
        """Return attempts of ``jobs`` that are over, with their nodes and their end. One query.

        Of those alone that ended since the oldest readings that are taken.
        """
        since = timezone.now() - timedelta(hours=settings.TELEMETRY_RETENTION_H)
        rows = Attempt.objects.filter(ended_at__gt=since, phase__job__name__in=jobs).order_by()
        found = rows.values_list("phase__job__name", "placement__nodes", "ended_at")
        return [(job, nodes, at.timestamp()) for job, nodes, at in found if at is not None]

    def known(self, jobs: Collection[str]) -> set[str]:
        """Return which of ``jobs`` were ever submitted. One query."""
        return set(Job.objects.filter(name__in=jobs).values_list("name", flat=True))
