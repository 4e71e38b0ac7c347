"""An API server of Kubernetes for tests: objects by published schemas, over HTTP.

It keeps what clients rely on: resource versions and conflicts, watches that resume or are told
that they come too late, ownership by server-side apply, the status and eviction subresources,
finalizers, and validation. It has no controllers: what a cluster does by itself,
:mod:`tests.kubernetes.kueue` plays.
"""

from __future__ import annotations

from tests.kubernetes.server.access import Call
from tests.kubernetes.server.errors import ApiError
from tests.kubernetes.server.http import ApiServer
from tests.kubernetes.server.objects import Store, Write

__all__ = ["ApiError", "ApiServer", "Call", "Store", "Write"]
