"""Throttle events in the database: from readings to rows, from one writer to the next, and back."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from fleet import snapshot
from telemetry import stream, tasks, writer
from telemetry.faults.models import EccEvent
from telemetry.limits.models import LimitReport
from telemetry.models import ThrottleEvent
from telemetry.throttle import memory
from telemetry.throttle.models import TrackedRounds
from telemetry.throttle.tracker import Tracker
from telemetry.writer import Writer
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source, drain_everything

CAP, HOT, BRAKE = 0x4, 0x20, 0x80


@pytest.fixture
def now() -> float:
    """Whole seconds, so that times come back as they went."""
    return float(int(time.time()))


@pytest.fixture
def rebuilds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One element for each time that a tracker was made from what is stored."""
    made: list[int] = []
    real = memory._rebuild

    def counted(rounds: int) -> memory.Memory:
        made.append(1)
        return real(rounds)

    monkeypatch.setattr(memory, "_rebuild", counted)
    return made


def kill() -> None:
    """Lose what this process remembers, as if it had been killed."""
    writer.forget_own()


class Brakes:
    """Pushes readings of a node of which GPU 3 is braked; its counter says for how long."""

    def __init__(self, source: Source, start: float) -> None:
        self.source, self.start = source, start
        self.seq, self.total_s = 0, 1000.0

    def push(self, *held_s: float, every_s: float = 10.0, **given: Any) -> None:
        """Push a batch with a reading for each of ``held_s``, which held since the one before."""
        ts, counters = [], []
        for held in held_s:
            self.start += every_s
            self.total_s += held
            ts.append(self.start)
            counters += [round(1e9 * self.total_s) if gpu == 3 else 0 for gpu in range(8)]
        self.seq += 1
        batch = make_batch(
            "agent-1", "n1", self.seq, ts=ts, throttle_hw_power_brake_ns=counters, **given
        )
        assert self.source.push(batch).status_code == 202


@pytest.fixture
def brakes(source: Source, now: float) -> Brakes:
    return Brakes(source, now - 1000)


def test_an_event_has_all_its_figures(source: Source, now: float) -> None:
    for i in range(3):
        hot = [HOT if gpu == 3 else 0 for gpu in range(8)]
        batch = make_batch(
            "agent-1", "n1", i + 1, ts=[now - 300 + 60 * i], throttle=hot, util=99.0,
            energy_j=1e6 + 24_000 * i, temp_c=80.0 + i, temp_mem_c=90.0 - i, sm_mhz=1480.0,
            power_limit_w=600.0, job="llama",
        )  # fmt: skip
        source.push(batch)
        drain_everything()
    event = ThrottleEvent.objects.get()
    assert event.gpu.index == 3
    assert (event.cause_token, event.class_token) == ("sw_thermal", "unexpected")
    assert (event.observed_s, event.throttled_s, event.share) == (120, 120, 1)
    assert (event.usual_mhz, event.lost_mhz_s) == (1980, 120 * 500)
    assert event.lost_s == pytest.approx(120 * 500 / 1980)
    assert event.energy_j == 48_000
    assert (event.peak_temp_c, event.peak_temp_mem_c, event.min_sm_mhz) == (82, 90, 1480)
    assert event.job is not None
    assert event.job.name == "llama"
    assert event.place == "oslo/A01/n1/3"
    assert event.severity_token == "warning"


def test_a_cap_below_the_models_rating_is_expected(source: Source, now: float) -> None:
    source.push(make_batch("agent-1", "n1", ts=[now - 10], throttle=CAP, power_limit_w=500.0))
    drain_everything()
    assert set(ThrottleEvent.objects.values_list("expected", "severity")) == {(True, 1)}


def test_a_cap_that_an_agent_reports_is_expected_though_no_limit_is_read(
    source: Source, now: float
) -> None:
    for index, state in ((2, "applied"), (5, "refused")):
        LimitReport.objects.create(
            agent=source.agent, node=source.node, gpu_index=index, limit="r-118", state=state,
            kind="power_cap_w", at=timezone.now(), asked=500, received_at=timezone.now(),
            boot_id="b", seq=1,
        )  # fmt: skip
    source.push(make_batch("agent-1", "n1", ts=[now - 10], throttle=CAP))
    drain_everything()
    expected = ThrottleEvent.objects.filter(expected=True).values_list("gpu__index", flat=True)
    assert list(expected) == [2]


def test_a_brake_that_all_masks_miss_is_one_event(brakes: Brakes) -> None:
    brakes.push(0, 0, 4, 6, 5, 7)
    drain_everything()
    event = ThrottleEvent.objects.get()
    assert (event.gpu.index, event.cause_token) == (3, "hw_power_brake")
    assert event.throttled_s == pytest.approx(22)


def test_a_batch_that_is_sent_again_counts_once(brakes: Brakes) -> None:
    brakes.push(0, 5, 5)
    drain_everything()
    brakes.seq -= 1
    brakes.start, brakes.total_s = brakes.start - 30, 1000.0
    brakes.push(0, 5, 5)
    drain_everything()
    assert ThrottleEvent.objects.get().throttled_s == pytest.approx(10)


def test_progress_is_written_once_a_minute_and_at_the_end(brakes: Brakes) -> None:
    work = Writer(0)
    told = []
    for held in (0, 5, 5, 5, 5, 5, 5, 5, 5, 0, 0, 0):
        brakes.push(held)
        work.step()
        told += list(ThrottleEvent.objects.values_list("throttled_s", flat=True))
    # When it opens, a minute later, and when it has closed.
    assert sorted(set(told)) == pytest.approx([5, 35, 40])
    assert ThrottleEvent.objects.get().closed_at is not None


