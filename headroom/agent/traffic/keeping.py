"""Brings the queues of interfaces to the shares that leases ask for, and back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol

from headroom.agent.actuation.leases import LinkLeases
from headroom.agent.actuation.reports import Reports
from headroom.agent.traffic.queues import Matches, Queue, minor_of, queues
from headroom.agent.traffic.tc import Standing, TcError
from headroom.contracts import LINK_SHARE, LimitReport, LimitState, LinkLimit
from headroom.traffic import TrafficClass

__all__ = ["TrafficKeeper"]

logger = logging.getLogger(__name__)

_STEP_S = 1.0
#: How often it is looked whether somebody has changed our queues, s.
_LOOK_S = 5.0
#: How long what failed is left alone, s.
_RETRY_S = 10.0
#: For so long new queues send less than the link can carry: half a second of packets that wait in a
#: switch, where control has no way past them, is gone by then.
_DRAINS_S = 2.5
#: The guard acts so long after the agent should have, s.
_GRACE_S = 2.0
#: How far rates may be off, which ``tc`` writes rounded.
_ROUNDED = 0.01


class Kernel(Protocol):
    """What the keeper needs of :class:`headroom.agent.traffic.tc.Tc`."""

    def is_ours(self, device: str) -> bool: ...
    def set(self, device: str, tree: tuple[Queue, ...], matches: Matches) -> None: ...
    def remove(self, device: str) -> None: ...
    def standing(self, device: str) -> Mapping[int, Standing]: ...


class Watcher(Protocol):
    """What the keeper needs of :class:`headroom.agent.traffic.guard.Guard`."""

    def note(self, device: str, until_s: float) -> None: ...
    def dismiss(self) -> None: ...


@dataclass
class _Held:
    """What stands on one interface: the queues, and the limits that they serve, by their ids."""

    tree: tuple[Queue, ...] = ()
    limits: dict[str, LinkLimit] = field(default_factory=dict)
    looked_at: float = 0.0
    drained_at: float = 0.0
    #: after a failure it is left alone until then, unless others are wanted
    resting_until: float = 0.0
    failed_with: frozenset[str] = frozenset()


class TrafficKeeper:
    """Sets, checks and undoes shares in a thread of its own for as long as the context lasts.

    Of several limits on one link that with the least share for jobs counts. Before anything is set
    the guard knows until when it may stand.
    """

    def __init__(
        self,
        node: str,
        links: Mapping[str, str],
        matches: Matches,
        leases: LinkLeases,
        reports: Reports,
        tc: Kernel,
        guard: Watcher,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        """``links`` has the name of the link at each interface."""
        self.leases = leases
        self.links = tuple(links.values())
        self._node, self._matches, self._tc, self._guard = node, matches, tc, guard
        self._reports, self._monotonic = reports, monotonic
        self._link_of = dict(links)
        self._held = {device: _Held() for device in links}
        self._complaint = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)

    def __enter__(self) -> TrafficKeeper:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Undo all. May be called again."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        self.leases.close(self._monotonic())
        self.step()
        self._guard.dismiss()

    def step(self) -> None:
        """Bring all interfaces to the leases in force."""
        now = self._monotonic()
        limits = self.leases.in_force(now)
        for device, link in self._link_of.items():
            self._settle(device, [each for each in limits if each.link == link], now)
        ids = {limit.id for limit in limits}
        self._reports.forget(lambda last: last.kind == LINK_SHARE and last.limit not in ids)

    def sent_bytes(self, device: str) -> Mapping[TrafficClass, int]:
        """Return how much was sent of each class since the queues were made; empty: there are none.

        A failure is none: nobody knows then.
        """
        if not self._held[device].tree:
            return {}
        try:
            standing = self._tc.standing(device)
        except TcError:
            return {}
        found = {each: standing.get(minor_of(each)) for each in TrafficClass}
        return {each: queue.sent_bytes for each, queue in found.items() if queue is not None}

    # --- One interface ----------------------------------------------------------------------------

    def _settle(self, device: str, wanted: Sequence[LinkLimit], now: float) -> None:
        held, ids = self._held[device], frozenset(each.id for each in wanted)
        if now < held.resting_until and ids == held.failed_with:
            return
        try:
            if wanted:
                self._hold(device, held, wanted, now)
            elif held.tree or held.limits:
                self._release(device, held)
            held.resting_until = 0.0
        except (TcError, OSError) as exc:
            held.resting_until, held.failed_with = now + _RETRY_S, ids
            self._fail(device, held, wanted, exc)

    def _hold(self, device: str, held: _Held, wanted: Sequence[LinkLimit], now: float) -> None:
        strictest = min(wanted, key=lambda each: each.share)
        is_new = not held.tree or self._is_changed(device, held, now)
        if is_new:
            held.drained_at = now + _DRAINS_S
        tree = queues(strictest, is_draining=now < held.drained_at)
        until_s = max(self.leases.ends_at(each.id) for each in wanted)
        self._guard.note(device, until_s + _GRACE_S)
        if is_new or tree != held.tree:
            # Written down first: what half succeeds is undone, too.
            held.tree = tree
            self._tc.set(device, tree, self._matches)
            logger.info("link shared", extra={"interface": device, "share": strictest.share})
        for each in wanted:
            self._report(each, LimitState.APPLIED, applied=strictest.share)
        self._tell_of_ended(held, {each.id for each in wanted})
        held.limits = {each.id: each for each in wanted}

    def _is_changed(self, device: str, held: _Held, now: float) -> bool:
        """Say whether somebody has changed our queues, as far as it is time to look."""
        if now - held.looked_at < _LOOK_S:
            return False
        held.looked_at = now
        standing = self._tc.standing(device)
        return any(
            (found := standing.get(queue.minor)) is None
            or abs(found.rate - queue.rate) > _ROUNDED * queue.rate
            or abs(found.ceil - queue.ceil) > _ROUNDED * queue.ceil
            for queue in held.tree
        )

    def _release(self, device: str, held: _Held) -> None:
        # Somebody may have put other queues in the place of ours: these stay.
        if self._tc.is_ours(device):
            self._tc.remove(device)
        self._guard.note(device, 0.0)
        logger.info("link shared no more", extra={"interface": device})
        self._tell_of_ended(held, set())
        held.tree, held.limits = (), {}

    # --- What is told -----------------------------------------------------------------------------

    def _tell_of_ended(self, held: _Held, ids: set[str]) -> None:
        for each in held.limits.values():
            if each.id not in ids:
                self._report(each, self.leases.why_ended(each.id))

    def _fail(
        self, device: str, held: _Held, wanted: Sequence[LinkLimit], exc: TcError | OSError
    ) -> None:
        if str(exc) != self._complaint:
            extra = {"interface": device, "cause": exc}
            logger.error("link not shared, or not undone", extra=extra)
        self._complaint = str(exc)
        is_refusal = isinstance(exc, TcError) and exc.is_refusal
        if is_refusal:
            held.tree = ()
        state = LimitState.REFUSED if is_refusal else LimitState.FAILED
        for each in wanted or held.limits.values():
            self._report(each, state, error=str(exc)[:500].replace("\x00", ""))

    def _report(
        self, limit: LinkLimit, state: LimitState, *, applied: float | None = None, error: str = ""
    ) -> None:
        self._reports.add(
            LimitReport(
                limit=limit.id,
                node=self._node,
                kind=LINK_SHARE,
                state=state,
                at=0.0,
                asked=limit.share,
                applied=applied,
                error=error,
            )
        )

    def _run(self) -> None:
        while not self._over.is_set():
            self.step()
            self._over.wait(_STEP_S)
