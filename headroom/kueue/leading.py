"""Which of several bridges acts: the one that holds a Lease of Kubernetes, as long as it renews it.

Others may take it once it was not renewed for its duration by their own clock: what the clock of
the holder says does not matter. A holder that could not renew it in time stops before that.
"""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headroom.kueue.api import Api, ApiError, Conflict, Document, Missing

__all__ = ["Leader", "Leading"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Leading:
    """Which Lease, and for how long. A holder that cannot renew it gives up after ``give_up_s``."""

    name: str = "headroom-kueue"
    namespace: str = "headroom"
    lasts_s: float = 15.0
    give_up_s: float = 10.0
    renew_s: float = 2.0


class Leader:
    """One candidate. :meth:`look` has to be called more often than the Lease is renewed."""

    def __init__(
        self,
        api: Api,
        settings: Leading,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._settings, self._identity, self._clock = api, settings, identity, clock
        self._renewed_at = self._tried_at = -float("inf")
        self._seen: tuple[Any, ...] = ()
        self._seen_at = -float("inf")

    @property
    def leads(self) -> bool:
        """Whether this candidate may act now."""
        return self._clock() - self._renewed_at < self._settings.give_up_s

    def look(self) -> bool:
        """Renew the Lease, or take it where nobody holds it; return whether this one leads."""
        if self._clock() - self._tried_at >= self._settings.renew_s:
            self._tried_at = self._clock()
            led = self.leads
            try:
                self._try()
            except Conflict:
                # Somebody else was faster.
                self._renewed_at = -float("inf")
            except ApiError as error:
                logger.warning("the Lease of the leader cannot be written: %s", error)
            if led != self.leads:
                logger.info("%s %s", self._identity, "stands by" if led else "leads")
        return self.leads

    def let_go(self) -> None:
        """Let another lead at once."""
        if self.leads:
            self._renewed_at = -float("inf")
            try:
                lease = self._read()
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                    self._api.replace(lease)
            except ApiError as error:
                logger.warning("the Lease was not let go: %s", error)

    def _try(self) -> None:
        # What is written counts from before it was asked for.
        now, lease = self._clock(), self._read()
        if lease is None:
            self._api.create(self._lease({}))
            self._renewed_at = now
            return
        spec = lease.get("spec") or {}
        held_by = spec.get("holderIdentity")
        is_mine = held_by == self._identity
        state = (held_by, spec.get("renewTime"), lease["metadata"]["resourceVersion"])
        if state != self._seen:
            self._seen, self._seen_at = state, now
        lasts_s = float(spec.get("leaseDurationSeconds") or self._settings.lasts_s)
        if held_by and not is_mine and now - self._seen_at < lasts_s:
            self._renewed_at = -float("inf")
            return
        self._api.replace(self._lease(lease))
        self._renewed_at = now

    def _read(self) -> Document | None:
        try:
            return self._api.get("Lease", self._settings.name, self._settings.namespace)
        except Missing:
            return None

    def _lease(self, known: Document) -> Document:
        spec = known.get("spec") or {}
        at = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_mine = spec.get("holderIdentity") == self._identity
        made = {"name": self._settings.name, "namespace": self._settings.namespace}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": known.get("metadata") or made,
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": int(self._settings.lasts_s),
                "acquireTime": spec.get("acquireTime", at) if is_mine else at,
                "renewTime": at,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (not is_mine),
            },
        }
