"""Steps of the clock: what goes by time in Redis and in the live frame goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
import redis

from telemetry import set_back, stream
from telemetry.frame import FrameWriter
from telemetry.ingest import rate
from telemetry.live_frame import is_fresh
from telemetry.samples import GPU, Rows, as_array

HOURS_S = 3 * 3600


SHARE = rate.share_of(nodes=1)


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    client = stream.connection()
    client.flushdb()
    yield client
    client.flushdb()


def test_an_agent_may_send_after_the_clock_of_redis_was_set_back(client: redis.Redis) -> None:
    rows_per_s, bucket = SHARE
    stream.take_rows(1, bucket, SHARE)
    with pytest.raises(stream.TooFast):
        stream.take_rows(1, bucket, SHARE)
    # Written three hours from now, as the clock had it then; full again a moment later.
    now = time.time() + HOURS_S
    client.set(rate.bucket_key(1), f"{now + 0.01:.6f} {now:.6f}")
    stream.take_rows(1, rows_per_s // 100, SHARE)


def test_what_was_owed_is_owed_after_a_step_too(client: redis.Redis) -> None:
    rows_per_s, bucket = SHARE
    now, owed_s = time.time() + HOURS_S, bucket / rows_per_s
    client.set(rate.bucket_key(1), f"{now + owed_s:.6f} {now:.6f}")
    with pytest.raises(stream.TooFast) as refused:
        stream.take_rows(1, rows_per_s, SHARE)
    assert refused.value.wait_s == pytest.approx(1.0, abs=0.5)


def test_a_bucket_of_an_earlier_release_is_read(client: redis.Redis) -> None:
    client.set(rate.bucket_key(1), f"{time.time() + 1:.6f}")
    stream.take_rows(1, 1, SHARE)


def test_the_sign_of_a_drain_does_not_outlive_a_step_back(client: redis.Redis) -> None:
    client.xadd("telemetry:0", {"m": b"x"})
    assert stream.ask_for_writer(0)
    assert not stream.ask_for_writer(0)
    # What is left of a sign of three seconds once the clock is set back.
    client.expire("telemetry:0:writing", HOURS_S)
    assert stream.ask_for_writer(0)


def test_how_long_the_first_message_waits_is_unknown_when_it_is_of_a_time_to_come(
    client: redis.Redis,
) -> None:
    assert stream.waiting(client) == (0, None)
    client.xadd("telemetry:0", {"m": b"x"}, id=f"{int((time.time() - 60) * 1000)}-0")
    backlog, lag_s = stream.waiting(client)
    assert backlog == 1
    assert lag_s == pytest.approx(60, abs=5)
    client.delete("telemetry:0")
    client.xadd("telemetry:0", {"m": b"x"}, id=f"{int((time.time() + HOURS_S) * 1000)}-0")
    assert stream.waiting(client) == (1, None)


def _row(ts: float, power_w: float) -> Rows:
    columns = {
        c.name: as_array(c.dtype, [{"ts": ts, "gpu_id": 3, "power_w": power_w}.get(c.name)])
        for c in GPU.columns
    }
    return Rows(GPU, columns)


@pytest.mark.django_db
def test_readings_go_on_when_the_clock_was_set_back(client: redis.Redis) -> None:
    writer, now = FrameWriter(0), time.time()
    writer.update("gpu", _row(now + HOURS_S, 700.0), received_at=now + HOURS_S)
    writer.update("gpu", _row(now, 300.0), received_at=now)
    assert writer.ts("gpu", np.array([3]))[0] == pytest.approx(now)
    # And an older one does not take the place of a newer one.
    writer.update("gpu", _row(now - 5, 200.0), received_at=now)
    assert writer.ts("gpu", np.array([3]))[0] == pytest.approx(now)


def test_what_was_read_before_the_clock_was_set_back_is_taken(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set_back.max_future_s() == 30.0
    wall = time.time
    with monkeypatch.context() as step:
        step.setattr(time, "time", lambda: wall() - HOURS_S)
        assert set_back.max_future_s() == pytest.approx(30.0 + HOURS_S, abs=1)
    # A process that began after the step knows it by the one that looks after the clock.
    set_back.note(-HOURS_S)
    assert set_back.max_future_s() == 30.0 + HOURS_S
    set_back.note(HOURS_S)
    assert set_back.max_future_s() == 30.0


def test_a_reading_of_a_time_to_come_is_stale() -> None:
    now = time.time()
    ts = np.array([now - 10, now - 40, now + 5, now + HOURS_S])
    assert is_fresh(ts, now, 30.0).tolist() == [True, False, True, False]
