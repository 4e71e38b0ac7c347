"""The texts of admission policies, compiled: each once."""

from __future__ import annotations

from functools import lru_cache

import structlog

from admission.core import policy
from admission.core.policy import AdmissionPolicy
from headroom.documents import DocumentError, told

__all__ = ["compiled"]

log = structlog.get_logger(__name__)


@lru_cache(maxsize=32)
def compiled(text: str) -> AdmissionPolicy | None:
    """Return the policy of a text; None where this release no longer takes it."""
    try:
        return policy.for_server(text)
    except DocumentError as error:
        # It was right once. Jobs are admitted all the same, by what comes with Headroom.
        log.error("admission_policy_cannot_be_used", problems=list(map(told, error.problems)))
        return None
