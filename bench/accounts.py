"""What it costs to keep the accounts of a large fleet, and how long a month by project takes.

An hour of 100,000 GPUs and 5,000 running jobs, 50,000 more in the queue, is put where roll-ups,
jobs and throttle events are kept, and accounted for as the housekeeper does: where its time went,
three times for each hour, and where its energy went, twice. ``machine_share`` is the CPU of all
five, of what two cores have in an hour.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from bench import django_in, report, storage
from bench.stack import running

if TYPE_CHECKING:
    from telemetry.samples import Table

GPUS, QUEUED, PROJECTS = 100_000, 50_000, 50
#: Running jobs by the number of their GPUs.
RUNNING = {8: 4_000, 32: 900, 344: 100}
#: Of GPUs so many are throttled for a while in the hour, each at a time of its own.
THROTTLED = 0.05
#: One job in so many began within the hour: of its GPUs the energy of each minute is looked at.
_ONE_BEGAN_OF = 10
#: What a GPU draws that works, and one that does not; a host; each of two feeds, W.
_BUSY_W, _IDLE_W, _HOST_W, _FEED_W = 600.0, 75.0, 3_000.0, 45e6
_CORES, _HOUR_S, _PASSES, _CLOSINGS = 2, 3600, 3, 2
#: Loops report so often, s.
_EVERY_S = 10.0
_NOTES = {
    "machine_share": "of two cores, three passes and two closings, Postgres included; bar: 0.05",
    "hour_cpu_s": f"one pass over an hour of {GPUS:,} GPUs and {sum(RUNNING.values()):,} jobs",
    "energy_cpu_s": "one closing of its energy, with a new peak of the month and who drew it",
    "energy_is_exact": "jobs, idle, unmanaged and residual come to the IT energy, to the mJ",
    "rows_per_hour": "of the account",
    "gang_hours": "rows of baselines of the hour",
    "is_exact": "GPUs times the hour is what the causes add up to",
    "month_by_project_s": "30 days up to noon; bar: 1",
}


def run() -> None:
    with running("--web-workers", "1") as stack:
        django_in.set_up(stack)
        with storage.only_keeper():
            figures = _figures()
    report.show("accounts", figures, _NOTES)
    print(f"kept in {report.keep('accounts', figures)}")


def _figures() -> dict[str, Any]:
    from admission.baselines.models import GangHour
    from admission.goodput import hours
    from admission.goodput.models import HourAccount

    ids = storage.load_fleet(GPUS)
    hour = (time.time() // _HOUR_S - 1) * _HOUR_S
    _make_jobs(hour)
    _store_readings(ids, hour)
    _store_energy(ids, hour)
    _store_reports(hour)
    _throttle(ids, hour)
    now = datetime.now(UTC)
    pass_s = _second_s(lambda: hours.compute(hour, time.time()))
    _charge_demand(hour)
    closing_s = _second_s(lambda: _close(hour, now))
    us = sum(sum(each) for each in HourAccount.objects.values_list("us", flat=True))
    rows = HourAccount.objects.count()
    return {
        "hour_cpu_s": pass_s,
        "energy_cpu_s": closing_s,
        "machine_share": (_PASSES * pass_s + _CLOSINGS * closing_s) / (_CORES * _HOUR_S),
        "rows_per_hour": rows,
        "gang_hours": GangHour.objects.count(),
        "is_exact": us == GPUS * _HOUR_S * 1_000_000,
        "energy_is_exact": _energy_adds_up(),
        "month_by_project_s": _month_s(hour),
    }


def _charge_demand(hour: float) -> None:
    """Have all sites pay a demand charge, so that who drew the peak is looked for, too."""
    from admission.energy.models import Tariff
    from fleet.models import Site

    begun = {"begins_at": _moment(hour), "made_at": _moment(hour), "made_by": "bench"}
    Tariff.objects.bulk_create(
        Tariff(site=site, demand_per_kw=10.0, **begun) for site in Site.objects.all()
    )


def _close(hour: float, now: datetime) -> None:
    """Close the energy of an hour in which the peak of its month is."""
    from admission.energy import ledger, peaks
    from fleet import snapshot

    ledger.close_hour(snapshot.current(), _moment(hour), now)
    peaks.share_out(snapshot.current())


def _second_s(work: Callable[[], object]) -> float:
    """Return what the second run of some work costs, CPU-s."""
    costs = []
    for _ in range(2):
        before = storage.cpu_s()
        work()
        costs.append(storage.cpu_s() - before)
    return costs[-1]


def _energy_adds_up() -> bool:
    from admission.energy.models import SiteHour

    rows = SiteHour.objects.all()
    return bool(rows) and all(
        each.jobs_mj + each.idle_mj + each.unmanaged_mj + each.residual_mj == each.it_mj
        for each in rows
    )


# --- What is recorded ----------------------------------------------------------------------------


def _make_jobs(hour: float) -> None:
    from admission import bulk
    from admission.jobs.models import Attempt, Job, Phase, Project
    from fleet import snapshot
    from telemetry.models import ReportedJob

    projects = [Project.objects.create(name=f"project-{at}") for at in range(PROJECTS)]
    began = datetime.fromtimestamp(hour, UTC) - timedelta(hours=5)
    sizes = [size for size, count in RUNNING.items() for _ in range(count)]
    jobs = [
        Job(
            name=f"job-{at}", project=projects[at % PROJECTS], job_class="high-density-training",
            priority=0, spec={}, spec_version=1, submitted_by="bench", submitted_at=began,
            state="running" if at < len(sizes) else "queued",
        )
        for at in range(len(sizes) + QUEUED)
    ]  # fmt: skip
    bulk.insert(jobs)
    phases = [
        Phase(
            job=job, name="train", index=0, request={}, gpus=sizes[at] if at < len(sizes) else 64,
            state=job.state, queued_at=began, started_at=began,
            reason="" if at < len(sizes) else "GpuShortage", reason_since=began,
        )
        for at, job in enumerate(jobs)
    ]  # fmt: skip
    bulk.insert(phases)
    names = snapshot.current().gpu_names.tolist()
    first = np.cumsum([0, *sizes])
    rng = np.random.default_rng(4)
    of_this_hour = {at: _moment(hour + rng.uniform(0.0, 3000.0))
                    for at in range(0, len(sizes), _ONE_BEGAN_OF)}  # fmt: skip
    bulk.insert(
        [
            Attempt(
                phase=phase, number=1, key=f"{job.name}/train/1", executor="local", state="running",
                placement=_placement(names[first[at] : first[at + 1]]),
                dispatched_at=of_this_hour.get(at, began), started_at=of_this_hour.get(at, began),
            )
            for at, (job, phase) in enumerate(zip(jobs[: len(sizes)], phases, strict=False))
        ]
    )  # fmt: skip
    ReportedJob.objects.bulk_create(ReportedJob(name=job.name) for job in jobs[: len(sizes)])


def _placement(names: list[str]) -> dict[str, Any]:
    gpus: dict[str, list[int]] = {}
    for name in names:
        node, _, index = name.rpartition("/")
        gpus.setdefault(node, []).append(int(index))
    return {"nodes": [*gpus], "gpus": gpus, "power_cap_w": None}


def _minutes(hour: float) -> Iterator[float]:
    """Yield the minutes of an hour, and those around it that are read with it."""
    yield from (hour + 60.0 * minute for minute in range(-3, 63))


def _store_readings(ids: list[int], hour: float) -> None:
    from telemetry import tiers
    from telemetry.rollups.spec import MINUTE_S, MINUTES
    from telemetry.samples import GPU

    rng = np.random.default_rng(1)
    held = sum(size * count for size, count in RUNNING.items())
    util = np.where(np.arange(len(ids)) < held, 95.0, 0.0)
    for at in _minutes(hour):
        # One GPU in a thousand is not read in a minute.
        some = np.flatnonzero(rng.random(len(ids)) > 0.001)
        gpu, power_w = np.array(ids)[some], np.where(util[some] > 0, _BUSY_W, _IDLE_W)
        told = {
            "gpu_id": gpu,
            "util": util[some],
            "power_w": power_w,
            "power_limit_w": np.full(gpu.size, 700.0),
            "temp_c": np.where(util[some] > 0, 60.0, 30.0),
            "readings": np.full(gpu.size, 6),
            "used_j": 60.0 * power_w,
            "covered_s": np.full(gpu.size, 60.0),
        }
        width = tiers.rollup_width(MINUTE_S, GPUS)
        _store(MINUTES[GPU.name], width, np.full(gpu.size, at), told)


def _store_energy(ids: list[int], hour: float) -> None:
    """Store what energy is closed by: an hour each of GPUs, hosts and the meters of feeds."""
    from fleet import snapshot
    from telemetry import samples, tiers
    from telemetry.rollups.spec import HOUR_S, HOURS

    fleet, held = snapshot.current(), sum(size * count for size, count in RUNNING.items())
    power_w = np.where(np.arange(len(ids)) < held, _BUSY_W, _IDLE_W)
    util = np.where(power_w == _BUSY_W, 95.0, 0.0)
    for table, keys, drawn_w, more in (
        (samples.GPU, np.array(ids), power_w, {"util": util}),
        (samples.HOST, fleet.nodes.ids, _HOST_W, {}),
        (samples.METER, fleet.meters.ids, _FEED_W, {}),
    ):
        size = len(keys)
        told = {
            table.key: keys, "power_w": np.broadcast_to(drawn_w, size),
            "used_j": _HOUR_S * np.broadcast_to(drawn_w, size), "readings": np.full(size, 360),
            "covered_s": np.full(size, float(_HOUR_S)), **more,
        }  # fmt: skip
        width = tiers.rollup_width(HOUR_S, GPUS)
        _store(HOURS[table.name], width, np.full(size, hour), told)


def _store_reports(hour: float) -> None:
    from telemetry import tiers
    from telemetry.models import ReportedJob
    from telemetry.samples import JOB

    jobs = np.array(ReportedJob.objects.order_by("pk").values_list("pk", flat=True))
    rng = np.random.default_rng(2)
    for minute in _minutes(hour):
        ts = np.repeat(minute + _EVERY_S * np.arange(6), jobs.size)
        told = {name: rng.uniform(0.0, 0.8, ts.size) for name in ("data_wait_s", "sync_s")}
        told |= {"step": ts // _EVERY_S, "step_time_s": np.full(ts.size, _EVERY_S)}
        told |= {"job_id": np.tile(jobs, 6), "lost_share": rng.uniform(0.0, 0.1, ts.size)}
        _store(JOB, tiers.raw_width(), ts, told)


def _store(table: Table, width: timedelta, ts: Any, given: dict[str, Any]) -> None:
    """Store rows, those columns that are not given empty."""
    from django.db import connection, transaction

    from telemetry import samples
    from telemetry.samples import NULL_INT, Rows

    columns = {
        each.name: given.get(each.name, np.full(ts.size, np.nan if each.is_float else NULL_INT))
        for each in table.columns
    } | {"ts": ts}
    with transaction.atomic(), connection.cursor() as django_cursor:
        cursor = django_cursor.cursor
        samples.create_partitions(cursor, samples.partitions_for(table, ts, width))
        samples.copy(cursor, Rows(table, columns))


def _throttle(ids: list[int], hour: float) -> None:
    from telemetry.models import ThrottleEvent

    rng = np.random.default_rng(3)
    some = rng.choice(ids, int(THROTTLED * len(ids)), replace=False)
    since = rng.uniform(0.0, 3000.0, some.size)
    ThrottleEvent.objects.bulk_create(
        (
            ThrottleEvent(
                gpu_id=int(gpu), cause=32, opened_at=_moment(hour + start), usual_mhz=1980.0,
                updated_at=_moment(hour + start + 500.0), closed_at=_moment(hour + start + 500.0),
                lost_mhz_s=99_000.0,
            )
            for gpu, start in zip(some, since, strict=True)
        ),
        batch_size=5_000,
    )  # fmt: skip


def _moment(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)


# --- A month -------------------------------------------------------------------------------------

# Of a month the hours of its first and its last day are read, and the days between.
_HOURS = """
INSERT INTO admission_goodput_houraccount
    (hour, site, rack, attempt_id, project, job_class, phase, us)
