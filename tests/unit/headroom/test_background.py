from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from headroom.agent.background import Background
from headroom.agent.devices import Block, Row


class GatedSource:
    """Gives a row at once, and a second one when the gate is open."""

    block: Block = "gpus"
    errors = 0

    def __init__(self) -> None:
        self.last_error = ""
        self.gate = threading.Event()
        self.gate.set()
        self.rounds = 0
        self.closed_in = ""

    def read(self) -> Iterator[Row]:
        self.rounds += 1
        yield {"gpu": 0}
        self.gate.wait(10)
        yield {"gpu": 1}

    def close(self) -> None:
        self.closed_in = threading.current_thread().name


@pytest.fixture
def source() -> GatedSource:
    return GatedSource()


@pytest.fixture
def background(source: GatedSource) -> Iterator[Background]:
    made = Background(source, wait_s=0.05, close_s=1)
    yield made
    source.gate.set()
    made.close()


def rows_until(background: Background, count: int) -> list[Row]:
    found: list[Row] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        found += background.read()
        time.sleep(0.01)
    return found


def test_what_is_in_time_has_the_time_of_the_reading(background: Background) -> None:
    assert list(background.read()) == [{"gpu": 0}, {"gpu": 1}]


def test_one_that_hangs_is_not_asked_again_and_each_skipped_reading_counts(
    background: Background, source: GatedSource
) -> None:
    source.gate.clear()
    assert list(background.read()) == [{"gpu": 0}]
    for _ in range(3):
        assert list(background.read()) == []
    assert (source.rounds, background.errors) == (1, 3)

    source.gate.set()
    late, *rest = rows_until(background, 3)
    assert late["gpu"] == 1
    assert late["ts"] == pytest.approx(time.time(), abs=2)
    assert rest == [{"gpu": 0}, {"gpu": 1}]


def test_a_source_that_is_slow_to_begin_is_waited_for(
    background: Background, source: GatedSource
) -> None:
    source.gate.clear()
    threading.Timer(0.2, source.gate.set).start()
    background.settle(5)
    assert list(background.read()) == [{"gpu": 0}, {"gpu": 1}]
    assert background.errors == 0


def test_a_defect_counts_and_does_not_end_the_readings(
    background: Background, source: GatedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Iterator[Row]:
        yield {"gpu": 7}
        raise ZeroDivisionError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(source, "read", fail)
        assert list(background.read()) == [{"gpu": 7}]
    assert background.errors == 1
    assert "a defect" in background.last_error
    assert len(list(background.read())) == 2


def test_the_last_error_is_the_newest_of_the_source_and_the_thread(
    background: Background, source: GatedSource
) -> None:
    source.gate.clear()
    list(background.read())
    list(background.read())
    assert "has not answered" in background.last_error
    source.last_error = "gpu0 is lost"
    source.gate.set()
    rows_until(background, 3)
    assert background.last_error == "gpu0 is lost"


def test_the_source_is_closed_by_the_thread_that_reads_it(source: GatedSource) -> None:
    background = Background(source, wait_s=1)
    background.close()
    assert source.closed_in == "GatedSource"
