"""What binds a job, by its account."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.account import LEVERS
from admission.core.diagnosis import of_account, of_failure
from admission.core.failures import CAUSES, COMPONENTS, Cause, Kind

HOUR_US = 3_600_000_000


@pytest.mark.parametrize(
    ("causes", "constraint"),
    [
        ({"productive": 70, "synchronization": 20, "data_wait": 10}, "synchronization"),
        ({"productive": 99, "data_wait": 1}, "none"),
        ({"productive": 30, "unknown": 60, "data_wait": 10}, "unknown"),
        ({"productive": 30, "unknown": 20, "data_wait": 50}, "data_wait"),
        ({"repeated": 100}, "repeated"),
    ],
)
def test_the_largest_loss_binds_unless_nobody_knows(
    causes: dict[str, int], constraint: str
) -> None:
    found = of_account({name: hours * HOUR_US for name, hours in causes.items()})
    assert found is not None
    assert found.constraint == constraint


def test_the_arithmetic_says_how_much_faster_it_would_be() -> None:
    found = of_account({"productive": 75 * HOUR_US, "data_wait": 25 * HOUR_US})
    assert found is not None
    assert found.steps == (
        "productive = GPU time / held = 75 h / 100 h = 75 %",
        "data wait = GPU time / held = 25 h / 100 h = 25 %",
        "speed without data wait = 1 / (1 - lost) = 1 / (1 - 25 %) = 1.333x",
    )


def test_a_job_that_held_nothing_is_bound_by_nothing() -> None:
    assert of_account({}) is None
    assert of_account(dict.fromkeys(LEVERS, 0)) is None


@given(st.dictionaries(st.sampled_from(sorted(LEVERS)), st.integers(0, 10**15)))
def test_every_account_has_a_sentence_and_a_lever(causes: dict[str, int]) -> None:
    found = of_account(causes)
    assert found is None or (found.verdict and found.lever)


def test_every_cause_of_failures_has_something_against_it() -> None:
    for cause in Cause:
        assert of_failure("attempt 1", "was lost", cause, "node").lever


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (Kind.LINK, "links"),
        (Kind.BROKEN, "links"),
        (Kind.STORAGE, "store"),
        (Kind.CONNECTION, "service"),
        (Kind.HUNG, "rank"),
        (Kind.UNCLEAR, "CUDA"),
        (Kind.NODE_LOST, "node"),
    ],
)
def test_what_helps_against_a_failure_is_of_what_failed(kind: Kind, word: str) -> None:
    assert word in of_failure("attempt 1", "failed", CAUSES[kind], COMPONENTS[kind]).lever
