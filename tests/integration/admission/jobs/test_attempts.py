"""Which attempts held GPUs in a span of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admission.jobs.models import Attempt
from tests.builders.jobs import make_attempt, make_job

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 1, tzinfo=UTC)
END = START + timedelta(hours=1)
MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("dispatched", "ended", "held"),
    [
        (START - 5 * MINUTE, None, True),
        (START - 5 * MINUTE, START + MINUTE, True),
        (START + MINUTE, END + MINUTE, True),
        (START - MINUTE, END + MINUTE, True),
        (START - 5 * MINUTE, START, False),
        (START - 5 * MINUTE, START - MINUTE, False),
        (END, None, False),
        (END + MINUTE, None, False),
    ],
)
def test_those_that_touch_the_span_held_gpus_in_it(
    dispatched: datetime, ended: datetime | None, held: bool
) -> None:
    make_attempt(
        make_job().phases.get(), {"n1": [0]}, dispatched_at=dispatched, started_at=dispatched,
        ended_at=ended, state="running" if ended is None else "ended",
    )  # fmt: skip
    assert Attempt.objects.overlapping(START, END).exists() is held
