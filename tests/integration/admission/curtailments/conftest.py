"""A site with a meter on its utility, and jobs that run there."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from django.db import connection

from admission.jobs.models import Attempt
from fleet import snapshot
from fleet.models import Meter, PowerDomain
from telemetry import samples
from telemetry.tiers import raw_width
from tests.builders.fleet import SmallFleet
from tests.integration.admission.directives.conftest import clean_stores, fleet
from tests.integration.admission.directives.scenes import RACK, WORK_W, Clock, running

__all__ = ["Metering", "clean_stores", "fleet"]


class Metering:
    """The meter of a site, which reads what it is told."""

    def __init__(self) -> None:
        utility = PowerDomain.objects.get(name="utility")
        self.meter = Meter.objects.create(name="grid", kind="power", power_domain=utility)
        snapshot.invalidate()

    def read(self, start: float, end: float, watts: float, every_s: float = 5.0) -> None:
        """Store readings of so many W between two moments (Unix s)."""
        at, rows = start, []
        while at < end:
            rows.append((datetime.fromtimestamp(at, UTC), self.meter.pk, watts))
            at += every_s
        with connection.cursor() as cursor:
            ts = np.array([row[0].timestamp() for row in rows])
            wanted = samples.partitions_for(samples.METER, ts, raw_width())
            samples.create_partitions(cursor.cursor, wanted)
            cursor.executemany(
                "INSERT INTO meter_sample (ts, meter_id, power_w) VALUES (%s, %s, %s)", rows
            )


@pytest.fixture
def metering(fleet: SmallFleet) -> Metering:
    return Metering()


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    """All that stands in the first rack is at work, and the frame is of now."""
    made = Clock(fleet, seconds_ago=20.0)
    made.power_w |= dict.fromkeys(fleet.nodes_of(RACK), WORK_W)
    return made


@pytest.fixture
def job(fleet: SmallFleet, clock: Clock) -> Attempt:
    """A job on the first rack that may shrink to a half, pause, and be preempted."""
    found = running(fleet, "llama", fleet.nodes_of(RACK), now=clock.now)
    clock.step()
    return found
