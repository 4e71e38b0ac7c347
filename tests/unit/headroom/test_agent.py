from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from headroom.agent.delivery import DeliverySettings
from headroom.agent.devices import Row, Source
from headroom.agent.loop import Agent, AgentSettings, Sampler, _next_on_grid
from headroom.agent.spool import Spool
from headroom.client import Client
from headroom.contracts import (
    CheckpointReport,
    GpuColumns,
    HostColumns,
    StoreState,
    TelemetryBatch,
)
from tests.unit.headroom.fake_server import Answer, FakeServer, refusal

SETTINGS = AgentSettings(agent="a1", node="n1", sample_s=0.02, push_s=0.1)
QUICK = DeliverySettings(first_backoff_s=0.05, longest_backoff_s=0.1, resend_after_s=0.3)


class CountingSource:
    """Gives 0, 1, 2, … so that a lost or doubled reading shows."""

    errors = 0
    last_error = ""

    def __init__(self, block: Literal["gpus", "host"] = "host") -> None:
        self.block = block
        self.given = 0
        self.closed = False

    def read(self) -> Iterable[Row]:
        value, self.given = self.given, self.given + 1
        return [{"gpu": 0, "mem_used": value}] if self.block == "gpus" else [{"mem_used": value}]

    def close(self) -> None:
        self.closed = True


class BrokenSource(CountingSource):
    def read(self) -> Iterable[Row]:
        raise ZeroDivisionError("a defect")


def readings(batches: Iterable[TelemetryBatch]) -> list[int | None]:
    found: list[int | None] = []
    for batch in batches:
        for report in batch.nodes:
            if report.host is not None:
                found += report.host.mem_used or []
    return found


