"""Prometheus metrics of the controller. Gauges are of its last round, whichever process did it."""

from __future__ import annotations

from prometheus_client import Gauge

from policies.caps.status import Status

__all__ = ["show"]


def _gauge(name: str, about: str) -> Gauge:
    return Gauge(f"headroom_controller_{name}", about, multiprocess_mode="mostrecent")


ACTING = _gauge("acting_gpus", "GPUs on which agents set the caps that they are told.")
CAPPED = _gauge("capped_gpus", "GPUs that are held below what they would draw.")
TAKEN = _gauge("taken_watts", "What they do not draw for it.")
WAITING = _gauge("waiting_attempts", "Attempts for which room is being made.")
HELD = _gauge("held_budgets", "Budgets that are kept by caps.")
HEATED = _gauge("heated_gpus", "GPUs that caps keep below their slowdown.")
SHORT = _gauge("short_budgets", "Budgets that caps alone cannot keep.")


def show(status: Status | None) -> None:
    """Show a status; None: the controller does nothing."""
    budgets = () if status is None else status.budgets
    ACTING.set(status.acting if status else 0)
    CAPPED.set(status.capped if status else 0)
    TAKEN.set(status.taken_w if status else 0.0)
    WAITING.set(status.waiting if status else 0)
    HELD.set(sum(each.short_w <= 0.0 for each in budgets))
    HEATED.set(len(status.heated) if status else 0)
    SHORT.set(sum(each.short_w > 0.0 for each in budgets))
