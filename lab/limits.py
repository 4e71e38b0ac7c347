"""Limits on the twin's agents: they ask for them, set them as leases, and report on them.

The leases and the reports are those of the agent that runs on real machines; what it does to a
driver is done here to the twin.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headroom.agent.actuation.leases import LeaseBook
from headroom.agent.actuation.reports import Reports
from headroom.client import HeadroomError, Unavailable
from headroom.contracts import Limit, LimitKind, LimitReport, LimitSet, LimitState
from lab.delivery import Gate
from lab.fleet import GPUS_PER_NODE
from lab.twin import Twin

__all__ = ["LimitPolls", "Limits"]

log = logging.getLogger(__name__)

#: How long after a limit was set the power under it is told, s.
SETTLES_S = 10.0
#: Each agent asks so often, s.
POLL_S = 5.0


class LimitServer(Protocol):
    """The server that limits are asked of, such as :class:`headroom.client.Client`."""

    def limits(self) -> LimitSet | None: ...


@dataclass
class _Held:
    """A limit on one GPU since ``at`` (monotonic s), as last reported."""

    limit: Limit
    at: float
    watts_before: float
    watts_after: float | None = None


@dataclass
class _Node:
    """The leases of one node, and the limits that they hold on its GPUs, by limit and GPU."""

    number: int
    book: LeaseBook
    held: dict[tuple[str, int], _Held] = field(default_factory=dict)


class Limits:
    """The limits of one agent. One thread may hear answers while another steps the twin."""

    def __init__(self, nodes: Mapping[str, int], *, clock: Callable[[], float] = time.time) -> None:
        self._numbers = nodes
        self._reports = Reports(clock)
        self._nodes: dict[str, _Node] = {}
        self._lock = threading.Lock()

    def hear(self, answer: LimitSet | None, *, sent_at: float, got_at: float) -> None:
        """Take an answer to a request, timed by the monotonic clock. None: no limits any more."""
        with self._lock:
            for name in {limit.node for limit in answer.limits} if answer is not None else ():
                if name in self._numbers and name not in self._nodes:
                    self._nodes[name] = _Node(self._numbers[name], LeaseBook(name))
            for node in self._nodes.values():
                if answer is None:
                    node.book.clear(got_at)
                else:
                    node.book.take(answer, sent_at=sent_at, got_at=got_at)

    def step(self, twin: Twin, now: float) -> None:
        """Bring the caps of the agent's GPUs to the limits in force at ``now`` (monotonic s)."""
        with self._lock:
            for name, node in list(self._nodes.items()):
                self._settle(twin, node, node.book.in_force(now), now)
                if not node.held:
                    del self._nodes[name]

    def take_reports(self) -> list[LimitReport]:
        """Return the reports to send, each once."""
        return self._reports.take()

    def _settle(self, twin: Twin, node: _Node, limits: Sequence[Limit], now: float) -> None:
        first = node.number * GPUS_PER_NODE
        gpus = np.arange(first, first + GPUS_PER_NODE)
        before_w = twin.power_w[gpus]
        twin.set_caps(
            gpus,
            cap_w=_lowest(limits, LimitKind.POWER_CAP_W),
            cap_mhz=_lowest(limits, LimitKind.CLOCK_CAP_MHZ),
        )
        wanted = {(each.id, gpu): each for each in limits for gpu in _gpus_of(each)}
        for key in node.held.keys() - wanted.keys():
            held = node.held.pop(key)
            self._tell(twin, node, key[1], held, node.book.why_ended(key[0]))
        for key, limit in wanted.items():
            held = node.held.setdefault(key, _Held(limit, now, float(before_w[key[1]])))
            held.limit = limit
            if held.watts_after is None and now - held.at >= SETTLES_S:
                held.watts_after = float(twin.power_w[first + key[1]])
            self._tell(twin, node, key[1], held, LimitState.APPLIED)

    def _tell(self, twin: Twin, node: _Node, gpu: int, held: _Held, state: LimitState) -> None:
        limit, row = held.limit, node.number * GPUS_PER_NODE + gpu
        is_power = limit.kind == LimitKind.POWER_CAP_W
        original = twin.own_limit_w[row] if is_power else twin.parts.sm_max_mhz[row]
        in_force = twin.cap_w[row] if is_power else twin.cap_mhz[row]
        self._reports.add(
            LimitReport(
                limit=limit.id,
                node=limit.node,
                gpu=gpu,
                kind=limit.kind,
                state=state,
                at=0.0,
                asked=limit.value,
                original=float(original),
                applied=float(min(original, in_force)),
                watts_before=round(held.watts_before, 1),
                watts_after=None if held.watts_after is None else round(held.watts_after, 1),
            )
        )


def _gpus_of(limit: Limit) -> Iterable[int]:
    if limit.kind not in tuple(LimitKind):
        return ()
    return range(GPUS_PER_NODE) if limit.gpu is None else (limit.gpu,)


def _lowest(limits: Sequence[Limit], kind: LimitKind) -> NDArray[np.float64]:
    """Return the lowest limit of a kind for each GPU of a node, +inf where there is none."""
    lowest = np.full(GPUS_PER_NODE, np.inf)
    for limit in limits:
        if limit.kind == kind:
            here = list(_gpus_of(limit))
            lowest[here] = np.minimum(lowest[here], limit.value)
    return lowest


class LimitPolls:
    """A thread in which the agents ask in turn, each once in :data:`POLL_S`, until ``stop``.

    A server that is away changes nothing: each lease ends by itself.
    """

    def __init__(
        self,
        agents: Sequence[tuple[LimitServer, Limits]],
        *,
        stop: threading.Event,
        every_s: float = POLL_S,
        is_silent: Callable[[int], bool] | None = None,
    ) -> None:
        self._agents = agents
        self._stop = stop
        self._pause_s = every_s / max(len(agents), 1)
        self._is_silent = is_silent
        self._gate = Gate()
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="limits", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)

    def ask(self, place: int) -> None:
        """Have one agent ask for its limits."""
        server, limits = self._agents[place]
        sent_at = time.monotonic()
        try:
            answer = server.limits()
        except HeadroomError as exc:
            self._complain(exc)
            if isinstance(exc, Unavailable):
                self._gate.failed(exc.retry_after_s)
            return
        self._gate.succeeded()
        self._complaint = ""
        limits.hear(answer, sent_at=sent_at, got_at=time.monotonic())

    def _run(self) -> None:
        turn, next_at = 0, time.monotonic()
        while self._agents and not self._stop.is_set():
            place = turn % len(self._agents)
            if self._is_silent is None or not self._is_silent(place):
                self.ask(place)
            turn += 1
            # A server that was slow is not asked faster afterwards.
            next_at = max(next_at + self._pause_s, time.monotonic())
            self._stop.wait(max(next_at - time.monotonic(), self._gate.wait_s()))

    def _complain(self, exc: HeadroomError) -> None:
        if str(exc) != self._complaint:
            log.warning("limits unknown, those in force run out", extra={"why": exc})
        self._complaint = str(exc)