def wait_for(condition: Callable[[], object], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.fixture
def spool_path(tmp_path: Path) -> Path:
    return tmp_path / "spool.sqlite"


@pytest.fixture
def start(client: Client, spool_path: Path) -> Iterator[Callable[..., Agent]]:
    """Return a function that runs an agent in a thread of its own."""
    running: list[tuple[Agent, threading.Thread]] = []

    def run(*sources: Source) -> Agent:
        agent = Agent(SETTINGS, sources, Spool(spool_path), client, delivery_settings=QUICK)
        thread = threading.Thread(target=agent.run)
        thread.start()
        running.append((agent, thread))
        return agent

    def stop(agent: Agent) -> None:
        agent.stop()
        next(thread for each, thread in running if each is agent).join(60)

    run.stop = stop  # type: ignore[attr-defined]
    yield run
    for agent, thread in running:
        agent.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_sampler_seals_what_was_read_since_the_last_time() -> None:
    gpus, host = CountingSource("gpus"), CountingSource("host")
    times = iter([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    sampler = Sampler(SETTINGS, [gpus, host], clock=lambda: next(times))
    sampler.sample()
    sampler.sample()
    batch = sampler.seal()

    assert batch.nodes[0].node == "n1"
    assert batch.nodes[0].gpus == GpuColumns(ts=[1.0, 3.0], gpu=[0, 0], mem_used=[0, 1])
    assert batch.nodes[0].host == HostColumns(ts=[2.0, 4.0], mem_used=[0, 1])
    assert batch.sent_at == 5.0
    assert sampler.seal().nodes == []


def test_a_source_that_breaks_is_counted_and_does_not_silence_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sampler = Sampler(SETTINGS, [BrokenSource(), CountingSource()])
    with caplog.at_level(logging.ERROR):
        assert [sampler.sample() for _ in range(3)] == [1, 1, 1]

    assert sampler.errors == 3
    assert "a defect" in sampler.last_error
    assert len(caplog.records) == 1  # the same failure is logged once


@pytest.mark.parametrize(
    ("due", "now", "expected"), [(10, 10, 11), (10, 10.9, 11), (10, 13.5, 14), (10, 9.9, 11)]
)
def test_missed_samples_are_left_out(due: float, now: float, expected: float) -> None:
    assert _next_on_grid(due, 1.0, now) == expected


def test_all_that_was_sampled_arrives_once_and_in_order(
    server: FakeServer, start: Callable[..., Agent]
) -> None:
    source = CountingSource()
    agent = start(source)
    wait_for(lambda: len(server.pushes) >= 3)
    start.stop(agent)  # type: ignore[attr-defined]

    assert readings(server.all_stored()) == list(range(source.given))
    assert source.closed
    status = server.pushes[-1].status
    assert status is not None
    assert (status.dropped_batches, status.errors) == (0, 0)


def test_trouble_on_the_way_costs_no_reading(
    server: FakeServer, start: Callable[..., Agent]
) -> None:
    server.script.extend(
        [
            Answer(503, b"", {"Retry-After": "0"}),
            refusal(401),
            Answer(0, drop=True),
            Answer(429, b"", {"Retry-After": "0"}),
        ]
    )
    server.script_after_taking.append(Answer(0, drop=True))
    source = CountingSource()
    agent = start(source)
    wait_for(lambda: len(server.pushes) >= 4)
    start.stop(agent)  # type: ignore[attr-defined]

    assert readings(server.all_stored()) == list(range(source.given))
    assert agent.delivery.errors == 5


def test_an_agent_without_a_server_keeps_everything_for_the_next_start(
    server: FakeServer, spool_path: Path, start: Callable[..., Agent]
) -> None:
    server.script.extend(Answer(500) for _ in range(1000))
    source = CountingSource()
    agent = start(source)
    wait_for(lambda: source.given > 20)
    start.stop(agent)  # type: ignore[attr-defined]
    assert not server.all_stored()

    server.script.clear()
    second = CountingSource()
    agent = start(second)
    wait_for(lambda: second.given > 10)
    start.stop(agent)  # type: ignore[attr-defined]

    expected = list(range(source.given)) + list(range(second.given))
    assert readings(server.all_stored()) == expected
    assert len(server.stored) == 1  # one boot_id: one life of the spool


def test_the_sampling_goes_on_while_a_push_hangs(spool_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        source = CountingSource()
        with Client(url, "t") as client:
            agent = Agent(SETTINGS, [source], Spool(spool_path), client)
            thread = threading.Thread(target=agent.run)
            thread.start()
            wait_for(lambda: source.given > 30)
            agent.stop()
            stopped_at = time.monotonic()
    # The listening socket is gone, so the push that hung has failed by now.
    thread.join(60)
    assert time.monotonic() - stopped_at < 30
    spool = Spool(spool_path)
    batches = [spool.get(seq) for seq in spool.after(0, 1000)]
    assert readings(batch for batch in batches if batch) == list(range(source.given))
    spool.close()


def test_an_agent_that_reads_nothing_still_says_that_it_lives(
    server: FakeServer, start: Callable[..., Agent]
) -> None:
    agent = start()
    wait_for(lambda: server.pushes)
    start.stop(agent)  # type: ignore[attr-defined]
    assert server.pushes[0].nodes == []
    assert server.pushes[0].status is not None


def test_what_keepers_have_told_goes_with_the_batch(client: Client, server: FakeServer) -> None:
    told = CheckpointReport(job="j", node="n1", at=1.0, store=StoreState(run="r", lease_epoch=0))
    asked: list[str] = []

    def take(node: str) -> list[CheckpointReport]:
        asked.append(node)
        return [told]

    agent = Agent(SETTINGS, [CountingSource()], Spool(":memory:"), client, checkpoint_reports=take)
    assert agent.run_once()
    assert asked == ["n1"]
    assert [batch.checkpoints for batch in server.all_stored()] == [[told]]


def test_once_pushes_one_batch_and_says_whether_it_arrived(
    server: FakeServer, client: Client
) -> None:
    agent = Agent(SETTINGS, [CountingSource()], Spool(":memory:"), client)
    assert agent.run_once()
    assert readings(server.all_stored()) == [0, 1]
    server.script.append(Answer(500))
    assert not agent.run_once()


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headroom", "agent", *arguments],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_process_hands_over_what_it_has_on_sigterm(
    server: FakeServer, spool_path: Path
) -> None:
    process = command(
        *("--server", server.url, "--spool", str(spool_path), "--node", "n1"),
        *("--sample-s", "0.05", "--push-s", "60"),
        HEADROOM_TOKEN="hra_x",
    )
    with process:
        assert process.stderr is not None
        assert "agent started" in "".join(iter_until(process.stderr, "agent started"))
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(60) == 0
    assert 'msg="agent stopped" spooled=0' in rest
    (batch,) = server.all_stored()
    assert batch.nodes[0].host is not None
    assert len(batch.nodes[0].host) >= 3


def iter_until(lines: Iterable[str], word: str) -> Iterator[str]:
    for line in lines:
        yield line
        if word in line:
            return


def test_a_killed_process_loses_nothing_that_was_spooled(
    server: FakeServer, spool_path: Path
) -> None:
    server.script.extend(Answer(500) for _ in range(10_000))
    arguments = (
        *("--server", server.url, "--spool", str(spool_path), "--node", "n1"),
        *("--sample-s", "0.05", "--push-s", "0.1"),
    )
    with command(*arguments, HEADROOM_TOKEN="hra_x") as process:
        wait_for(lambda: len(server.requests) >= 1)
        time.sleep(0.5)
        process.kill()
        process.communicate()
    spool = Spool(spool_path)
    held, boot_id = spool.after(0, 1000), spool.boot_id
    spool.close()
    assert held

    server.script.clear()
    with command(*arguments, "--once", HEADROOM_TOKEN="hra_x") as process:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert sorted(server.stored["n1", boot_id]) == [*held, held[-1] + 1]


def test_once_print_needs_neither_server_nor_token() -> None:
    environment = {"HEADROOM_TOKEN": "", "HEADROOM_URL": "http://127.0.0.1:1"}
    with command("--once", "--print", "--node", "x", **environment) as process:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    assert json.loads(out)["nodes"][0]["node"] == "x"
