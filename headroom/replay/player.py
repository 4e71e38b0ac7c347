"""Plays a recording: sends readings as they are due, each second, until all are durable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headroom import __version__
from headroom.agent.delivery import Delivery, DeliverySettings, Server
from headroom.agent.spool import Spool
from headroom.contracts import AgentStatus, JobColumns, MeterColumns, TelemetryBatch
from headroom.errors import HeadroomError, Refused, Unauthorized
from headroom.replay.fleet import ReplayFleet
from headroom.replay.recording import Recording, Schedule, Span

__all__ = ["Frame", "Player", "Progress", "ReplayError"]

#: The most readings of one batch: far under what the contract allows.
_BATCH_ROWS = 40_000
_TICK_S = 1.0
#: How often the durable mark is asked for at the end, s.
_POLL_S = 0.25
#: After how long without progress the wait at the end is given up, s.
_GIVE_UP_S = 120.0


class ReplayError(HeadroomError):
    """The server does not take the recording."""


@dataclass(frozen=True)
class Frame:
    """The present place of the replay."""

    recorded_s: float
    #: Readings sent, and of those durable on the server; over all passes of a loop.
    sent: int
    durable: int
    #: The sum of the latest reading of every node, W.
    power_w: float
    #: Why nothing gets through now, or "".
    obstacle: str


class Progress(Protocol):
    """The display of a replay's progress."""

    def show(self, frame: Frame) -> None: ...


class Player:
    """Plays one recording into the fleet made for it."""

    def __init__(
        self,
        recording: Recording,
        fleet: ReplayFleet,
        server: Server,
        *,
        speed: float,
        progress: Progress,
        clock: Callable[[], float] = time.time,
        delivery_settings: DeliverySettings | None = None,
    ) -> None:
        self._recording = recording
        self._fleet = fleet
        self._speed = speed
        self._progress = progress
        self._clock = clock
        # In memory: a replay that dies is simply played again.
        self._spool = Spool(":memory:", max_bytes=2**40, max_age_s=1e9)
        self._delivery = Delivery(
            server,
            self._spool,
            status=self._status,
            settings=delivery_settings or DeliverySettings(longest_backoff_s=5.0),
            clock=clock,
        )
        self._stop = threading.Event()
        self._schedule = self._begin()
        self._latest_w = [0.0] * len(recording.nodes)
        #: Readings sent with all batches up to a seq, by that seq.
        self._sent_by_seq = [0]

    @property
    def sent(self) -> int:
        """How many readings were put into batches, over all passes."""
        return self._sent_by_seq[-1]

    @property
    def durable(self) -> int:
        """How many of them the server has for good."""
        # A batch that had to be cut in two has a seq more.
        return self._sent_by_seq[min(self._delivery.durable_seq, len(self._sent_by_seq) - 1)]

    @property
    def position(self) -> int:
        """How many readings of the recording the present pass has sent."""
        return self._schedule.position

    @property
    def steps(self) -> int:
        """How many reports of the job the present pass has sent."""
        return self._schedule.job_position

    @property
    def recorded_s(self) -> float:
        """How far into the recording the present pass has sent, s."""
        if self.position:
            return self._recording.t_s[self.position - 1] - self._recording.start_s
        steps = self._recording.job_points[: self._schedule.job_position]
        return steps[-1].t_s - self._recording.start_s if steps else 0.0

    @property
    def stopped(self) -> bool:
        """Whether the replay was told to stop."""
        return self._stop.is_set()

    def stop(self) -> None:
        """End the replay early. Readings already sent are still waited for."""
        self._stop.set()

    def play(self, *, loop: bool = False) -> None:
        """Send the recording, again and again with ``loop``, until its end or :meth:`stop`.

        Raises :class:`ReplayError` when the server refuses it.
        """
        self._schedule = self._begin()
        while not self._stop.is_set():
            started = time.monotonic()
            self.tick()
            if self._schedule.done:
                if not loop:
                    return
                self._schedule = self._begin()
            self._stop.wait(max(0.0, started + _TICK_S - time.monotonic()))

    def tick(self) -> None:
        """Send all that is due now, and show progress."""
        now = self._clock()
        while span := self._schedule.due(now, limit=_BATCH_ROWS):
            self._put(span)
        self._deliver()
        self._show()

    def settle(self) -> None:
        """Wait until all that was sent is durable. Raises :class:`ReplayError` if it stays away."""
        durable, moved_at = self._delivery.durable_seq, time.monotonic()
        while len(self._spool):
            self._deliver()
            self._delivery.ask_position()
            self._show()
            if self._delivery.durable_seq > durable:
                durable, moved_at = self._delivery.durable_seq, time.monotonic()
            elif time.monotonic() - moved_at > _GIVE_UP_S:
                cause = self._delivery.last_error or "is a Celery worker running?"
                raise ReplayError(
                    f"the server has {self.durable} of {self.sent} readings for good, and no more "
                    f"for {_GIVE_UP_S:.0f} s: {cause}"
                )
            if len(self._spool):
                time.sleep(_POLL_S)

    def _begin(self) -> Schedule:
        return Schedule(self._recording, speed=self._speed, begin_s=self._clock())

    def _put(self, span: Span) -> None:
        self._spool.put(
            TelemetryBatch(
                agent=self._fleet.site,
                boot_id="unspooled",
                seq=1,
                oldest_seq=1,
                sent_at=self._clock(),
                meters=self._meters(span),
                jobs=self._jobs(span),
            )
        )
        self._sent_by_seq.append(self.sent + span.stop - span.start)

    def _meters(self, span: Span) -> MeterColumns | None:
        part = slice(span.start, span.stop)
        nodes = self._recording.node[part]
        if not nodes:
            return None
        power_w = self._recording.power_w[part].tolist()
        for node, watts in zip(nodes, power_w, strict=True):
            self._latest_w[node] = watts
        names = self._fleet.meter_names
        return MeterColumns(
            ts=[self._schedule.wall_s(t) for t in self._recording.t_s[part]],
            meter=[names[node] for node in nodes],
            power_w=list(power_w),
        )

    def _jobs(self, span: Span) -> JobColumns | None:
        points = self._recording.job_points[span.job_start : span.job_stop]
        if not points:
            return None
        return JobColumns(
            ts=[self._schedule.wall_s(point.t_s) for point in points],
            job=[self._recording.job] * len(points),
            step=[point.step for point in points],
            loss=[point.loss for point in points],
            step_time_s=[point.step_time_s for point in points],
            samples_per_s=[point.samples_per_s for point in points],
        )

    def _deliver(self) -> None:
        while self._delivery.round():
            pass
        obstacle = self._delivery.obstacle
        is_refused = isinstance(obstacle, Refused) and not isinstance(obstacle, Unauthorized)
        if self._spool.dropped or self._delivery.refused_rows or is_refused:
            raise ReplayError(f"the server refuses the recording: {self._delivery.last_error}")
        if isinstance(obstacle, Unauthorized):
            raise ReplayError(
                f"the server no longer takes this replay's token: {obstacle}; "
                "was the same recording started a second time?"
            )

    def _show(self) -> None:
        self._progress.show(
            Frame(
                recorded_s=self._schedule.recorded_s(self._clock()),
                sent=self.sent,
                durable=self.durable,
                power_w=sum(self._latest_w),
                obstacle=str(self._delivery.obstacle or ""),
            )
        )

    def _status(self) -> AgentStatus:
        return AgentStatus(
            version=__version__,
            spooled_batches=len(self._spool),
            errors=self._delivery.errors,
            last_error=self._delivery.last_error[:500],
        )
