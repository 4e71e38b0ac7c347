"""Estimates, states and reasons in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from admission.core.reasons import ReasonToken
from admission.jobs.models import Phase
from admission.queue import queue_status
from dashboard import jobs, reasons
from dashboard.templatetags import job_words
from dashboard.units import DASH
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays
from tests.builders.jobs import make_reason


@pytest.mark.parametrize(
    ("low_s", "high_s", "words"),
    [
        (0.0, 0.0, "under 1 min"),
        (0.0, 90.0, "up to 90 s"),
        (1080.0, 2100.0, f"18{DASH}35 min"),
        (1090.0, 2095.0, f"18{DASH}35 min"),
        (30.0, 300.0, "up to 5 min"),
        (600.0, 600.0, "10 min"),
        (3600.0, 30_000.0, f"1{DASH}9 h"),
        (90_000.0, 100_000.0, "over a day"),
        (5400.0, math.inf, "over 90 min"),
        (math.inf, math.inf, "over a day"),
        (None, 5.0, DASH),
        (math.nan, 5.0, DASH),
    ],
)
def test_a_range_is_as_wide_as_it_is_and_no_more_exact(
    low_s: float | None, high_s: float | None, words: str
) -> None:
    assert job_words.between(low_s, high_s) == words


def test_every_state_has_a_mark_and_its_word() -> None:
    for state in Phase.State.values:
        assert f"</span> {state}</span>" in job_words.state_mark(state)
    assert set(jobs.STATES) == set(Phase.State)


def test_every_token_says_what_it_means() -> None:
    assert set(reasons.MEANINGS) == set(ReasonToken)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (41_200.0, "W", "41.2 kW"),
        (1.0, "GPUs", "1 GPU"),
        (1024.0, "GPUs", "1,024 GPUs"),
        (2.5, "jobs", "2.5 jobs"),
        (600.0, "s", "10 min"),
        (math.inf, "s", DASH),
    ],
)
def test_what_a_reason_counts_is_said_with_its_unit(value: float, unit: str, words: str) -> None:
    assert reasons.amount(value, unit) == words


def line_of(token: ReasonToken = ReasonToken.RACK_POWER, **given: Any) -> reasons.Line:
    scope = Scope(ScopeKind.RACK, "s1/A01")
    (line,) = queue_status.reason_lines([make_reason(token, **{"scope": scope, **given})])
    return reasons.line_of(line, make_arrays())


def test_a_reason_is_a_line_that_leads_to_its_place() -> None:
    line = line_of(evidence={"at": 1_000_000.0, "restrictions": [3, 4]})
    assert (line.need, line.have, line.short) == ("41.2 kW", "36.8 kW", "4.4 kW")
    assert (line.where, line.href) == ("rack s1/A01", "/racks/1/")
    assert line.seen_at == 1_000_000.0
    assert line.evidence == [("restrictions", "3, 4")]


def test_a_reason_of_words_has_no_numbers_and_one_of_nowhere_no_place() -> None:
    line = line_of(ReasonToken.ON_HOLD, unit="", scope=None, evidence={})
    assert (line.need, line.have, line.short, line.where, line.href) == ("",) * 5
    assert line.seen_at is None


def test_what_is_not_short_says_nothing_of_it() -> None:
    assert line_of(have=50_000.0).short == ""
