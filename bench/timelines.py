"""How long a timeline of a whole rack takes over HTTP: a day by minutes, of every field.

The readings are those of ``bench.storage``. A rack here has 64 GPUs, and the fleet eight of them,
of which one is asked at random each time.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import random
import time

import urllib3

from bench import django_in, report, storage
from bench.stack import running

RACK_GPUS, RACKS = 64, 8
REQUESTS = 40
#: Requests that are not counted: connections are opened and modules loaded.
FIRST_REQUESTS = 3


def rack_day_ms() -> list[float]:
    """Return the time of each answer, ms, on a stack of its own: Django is set up here."""
    with running("--web-workers", "1") as stack:
        django_in.set_up(stack)
        with storage.only_keeper():
            gpus = storage.load_fleet(RACK_GPUS * RACKS, nodes_per_rack=RACK_GPUS // 8)
            storage.store_day(gpus, time.time() - storage.HOURS * 3600)
            return _ask(stack.url)


def _ask(url: str) -> list[float]:
    from fleet.models import Rack
    from telemetry.series import FIELDS, Kind

    racks = [int(pk) for pk in Rack.objects.values_list("pk", flat=True)]
    headers = {"Authorization": f"Bearer {django_in.operator_token()}"}
    pool, rng = urllib3.PoolManager(retries=False), random.Random(7)
    query = f"kind=rack&range=1d&fields={','.join(FIELDS[Kind.RACK])}"
    times = [
        storage.answer_ms(pool, f"{url}/api/v1/series?{query}&id={rng.choice(racks)}", headers)
        for _ in range(FIRST_REQUESTS + REQUESTS)
    ]
    return times[FIRST_REQUESTS:]


def run() -> None:
    """Measure the 95th percentile alone."""
    report.show("timelines", {KEY: report.percentile(rack_day_ms(), 0.95)}, {KEY: NOTE})


KEY = "series_rack_24h_p95_ms"
NOTE = f"a rack of {RACK_GPUS} GPUs over 24 h, all fields, by the API; bar: 300"
