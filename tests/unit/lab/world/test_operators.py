import numpy as np
import pytest

from lab.world.operators import Operators

STEPS = [f"run-{n}/approve" for n in range(400)]


def test_nobody_answers_before_the_delay_of_a_question_has_passed() -> None:
    people = Operators(seed=3, delay_s=120.0)
    due_s = 1000.0 + people.delay_of("run-1/approve")
    assert people.answer("run-1/approve", 1000.0) is None
    assert people.answer("run-1/approve", due_s - 0.1) is None
    assert people.answer("run-1/approve", due_s + 0.1) == "approve"


def test_the_delay_runs_from_when_a_question_is_first_seen() -> None:
    people = Operators(seed=3, delay_s=120.0)
    people.answer("early", 0.0)
    assert people.answer("late", 1e6) is None
    assert people.answer("early", 1e6) == "approve"


def test_half_of_the_answers_come_within_the_median() -> None:
    delays_s = [Operators(seed=1, delay_s=100.0).delay_of(step) for step in STEPS]
    assert np.median(delays_s) == pytest.approx(100.0, rel=0.1)
    assert 1.5 < np.quantile(delays_s, 0.84) / 100.0 < 2.2


def test_so_many_are_approved_as_was_asked_for() -> None:
    people = Operators(seed=1, delay_s=0.0, approves=0.7)
    answers = [people.answer(step, 0.0) for step in STEPS]
    assert answers.count("approve") == pytest.approx(0.7 * len(STEPS), abs=30)
    assert answers.count("approve") + answers.count("reject") == len(STEPS)


def test_answers_may_depend_on_the_question() -> None:
    people = Operators(seed=1, delay_s=0.0, approves=lambda step: step.startswith("safe"))
    assert [people.answer(step, 0.0) for step in ("safe/a", "other/a")] == ["approve", "reject"]


def test_order_does_not_matter_and_the_seed_does() -> None:
    def answers(seed: int, steps: list[str]) -> dict[str, tuple[str | None, float]]:
        people = Operators(seed=seed, delay_s=60.0, approves=0.5)
        return {step: (people.answer(step, 0.0), people.delay_of(step)) for step in steps}

    assert answers(5, STEPS) == answers(5, STEPS[::-1])
    assert answers(5, STEPS) != answers(6, STEPS)


@pytest.mark.parametrize(
    ("field", "given"), [("delay_s", -1.0), ("delay_s", float("nan")), ("approves", 1.5)]
)
def test_numbers_that_make_no_sense_are_refused(field: str, given: float) -> None:
    numbers = {"delay_s": 10.0, "approves": 1.0} | {field: given}
    with pytest.raises(ValueError, match=field):
        Operators(seed=1, delay_s=numbers["delay_s"], approves=numbers["approves"])
