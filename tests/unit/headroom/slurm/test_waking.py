"""The bridge begins a round at once where there is news, and else each second."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from headroom.errors import HeadroomError
from headroom.schedulers.contract import SchedulerOrders, SchedulerReport
from headroom.schedulers.rounds import OrderListener
from headroom.slurm.bridge import Bridge, BridgeSettings
from headroom.slurm.files import RunFiles


class Silent:
    """A server that has orders when it is told so, and is never asked for them."""

    def __init__(self) -> None:
        self.told = threading.Event()

    def scheduler(self, name: str, report: SchedulerReport) -> SchedulerOrders:
        raise HeadroomError("nobody is to ask")

    def scheduler_news(self, name: str, after: str) -> str:
        if not self.told.wait(5.0):
            return after
        self.told.clear()
        return f"{int(after) + 1}"


@pytest.fixture
def server() -> Silent:
    return Silent()


@pytest.fixture
def bridge(tmp_path: Path, server: Silent) -> Bridge:
    return Bridge(BridgeSettings(name="hall-a", run_dir=tmp_path), server)


def test_a_job_that_is_held_is_news_once(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    before = files.news()
    (tmp_path / "news").write_text("1\n")
    assert files.news() != before
    assert files.news() == files.news()


def test_news_do_not_fill_a_disk(tmp_path: Path) -> None:
    files = RunFiles(tmp_path)
    (tmp_path / "news").write_text("1\n" * 100_000)
    before = files.news()
    assert (tmp_path / "news").stat().st_size == 0
    assert files.news() != before


def test_slurm_is_read_as_soon_as_a_job_is_held(bridge: Bridge, tmp_path: Path) -> None:
    began = time.monotonic()
    threading.Timer(0.3, lambda: (tmp_path / "news").write_text("1\n")).start()
    bridge._pause(60.0)
    assert bridge._reads
    assert 0.2 < time.monotonic() - began < 50.0


def test_orders_are_fetched_at_once_and_slurm_is_not_read_for_them(
    bridge: Bridge, server: Silent
) -> None:
    bridge._orders = OrderListener(server, "hall-a", bridge.stop)
    bridge._orders.start()
    began = time.monotonic()
    server.told.set()
    bridge._pause(60.0)
    assert not bridge._reads
    assert time.monotonic() - began < 50.0
    bridge.stop.set()
    server.told.set()


def test_without_news_a_round_begins_when_it_is_due(bridge: Bridge) -> None:
    bridge._pause(0.3)
    assert bridge._reads
