"""When a playbook starts again: for as long as its rule fires, ever more rarely."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from policies.playbooks.pursuit import Decision, Way, back_off, decide
from tests.unit.policies.playbooks.scenes import START

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Past:
    """A run, as far as decisions look at it."""

    state: str = "failed"
    attempt: int = 1
    ended_at: datetime | None = START
    ended_by: str = ""


def test_the_first_run_starts_at_once() -> None:
    assert decide(START, [], START) == Decision(Way.START, 1, START)


@pytest.mark.parametrize("state", ["running", "waiting", "paused", "verifying", "undoing"])
def test_one_that_is_under_way_is_enough(state: str) -> None:
    live = Past(state, ended_at=None)
    assert decide(START, [live, Past()], START).way is Way.ACTIVE


def test_after_one_that_mended_nothing_the_next_starts_after_a_back_off_that_doubles() -> None:
    fired = START - MINUTE
    assert decide(fired, [Past()], START) == Decision(Way.BACK_OFF, 2, START + MINUTE)
    assert decide(fired, [Past()], START + MINUTE) == Decision(Way.START, 2, START + MINUTE)
    third = decide(fired, [Past(attempt=2)], START + MINUTE)
    assert third == Decision(Way.BACK_OFF, 3, START + 2 * MINUTE)
    assert [back_off(n) / MINUTE for n in (1, 2, 3, 6, 7, 99)] == [1, 2, 4, 32, 60, 60]


def test_what_fires_anew_after_a_success_starts_at_once_as_a_further_attempt() -> None:
    fired = START + MINUTE
    assert decide(fired, [Past("succeeded")], fired) == Decision(Way.START, 2, fired)


def test_what_ended_long_ago_does_not_count() -> None:
    later = START + timedelta(hours=6, seconds=1)
    assert decide(later, [Past("failed", attempt=4)], later) == Decision(Way.START, 1, later)


def test_what_a_person_ended_stays_so_until_the_rule_has_cleared_and_fires_anew() -> None:
    ended = Past("aborted", ended_by="ada")
    for hours in (0, 1, 100):
        decided = decide(START - MINUTE, [ended], START + timedelta(hours=hours))
        assert decided.way is Way.GIVEN_UP
    assert decide(START + MINUTE, [ended], START + MINUTE).way is Way.START
