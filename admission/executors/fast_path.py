"""The fast path of machines that ask for work while there is none.

A fleet of 12,500 machines asks some thousand times a second, and nearly always there is nothing for
them. Each process keeps which nodes have open assignments, and looks once a second.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from urllib.parse import parse_qs

from django.conf import settings
from django.db.models import Q

from admission.executors import output, runners
from admission.executors.models import NodeAssignment
from admission.executors.sync import nodes_of
from fleet.cache import Cache
from telemetry.ingest.fast_path import Environ, FastPath
from telemetry.ingest.requests import agent_of

__all__ = ["WorkFastPath", "invalidate"]

#: What was put into the queue is seen by every process within this time, s.
MAX_AGE_S = 1.0


#: The nodes that have open assignments, or whose output somebody reads.
_busy: Cache[frozenset[int]] = Cache(MAX_AGE_S)
invalidate = _busy.invalidate


def _read_busy() -> frozenset[int]:
    is_read = output.asked(datetime.now(UTC))
    rows = NodeAssignment.objects.filter(~Q(state=NodeAssignment.State.ENDED) | is_read)
    return frozenset(rows.values_list("node_id", flat=True).distinct())


class WorkFastPath(FastPath):
    """Answers machines that there is no work for them."""

    path = "/api/v1/work"

    def answer(self, environ: Environ) -> bytes | None:
        scope = agent_of(environ.get("HTTP_AUTHORIZATION", ""))
        names = parse_qs(environ.get("QUERY_STRING", "")).get("node", [])
        if not _busy.get(_read_busy).isdisjoint(node.node_id for _, node in nodes_of(scope, names)):
            return None
        lease_s = runners.lease_s()
        return b'{"now":%.6f,"orders":[],"poll_s":%g,"report_s":%g,"fence_s":%g}' % (
            time.time(),
            settings.WORK_POLL_S,
            runners.report_s(lease_s),
            runners.fence_s(lease_s),
        )
