"""Questions about the last decision, through the real Valkey, to whoever made it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.core.cycle import whatif
from admission.core.cycle.decide import Decisions
from admission.core.snapshot import ClassRules, Pending
from admission.cycle import asking
from admission.cycle.asking import Answer, Answering, Question
from telemetry import stream
from tests.builders.arrays import make_arrays
from tests.builders.queue_world import World, make_request


@pytest.fixture(autouse=True)
def nobody_answers() -> Iterator[None]:
    stream.connection().flushall()
    yield
    stream.connection().flushall()


@pytest.fixture
def answering() -> Iterator[Answering]:
    made = Answering()
    yield made
    made.end()


another = answering


def decided(*, waits: int = 3) -> Decisions:
    """Return decisions on eight GPUs that are taken, and on jobs that wait for them."""
    fleet = make_arrays(sites=1, racks=1, nodes=1, gpus=8)
    world = World(fleet, classes={"training": ClassRules("training")})
    world.submit(make_request("runs/train", gpus=6))
    world.cycle()
    for number in range(waits):
        world.submit(make_request(f"waits-{number}/train", gpus=4))
    return world.cycle()


def test_nobody_is_asked_before_anybody_has_decided() -> None:
    assert asking.ask(Question(key="waits-0/train")) is None


def test_an_explanation_is_that_of_who_decided(answering: Answering) -> None:
    decisions = decided()
    answering.hold(decisions)
    answer = asking.ask(Question(key="waits-1/train"))
    found = whatif.explain(decisions, "waits-1/train")
    assert answer == Answer(explanation=found)
    assert [each.change.gpus for each in found.counterfactuals if each.starts_now] == [2]
    assert found.at == decisions.snapshot.now


def test_a_dry_run_is_on_the_queue_of_who_decided(answering: Answering) -> None:
    decisions = decided()
    answering.hold(decisions)
    for gpus in (2, 8):
        request = make_request("new/train", gpus=gpus)
        answer = asking.ask(Question(request=request))
        assert answer == Answer(dry_run=whatif.dry_run(decisions, Pending(request)))


def test_what_does_not_wait_is_not_explained(answering: Answering) -> None:
    answering.hold(decided())
    assert asking.ask(Question(key="runs/train")) == Answer()
    assert asking.ask(Question(key="nobody/train")) == Answer()


def test_the_newest_decision_answers_whoever_made_it(
    answering: Answering, another: Answering
) -> None:
    answering.hold(decided(waits=1))
    assert asking.ask(Question(key="waits-2/train")) == Answer()
    answering.hold(decided(waits=3))
    assert asking.ask(Question(key="waits-2/train")) != Answer()
    another.hold(decided(waits=1))
    assert asking.ask(Question(key="waits-2/train")) == Answer()


def test_a_question_that_cannot_be_answered_ends_nothing(answering: Answering) -> None:
    answering.hold(decided())
    client = stream.connection()
    client.rpush(f"admission:asked:{answering.name}", b"no question")
    assert asking.ask(Question(key="waits-0/train")) != Answer()


def test_who_has_died_is_waited_for_once(
    answering: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(answering, "_run", lambda: None)
    answering.hold(decided())
    assert asking.ask(Question(key="waits-0/train")) is None
    assert stream.connection().get("admission:answers") is None
