from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.jobs.graph import Step, following, job_state
from admission.jobs.models import Phase

OVER = [state.value for state in Phase.OVER]


def make_steps(text: str) -> list[Step]:
    """Return steps as "name needs,needs state", one a line."""
    found = []
    for line in text.strip().splitlines():
        name, needs, state = line.split()
        found.append(Step(name, tuple(each for each in needs.split(",") if each != "-"), state))
    return found


def test_a_phase_may_begin_when_all_that_it_needs_has_succeeded() -> None:
    steps = make_steps("a - succeeded\nb - succeeded\nc a,b waiting\nd c waiting")
    assert following(steps) == {"c": "queued"}
    assert following(make_steps("a - succeeded\nb - running\nc a,b waiting")) == {}


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_what_needs_a_phase_that_did_not_succeed_is_cancelled_with_all_after_it(how: str) -> None:
    steps = make_steps(f"a - {how}\nb a waiting\nc b waiting\nd - running\ne d waiting")
    assert following(steps) == {"b": "cancelled", "c": "cancelled"}


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["queued", "waiting"], "queued"),
        (["succeeded", "waiting"], "queued"),
        (["starting", "queued"], "running"),
        (["paused"], "running"),
        (["stopping", "failed"], "running"),
        (["succeeded", "succeeded"], "succeeded"),
        (["succeeded", "failed", "cancelled"], "failed"),
        (["succeeded", "cancelled"], "cancelled"),
    ],
)
def test_the_state_of_a_job_follows_from_its_phases(states: list[str], expected: str) -> None:
    steps = [Step(str(place), (), state) for place, state in enumerate(states)]
    assert job_state(steps) == expected


def test_a_job_that_has_begun_runs_until_it_is_over() -> None:
    assert job_state([Step("a", (), "succeeded", has_begun=True), Step("b", (), "queued")]) == (
        "running"
    )


@st.composite
def graphs(draw: st.DrawFn) -> list[Step]:
    count = draw(st.integers(1, 8))
    steps = []
    for place in range(count):
        needs = draw(st.sets(st.integers(0, place - 1), max_size=3)) if place else set()
        state = draw(st.sampled_from(OVER)) if not needs else "waiting"
        steps.append(Step(str(place), tuple(map(str, sorted(needs))), state))
    return steps


@given(graphs(), st.randoms())
def test_every_phase_is_over_in_the_end_whatever_comes(steps: list[Step], rng: Random) -> None:
    """Where whatever is queued ends somehow, nothing waits for ever."""
    for _ in steps:
        changed = following(steps)
        steps = [
            Step(each.name, each.needs, _ended(changed.get(each.name, each.state), rng))
            for each in steps
        ]
    assert {each.state for each in steps} <= set(OVER)
    by_name = {each.name: each.state for each in steps}
    for each in steps:
        if each.needs and any(by_name[name] != "succeeded" for name in each.needs):
            assert each.state == "cancelled"


def _ended(state: str, rng: Random) -> str:
    return rng.choice(["succeeded", "failed"]) if state == "queued" else state
