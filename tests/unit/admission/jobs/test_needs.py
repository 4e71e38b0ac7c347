from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from admission.jobs.needs import Fate, Standing, standing
from headroom.jobs.spec import When

NOW = datetime(2026, 11, 1, tzinfo=UTC)
AGO = NOW - timedelta(seconds=60)
OPEN, MET, NEVER = Standing.OPEN, Standing.MET, Standing.NEVER

WAITS = Fate()
RUNS = Fate(started_at=AGO)
SUCCEEDED = Fate(has_succeeded=True, is_over=True, started_at=AGO, ended_at=AGO)
FAILED = Fate(has_failed=True, is_over=True, started_at=AGO, ended_at=AGO)
NEVER_BEGAN = Fate(has_failed=True, is_over=True, ended_at=AGO)


@pytest.mark.parametrize(
    ("fate", "succeeded", "failed", "ended", "started"),
    [
        (WAITS, OPEN, OPEN, OPEN, OPEN),
        (RUNS, OPEN, OPEN, OPEN, MET),
        (SUCCEEDED, MET, NEVER, MET, MET),
        (FAILED, NEVER, MET, MET, MET),
        (NEVER_BEGAN, NEVER, MET, MET, NEVER),
    ],
)
def test_each_kind_is_met_or_never_will_be(
    fate: Fate, succeeded: Standing, failed: Standing, ended: Standing, started: Standing
) -> None:
    found = [standing(when, 0.0, fate, NOW) for when in When]
    assert found == [succeeded, failed, ended, started]


@pytest.mark.parametrize("when", list(When))
def test_so_long_after_counts_from_what_came_about(when: When) -> None:
    fate = FAILED if when is When.FAILED else SUCCEEDED
    assert standing(when, 60.0, fate, NOW) is MET
    assert standing(when, 61.0, fate, NOW) is OPEN
