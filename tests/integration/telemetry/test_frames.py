"""Frames that are made of samples are those that were live."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from fleet import snapshot
from fleet.models import Meter
from headroom.contracts import (
    GpuColumns,
    HostColumns,
    LinkColumns,
    MeterColumns,
    NodeReport,
    TelemetryBatch,
)
from telemetry import frame, stream
from telemetry.live_frame import DTYPES, RecordedFrame
from telemetry.store.columns import Window
from telemetry.timeline.frames import Recording
from telemetry.timeline.tiers import Tier
from tests.builders.fleet import SmallFleet, push, small_fleet

pytestmark = pytest.mark.django_db

STEP_S, STEPS = 10.0, 12
WANTED = {
    "gpu": {"power_w", "temp_c", "throttle", "job_id"},
    "host": {"power_w"},
    "link": {"tx_bytes_per_s", "latency_s"},
    "meter": {"power_w", "temp_c"},
}


@pytest.fixture
def fleet(clean_stores: None) -> SmallFleet:
    made = small_fleet(sites=("oslo",), rows=("A",), racks_per_row=2, gpus_per_node=2)
    for name, rack in zip(("m1", "m2"), made.racks.values(), strict=True):
        Meter.objects.create(name=name, kind="power", rack=rack)
    return made


def readings(fleet: SmallFleet, rng: np.random.Generator, at: float) -> TelemetryBatch:
    """Return what is read at ``at``: each thing only now and then, the last node never."""

    def now_and_then(names: list[Any]) -> list[Any]:
        return [name for name in names if rng.random() < 0.4]

    def values(count: int) -> list[Any]:
        return [None if rng.random() < 0.2 else float(np.float32(v)) for v in rng.random(count)]

    nodes = []
    for name in now_and_then(list(fleet.nodes)[:-1]):
        gpus = now_and_then([0, 1])
        count = len(gpus)
        nodes.append(
            NodeReport(
                node=name,
                gpus=GpuColumns(
                    ts=[at] * count, gpu=gpus, power_w=values(count), temp_c=values(count),
                    throttle=[int(each) for each in rng.integers(0, 99, count)],
                ),
                host=HostColumns(ts=[at], power_w=values(1)),
            )
        )  # fmt: skip
    links, meters = now_and_then(list(fleet.links)), now_and_then(["m1", "m2"])
    return TelemetryBatch(
        agent=fleet.agent.name, boot_id="boot-1", seq=fleet._next(), oldest_seq=1, sent_at=at,
        nodes=nodes,
        links=LinkColumns(
            ts=[at] * len(links), link=links, tx_bytes_per_s=values(len(links)),
            rx_bytes_per_s=[0.0] * len(links), latency_s=values(len(links)),
        ),
        meters=MeterColumns(ts=[at] * len(meters), meter=meters, power_w=values(len(meters))),
    )  # fmt: skip


def recording_of(fleet: Any) -> Recording:
    ids = {
        "gpu": fleet.gpus.ids,
        "host": fleet.nodes.ids,
        "link": fleet.links.ids,
        "meter": fleet.meters.ids,
    }
    return Recording(ids, WANTED, tier=Tier.RAW, step_s=STEP_S)


def test_recorded_frames_are_those_that_were_live(fleet: SmallFleet) -> None:
    rng = np.random.default_rng(7)
    start = float(int(time.time() - 600.0))
    arrays = snapshot.fresh()
    live = []
    for step in range(STEPS):
        for offset in (2.0, 7.5):  # of two within a step the later one counts
            at = start + STEP_S * step + offset
            push(fleet.agent, readings(fleet, rng, at), received_at=at)
        live.append(frame.read())
    recording, cut = recording_of(arrays), start + 70.0
    pieces: list[RecordedFrame] = []
    for window in (Window(start, cut), Window(cut, start + STEP_S * STEPS)):
        times, piece = recording.next(window)
        np.testing.assert_array_equal(times, np.arange(window.start, window.end, STEP_S) + STEP_S)
        pieces.append(piece)
    for kind, names in WANTED.items():
        ids = recording._ids[kind]
        for name in ("ts", *sorted(names)):
            found = np.concatenate([piece.fields(kind, ids, name)[name] for piece in pieces])
            then = np.stack([each.fields(kind, ids, name)[name] for each in live])
            np.testing.assert_allclose(found, then, rtol=0, atol=1e-6, err_msg=f"{kind} {name}")


def test_what_was_never_heard_reads_nothing_though_later_ids_were_heard(
    fleet: SmallFleet,
) -> None:
    first, *_, last = fleet.nodes
    fleet.report(only=[last])
    ids = np.array(sorted(fleet.nodes[first].gpus.values_list("pk", flat=True)))
    found = frame.read().fields("gpu", ids, "ts", "power_w", "temp_limit_c")
    assert found["ts"].tolist() == [0.0, 0.0]
    assert np.isnan(found["power_w"]).all()
    assert np.isnan(found["temp_limit_c"]).all()


def test_bytes_that_redis_fills_in_are_no_readings(fleet: SmallFleet) -> None:
    fleet.report()
    (key,) = stream.connection().keys("frame:*:gpu")
    assert isinstance(key, bytes)
    stream.connection().delete(key)
    stream.connection().setrange(key, 100 * DTYPES["gpu"].itemsize, bytes(DTYPES["gpu"].itemsize))
    stream.connection().incr(key.decode().replace(":gpu", ":version"))
    found = frame.read().gpu
    assert len(found) == 101
    assert not found["ts"].any()
    assert np.isnan(found["power_w"]).all()
    assert np.isnan(found["power_limit_w"]).all()


def test_it_has_the_things_that_are_asked_for_and_no_field_that_was_not_read(
    fleet: SmallFleet,
) -> None:
    now = float(int(time.time()))
    fleet.report(at=now - 15.0)
    arrays = snapshot.fresh()
    _, found = recording_of(arrays).next(Window(now - 20.0, now))
    some = np.append(arrays.gpus.ids[[2, 0]], 10**6)
    power_w = found.fields("gpu", some, "power_w")["power_w"]
    np.testing.assert_array_equal(power_w, np.tile([400.0, 400.0, np.nan], (2, 1)))
    with pytest.raises(KeyError):
        found.fields("gpu", arrays.gpus.ids, "sm_mhz")