SELECT hour - make_interval(hours => before), site, rack, attempt_id, project, job_class, phase, us
FROM admission_goodput_houraccount
CROSS JOIN (SELECT generate_series(1, 24) UNION ALL SELECT generate_series(696, 745))
    AS ago (before)
"""
_DAYS = """
INSERT INTO admission_goodput_dayaccount (day, site, project, job_class, phase, us)
SELECT day - before, site, project, job_class, phase, us
FROM admission_goodput_dayaccount CROSS JOIN generate_series(1, 32) AS ago (before)
"""


def _month_s(hour: float) -> float:
    """Return the median time of a month by project, s, once it is there."""
    from django.db import connection

    from admission.goodput.summing import Asked, By, add_up

    with connection.cursor() as cursor:
        cursor.execute(_HOURS)
        cursor.execute(_DAYS)
        cursor.execute("ANALYZE admission_goodput_houraccount, admission_goodput_dayaccount")
    # The latest noon: both ends are then read by hours, whenever this runs.
    end = (int(hour) + 12 * _HOUR_S) // (24 * _HOUR_S) * 24 * _HOUR_S - 12 * _HOUR_S
    asked = Asked(end - 30 * 24 * _HOUR_S, end, By.PROJECT)
    took = []
    for _ in range(5):
        began = time.perf_counter()
        add_up(asked, time.time())
        took.append(time.perf_counter() - began)
    return report.percentile(took, 0.5)
