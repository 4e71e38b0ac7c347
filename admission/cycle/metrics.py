"""Prometheus metrics of admission. Gauges are of the last cycle, whichever process did it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import Counter, Gauge, Histogram

from admission.core.cycle.calibration import Calibration
from admission.core.reasons import ReasonToken
from admission.core.request import Request
from admission.queue.queue_status import Count

QUEUE_LENGTH = Gauge(
    "headroom_admission_queue_length",
    "Phases that wait, by class and dominant reason.",
    ["job_class", "reason"],
    multiprocess_mode="mostrecent",
)
OLDEST_WAIT = Gauge(
    "headroom_admission_oldest_wait_seconds",
    "The longest wait among them so far.",
    ["job_class", "reason"],
    multiprocess_mode="mostrecent",
)
RUNNING = Gauge(
    "headroom_admission_running", "Attempts that hold GPUs.", multiprocess_mode="mostrecent"
)
FORECASTS_WITHIN = Gauge(
    "headroom_admission_forecasts_within_ratio",
    "Share of starts that came within the range that was estimated: 0.8 is right.",
    multiprocess_mode="mostrecent",
)
CYCLE_SECONDS = Histogram(
    "headroom_admission_cycle_seconds",
    "Time of one cycle.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 3, 5, 10, 30),
)
PART_SECONDS = Histogram(
    "headroom_admission_part_seconds",
    "Time of each part of a cycle.",
    ["part"],
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
FAILED_PARTS = Counter(
    "headroom_admission_failed_parts_total", "Parts of cycles that failed.", ["part"]
)
ADMISSIONS = Counter("headroom_admission_admissions_total", "Phases dispatched.", ["job_class"])
WAIT_SECONDS = Histogram(
    "headroom_admission_wait_seconds",
    "From the submission of a phase's job to when the phase was dispatched.",
    ["job_class"],
    buckets=(1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600),
)

_shown: set[str] = set()


def show_queue(counts: Sequence[Count], classes: Iterable[str], running: int) -> None:
    """Show how many phases wait. Classes without waiting phases are shown as 0."""
    RUNNING.set(running)
    _shown.update(classes, (each.job_class for each in counts))
    found = {(each.job_class, each.reason): each for each in counts}
    for job_class in _shown:
        # All of them, since another process may have set any.
        for token in ReasonToken:
            each = found.get((job_class, token.value))
            QUEUE_LENGTH.labels(job_class, token.value).set(each.count if each else 0)
            OLDEST_WAIT.labels(job_class, token.value).set(each.oldest_s if each else 0.0)


def count_admissions(admitted: Iterable[Request], now: float) -> None:
    """Count phases that were dispatched at ``now`` (Unix s)."""
    for request in admitted:
        ADMISSIONS.labels(request.job_class).inc()
        WAIT_SECONDS.labels(request.job_class).observe(max(now - request.submitted_at, 0.0))


def show_calibration(calibration: Calibration) -> None:
    """Show how often starts fell into their estimated ranges."""
    if calibration.coverage is not None:
        FORECASTS_WITHIN.set(calibration.coverage)


def part_done(name: str, took_s: float, *, failed: bool) -> None:
    """Count one part of a cycle."""
    PART_SECONDS.labels(name).observe(took_s)
    if failed:
        FAILED_PARTS.labels(name).inc()
