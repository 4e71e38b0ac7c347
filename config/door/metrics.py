"""Prometheus metrics of the front door."""

from prometheus_client import Counter, Gauge

REFUSALS = Counter(
    "headroom_door_refusals",
    "Requests that were refused before anything was asked of them, by cause.",
    ["cause"],
)
SHARED = Counter(
    "headroom_door_shared_answers", "Polls that were answered with what was made for all."
)
LEFT = Counter("headroom_door_left", "Clients that left before their answer was sent.")
LANE_REQUESTS = Gauge(
    "headroom_door_lane_requests",
    "Requests that wait in a lane or are at work there, of all web processes.",
    ["lane"],
    multiprocess_mode="livesum",
)
OPEN = Gauge(
    "headroom_door_open_requests",
    "Requests that are open, of all web processes: of agents, of others, and bodies on their way.",
    ["of"],
    multiprocess_mode="livesum",
)
HELD_BYTES = Gauge(
    "headroom_door_held_bytes",
    "Bytes of bodies that are held, of all web processes.",
    multiprocess_mode="livesum",
)