# --- From one writer to the next ------------------------------------------------------------------


@pytest.mark.parametrize("process", ["the same", "another"])
def test_a_drain_leaves_its_memory_to_the_next(
    brakes: Brakes, rebuilds: list[int], monkeypatch: pytest.MonkeyPatch, process: str
) -> None:
    monkeypatch.setattr(tasks, "_IDLE_S", 0.01)
    monkeypatch.setattr(tasks, "_LINGER_S", (0.01, 0.02))
    for held in (0, 5, 5):
        brakes.push(held)
        tasks.write(0)
        if process == "another":
            kill()
    assert len(rebuilds) == 1
    # What was not written down yet is there, too.
    assert ThrottleEvent.objects.get().throttled_s == pytest.approx(5)
    (record,) = memory.recall(0).tracker.open_events()
    assert record["throttled_s"] == pytest.approx(10)


@pytest.mark.parametrize("lost", ["the process", "redis", "both"])
def test_after_a_crash_events_go_on_as_if_nothing_had_been(
    brakes: Brakes, rebuilds: list[int], lost: str
) -> None:
    work = Writer(0)
    brakes.push(0, 5, 5)
    work.step()
    work.keep()
    brakes.push(5, 5)  # not yet written down
    work.step()
    if lost != "redis":
        brakes.push(0.0)  # nor is this, and it is quiet
        work.step()
    kill()
    if lost != "the process":
        stream.connection().flushall()
    work = Writer(0)
    assert rebuilds == [1, 1]
    brakes.push(5, 0, 0, 0)
    work.step()
    event = ThrottleEvent.objects.get()
    assert event.closed_at is not None
    assert event.throttled_s == pytest.approx(25)
    quiet_s = 0 if lost == "redis" else 10
    assert event.observed_s == pytest.approx(50 + quiet_s)


def test_what_an_aborted_round_did_is_forgotten(
    brakes: Brakes, rebuilds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Writer(0)
    brakes.push(0, 5)
    work.step()
    work.keep()
    brakes.push(5)
    with monkeypatch.context() as patch:
        patch.setattr("telemetry.sql.note_agents", _fail)
        with pytest.raises(RuntimeError):
            work.step()
    # The next writer goes on from what was kept: the round was not counted.
    assert TrackedRounds.objects.get().rounds == 1
    work = Writer(0)
    assert len(rebuilds) == 1
    work.step()
    brakes.push(0, 0, 0)
    work.step()
    assert ThrottleEvent.objects.get().throttled_s == pytest.approx(10)


def _fail(*args: Any) -> None:
    raise RuntimeError("the server is away")


def test_memory_that_is_older_than_the_events_is_not_used(
    brakes: Brakes, rebuilds: list[int]
) -> None:
    work = Writer(0)
    brakes.push(0, 5)
    work.step()
    work.keep()
    brakes.push(0, 0, 0)
    work.step()  # closed, and killed before it could keep anything
    kill()
    work = Writer(0)
    assert len(rebuilds) == 2
    brakes.push(5)
    work.step()
    assert list(ThrottleEvent.objects.values_list("throttled_s", flat=True)) == pytest.approx(
        [5, 5]
    )


def test_a_gpu_that_left_takes_its_open_event_along(brakes: Brakes) -> None:
    work = Writer(0)
    brakes.push(0, 5)
    work.step()
    brakes.push(5)
    brakes.source.node.gpus.get(index=3).delete()
    snapshot.invalidate()
    work.step()
    assert not ThrottleEvent.objects.exists()


def test_two_open_events_of_one_cause_cannot_be(brakes: Brakes) -> None:
    work = Writer(0)
    brakes.push(0, 5)
    work.step()
    other = Writer(0)  # as after a shard was given up and taken up again, with another memory
    other._throttling._memory.tracker = Tracker()
    brakes.push(5, 5)
    other.step()
    assert ThrottleEvent.objects.count() == 1


# --- Memory errors --------------------------------------------------------------------------------


def test_memory_errors_become_events(source: Source, now: float) -> None:
    for i, ecc in enumerate((4, 4, 7, None, 9, 1)):
        ts = now - 600 + 10 * i
        source.push(make_batch("agent-1", "n1", i + 1, ts=[ts], ecc=[ecc, *[0] * 7]))
        drain_everything() if i != 3 else None
    found = EccEvent.objects.order_by("at").values_list("at", "since", "count", "total")
    seconds = [
        (at.timestamp() - now, since.timestamp() - now, n, all_) for at, since, n, all_ in found
    ]
    # The last one: the driver was loaded again, and the counter begins anew.
    assert seconds == [(-580, -590, 3, 7), (-560, -580, 2, 9), (-550, -560, 1, 1)]


def test_times_come_back_to_the_microsecond(source: Source) -> None:
    ts = time.time() - 50 + 0.123_456_7
    source.push(make_batch("agent-1", "n1", ts=[ts], throttle=HOT))
    drain_everything()
    opened = ThrottleEvent.objects.first()
    assert opened is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT ts FROM gpu_sample")
        ((sampled,),) = cursor.fetchall()
    assert opened.opened_at == sampled
    (us, *_) = memory._rebuild(0).tracker.open_events()["opened_us"].tolist()
    assert datetime.fromtimestamp(us / 1e6, UTC) == sampled
