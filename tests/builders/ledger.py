"""Stored readings of a small fleet over one hour, and the ledger that is closed by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from admission.energy import ledger
from admission.energy.models import SiteHour
from admission.jobs.models import Attempt
from fleet import snapshot
from fleet.models import Gpu, Meter, Node, PowerDomain, Rack, Site
from telemetry import housekeeping, samples
from tests.builders.jobs import make_attempt, make_job
from tests.builders.readings import make_node, write_samples

#: Seconds between readings.
EVERY_S = 30.0


@dataclass
class Ledger:
    """A fleet of site ``oslo``: nodes n1, n2 in rack A01 and n3, n4 in A02, of two GPUs each."""

    hour: datetime

    @property
    def start(self) -> float:
        return self.hour.timestamp()

    def read(
        self, node: str, watts: Mapping[int, float], *, from_s: float = 0.0, to_s: float = 3600.0
    ) -> None:
        """Have GPUs of a node, by index, draw so much, W, from one second of the hour on."""
        for index, power_w in watts.items():
            gpu = Gpu.objects.get(node__name=node, index=index)
            busy = 95.0 if power_w > 200.0 else 0.0
            self._write(samples.GPU, gpu.pk, power_w, from_s, to_s, util=busy)

    def host(self, node: str, power_w: float) -> None:
        """Have a host draw ``power_w`` all hour."""
        self._write(samples.HOST, Node.objects.get(name=node).pk, power_w, 0.0, 3600.0)

    def meter(self, name: str, power_w: float, **target: object) -> Meter:
        """Have a new meter on something show ``power_w`` all hour."""
        made = Meter.objects.create(name=name, **target)
        self._write(samples.METER, made.pk, power_w, 0.0, 3600.0)
        return made

    def _write(
        self, table: samples.Table, source: int, power_w: float, from_s: float, to_s: float,
        **more: float,
    ) -> None:  # fmt: skip
        steps = int((to_s - from_s) / EVERY_S)
        # What lies between two hours is of the later one: the first reading is before the hour.
        ts = [self.start + from_s + EVERY_S * step for step in range(steps + 1)]
        write_samples(table, source, [*ts[:-1], ts[-1] - 1e-3], power_w=power_w, **more)

    def job(
        self, name: str, gpus: Mapping[str, list[int]], *, project: str = "vision",
        from_s: float = -60.0, to_s: float | None = None,
    ) -> Attempt:  # fmt: skip
        """Make a job that holds GPUs from one second of the hour to another, or on."""
        phase = make_job(name, project=project, gpus=2, state="running").phases.get()
        end = None if to_s is None else self.hour + timedelta(seconds=to_s)
        state = Attempt.State.RUNNING if end is None else Attempt.State.ENDED
        begun = self.hour + timedelta(seconds=from_s)
        return make_attempt(
            phase, gpus, dispatched_at=begun, started_at=begun, ended_at=end, state=state
        )

    def close(self, *, after: timedelta = timedelta(hours=1, minutes=10)) -> SiteHour:
        """Roll up, close what is due ``after`` the hour's start, and return the site's row."""
        now = (self.hour + after).timestamp()
        housekeeping.roll_up(now, budget_s=60.0)
        snapshot.invalidate()
        assert ledger.close_due(now)
        return SiteHour.objects.get(hour=self.hour, site="oslo")


def begin_ledger(hour: datetime) -> Ledger:
    """Make the fleet, without readings."""
    for number in range(4):
        make_node(f"n{number + 1}", rack=f"A{number // 2 + 1:02}")
    site = Site.objects.get(name="oslo")
    utility = PowerDomain.objects.create(site=site, name="utility", kind="utility", capacity_w=1e6)
    pdu = PowerDomain.objects.create(
        site=site, name="pdu", kind="pdu", parent=utility, capacity_w=1e6
    )
    Rack.objects.update(feed_a=pdu)
    return Ledger(hour.astimezone(UTC))
