"""Prometheus metrics of the ingest path."""

from prometheus_client import Counter, Histogram

BATCHES = Counter(
    "headroom_telemetry_batches_total",
    "Telemetry batches by outcome: accepted, partial, or the code of the refusal.",
    ["outcome"],
)
REFUSED_ROWS = Counter(
    "headroom_telemetry_refused_rows_total",
    "Rows and samples that were refused, by the code of the refusal.",
    ["code"],
)
SAMPLES = Counter(
    "headroom_telemetry_samples_total",
    "Samples of remote write and OTLP: taken, ignored for a reason, or the code of the refusal.",
    ["way", "outcome"],
)
ROWS = Counter("headroom_telemetry_rows_total", "Rows committed to the sample tables.", ["table"])
DUPLICATES = Counter(
    "headroom_telemetry_duplicate_batches_total", "Batches that were stored before and left out."
)
DROPPED_ROWS = Counter(
    "headroom_telemetry_dropped_rows_total",
    "Rows of agents, or of things in the inventory, removed after the batch was accepted.",
)
WRITER_SECONDS = Histogram(
    "headroom_telemetry_writer_seconds",
    "Time of one round of the writer, from read to visible.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
VISIBLE_SECONDS = Histogram(
    "headroom_telemetry_visible_seconds",
    "From a batch's receipt to its readings in the live frame.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60),
)
