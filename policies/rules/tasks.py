"""Celery tasks of rules."""

from __future__ import annotations

from celery import shared_task


@shared_task
def replay(replay_id: int) -> None:
    """Run the replay that somebody has asked for."""
    # Imported here: reading recorded telemetry takes libraries that a worker else does without.
    from policies.rules import replays

    replays.run(replay_id)
