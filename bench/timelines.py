"""How long timelines take over HTTP: a rack's day of every field, and a job's week of 512 GPUs.

The readings are those of ``bench.storage``: a day each ten seconds, and hours before it. A rack
here has 64 GPUs, and the fleet eight of them, of which one is asked at random each time. The job
has had all of them for a week, and its whole figure is asked for as its page asks.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import random
import time
from datetime import UTC, datetime, timedelta

import urllib3

from bench import django_in, report, storage
from bench.stack import apart, running

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


def job_week_ms() -> list[float]:
    """Return the time of each answer, ms, on a stack of its own: Django is set up here."""
    with running("--web-workers", "1") as stack:
        django_in.set_up(stack)
        with storage.only_keeper():
            gpus = storage.load_fleet(RACK_GPUS * RACKS, nodes_per_rack=RACK_GPUS // 8)
            start_s = time.time() - storage.HOURS * 3600
            storage.store_day(gpus, start_s)
            storage.store_hours(gpus, start_s)
            return _ask_job(stack.url)


def _ask_job(url: str) -> list[float]:
    """Ask for a week of a job on all GPUs."""
    from fleet import snapshot
    from tests.builders.jobs import make_attempt, make_job

    fleet = snapshot.current()
    held: dict[str, list[int]] = {}
    for node, index in zip(fleet.gpus.node, fleet.gpus.index, strict=True):
        held.setdefault(str(fleet.nodes.names[node]), []).append(int(index))
    began = datetime.now(UTC) - timedelta(days=7)
    phase = make_job("week", gpus=len(fleet.gpus), state="running").phases.get()
    make_attempt(phase, held, dispatched_at=began, started_at=began)
    headers = {"Authorization": f"Bearer {django_in.operator_token()}"}
    pool = urllib3.PoolManager(retries=False)
    asked = f"{url}/api/v1/jobs/week/timeline?points=600"
    times = [storage.answer_ms(pool, asked, headers) for _ in range(FIRST_REQUESTS + REQUESTS)]
    return times[FIRST_REQUESTS:]


def run() -> None:
    """Measure the 95th percentiles alone, each on a stack of its own."""
    figures = {KEY: report.percentile(rack_day_ms(), 0.95)}
    figures[WEEK_KEY] = report.percentile(apart(job_week_ms), 0.95)
    report.show("timelines", figures, {KEY: NOTE, WEEK_KEY: WEEK_NOTE})


KEY = "series_rack_24h_p95_ms"
NOTE = f"a rack of {RACK_GPUS} GPUs over 24 h, all fields, by the API; bar: 300"
WEEK_KEY = "job_week_512_p95_ms"
WEEK_NOTE = f"a job's figure on {RACK_GPUS * RACKS} GPUs over a week, by the API; bar: 1,000"
