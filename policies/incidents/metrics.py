"""Prometheus metrics of incidents and notifications."""

from prometheus_client import Counter

TURNS = Counter(
    "headroom_incident_turns_total",
    "Incidents that opened, opened again, were resolved, or closed by a person.",
    ["turn"],
)
NOTIFICATIONS = Counter(
    "headroom_notifications_total",
    "Tries to send a notification, by kind of channel: sent, retried, or failed for good.",
    ["kind", "outcome"],
)
