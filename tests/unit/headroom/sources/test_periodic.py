from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Literal

import pytest

from headroom.agent.devices import Row
from headroom.agent.sources.periodic import Periodic, SourceError
from tests.unit.headroom.waiting import wait_for


class Counting:
    """Gives one row a poll; what ``then`` holds happens first."""

    block: Literal["links"] = "links"

    def __init__(self) -> None:
        self.polls = 0
        self.then: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.closed = False

    def poll(self) -> Iterator[Row]:
        self.polls += 1
        self.gate.wait(10)
        yield {"link": "a", "errors": self.polls}
        if self.then is not None:
            raise self.then

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def poller() -> Counting:
    return Counting()


@pytest.fixture
def source(poller: Counting) -> Iterator[Periodic]:
    made = Periodic(
        poller, name="it", interval_s=0.02, deadline_s=0.2, clock=lambda: 42.0 + poller.polls
    )
    yield made
    poller.gate.set()
    made.close()


def gathered(source: Periodic, count: int) -> list[Row]:
    rows: list[Row] = []

    def more() -> bool:
        rows.extend(source.read())
        return len(rows) >= count

    wait_for(more)
    return rows


def test_each_poll_is_handed_out_once_with_its_own_time(source: Periodic) -> None:
    rows = gathered(source, 3)
    assert [row["errors"] for row in rows[:3]] == [1, 2, 3]
    assert [row["ts"] for row in rows[:3]] == [43, 44, 45]


def test_the_first_poll_can_be_waited_for(source: Periodic) -> None:
    source.settle(10)
    assert list(source.read())


def test_a_poll_that_fails_is_counted_and_told_once_and_what_it_gave_is_kept(
    poller: Counting, source: Periodic, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        poller.then = SourceError("no such thing")
        wait_for(lambda: source.errors >= 3)
        assert source.last_error == "it: no such thing"
        assert gathered(source, 3)
        poller.then = None
        wait_for(lambda: not source.last_error)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_defect_does_not_end_the_thread(poller: Counting, source: Periodic) -> None:
    poller.then = ZeroDivisionError("a defect")
    wait_for(lambda: source.errors >= 2)
    poller.then = None
    wait_for(lambda: not source.last_error)


def test_a_poll_that_hangs_counts_as_failed_and_holds_up_nobody(
    poller: Counting, source: Periodic
) -> None:
    poller.gate.clear()
    wait_for(lambda: list(source.read()) == [] and source.errors >= 2)
    assert "no answer within 0.2 s" in source.last_error
    polls = poller.polls
    poller.gate.set()
    wait_for(lambda: poller.polls > polls)


def test_closing_lets_go_of_what_is_polled(poller: Counting) -> None:
    made = Periodic(poller, name="it", interval_s=60)
    made.settle(10)
    made.close()
    assert poller.closed


def test_closing_does_not_wait_for_what_hangs(
    poller: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.agent.sources.periodic._CLOSE_S", 0.1)
    poller.gate.clear()
    made = Periodic(poller, name="it", interval_s=60)
    made.close()
    assert not poller.closed
    poller.gate.set()
    wait_for(lambda: poller.closed)


def test_rows_that_nobody_fetches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flood(Counting):
        def poll(self) -> Iterable[Row]:  # type: ignore[override]
            return [{"link": str(i)} for i in range(50)]

    monkeypatch.setattr("headroom.agent.sources.periodic._MAX_ROWS", 20)
    made = Periodic(Flood(), name="it", interval_s=60)
    made.settle(10)
    assert [row["link"] for row in made.read()] == [str(i) for i in range(30, 50)]
    made.close()
