"""A cycle between two beats does what somebody waits for; what goes by the beat is left to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from admission import tasks
from admission.cycle import loop
from admission.executors.schedulers import news
from fleet.locks import only_one
from telemetry import stream
from tests.builders.fleet import SmallFleet
from tests.integration.admission.cycle.scenes import attempts, queued

BY_THE_BEAT = ("cordoning.cordon", "step.step", "shadowing.ask")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch, fleet: SmallFleet) -> list[str]:
    """What goes by the beat, as cycles do it."""
    found: list[str] = []
    for name in BY_THE_BEAT:
        monkeypatch.setattr(f"admission.cycle.loop.{name}", lambda *_, of=name: found.append(of))
    return found


def short() -> None:
    made = loop.cycle_once(time.time(), may_be_short=True)
    assert made is not None
    assert made.failed == []


def test_the_first_after_a_beat_is_whole_and_those_after_it_only_admit(done: list[str]) -> None:
    queued("first")
    short()
    assert sorted(done) == sorted(BY_THE_BEAT)
    done.clear()
    queued("second")
    short()
    assert attempts() == ["first/train/1", "second/train/1"]
    assert done == []
    # The next beat.
    stream.connection().delete(news._WHOLE)
    short()
    assert sorted(done) == sorted(BY_THE_BEAT)


@pytest.fixture
def one_at_work(done: list[str], transactional_db: None) -> Iterator[None]:
    """A cycle that does not end before the test."""
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with only_one(loop._LOCK):
            held.set()
            free.wait(60)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(60)
    yield
    free.set()
    other.join()


def test_a_beat_that_finds_one_at_work_is_made_up_for(one_at_work: None) -> None:
    assert tasks.cycle() is False
    assert news.is_cycle_asked()


def test_who_finds_one_at_work_after_a_whole_one_leaves_it_at_that(one_at_work: None) -> None:
    assert news.is_whole_due()
    assert tasks.cycle() is False
    assert not news.is_cycle_asked()
