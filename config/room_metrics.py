"""The condition of the server for Prometheus: looked at on request, by any process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import redis
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config import condition, health
from config.condition import Condition

__all__ = ["generate"]


def generate() -> bytes:
    """Return the text of the metrics. Without Redis nothing is known but that."""
    try:
        found = health.look()
    except redis.RedisError:
        found = Condition()
    registry = CollectorRegistry()
    registry.register(_Room(found))
    return generate_latest(registry)


class _Room(Collector):
    """Collects metrics of the condition of the server at one moment."""

    def __init__(self, found: Condition) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        yield _gauge(
            "headroom_watchdog",
            "1 while every loop without which nobody is in control is done in time.",
            float(condition.in_control(self._found)),
        )
        yield from self._loops()
        yield from self._waiting()
        yield from self._disks()
        yield from self._clock()
        yield from self._processes()

    def _loops(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "headroom_loop_age_seconds", "Since when a loop was last done.", labels=["loop"]
        )
        well = GaugeMetricFamily(
            "headroom_loop_ok", "1 while a loop is done in time.", labels=["loop"]
        )
        for each in self._found.loops:
            well.add_metric([each.name], float(each.ok))
            if each.age_s is not None:
                age.add_metric([each.name], each.age_s)
        return iter((age, well))

    def _waiting(self) -> Iterator[Metric]:
        if self._found.backlog is None:
            return
        yield _gauge(
            "headroom_telemetry_backlog_batches",
            "Batches that wait to be stored.",
            self._found.backlog,
        )
        yield _gauge(
            "headroom_telemetry_writer_lag_seconds",
            "For how long the first of them has waited.",
            self._found.lag_s or 0.0,
        )
        yield _gauge(
            "headroom_telemetry_set_aside_batches",
            "Batches that cannot be stored and were set aside.",
            self._found.set_aside or 0,
        )

    def _disks(self) -> Iterator[Metric]:
        free = GaugeMetricFamily(
            "headroom_disk_free_bytes", "What is left where we store.", labels=["folder"]
        )
        for each in self._found.folders:
            free.add_metric([each.name], each.free_bytes)
        yield free

    def _clock(self) -> Iterator[Metric]:
        if self._found.clock_offset_s is not None:
            yield _gauge(
                "headroom_clock_offset_seconds",
                "The database's clock minus this machine's.",
                self._found.clock_offset_s,
            )
        step = self._found.step
        steps = CounterMetricFamily("headroom_clock_steps", "Times that the clock was set.")
        steps.add_metric([], step.count if step else 0)
        yield steps
        if step is not None:
            yield _gauge("headroom_clock_step_seconds", "By how much it was set last.", step.by_s)

    def _processes(self) -> Iterator[Metric]:
        restarts = CounterMetricFamily(
            "headroom_process_restarts",
            "Times that a service was started again.",
            labels=["service"],
        )
        hung = CounterMetricFamily(
            "headroom_process_hung", "Processes that hung and were ended.", labels=["service"]
        )
        for each in self._found.services or ():
            restarts.add_metric([each.name], each.restarts)
            hung.add_metric([each.name], each.hung)
        return iter((restarts, hung))


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)
