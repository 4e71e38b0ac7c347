from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics import checkpoint
from physics.checkpoint import (
    ADAM_MIXED_BYTES_PER_PARAMETER,
    OPTIMIZERS,
    PRECISIONS,
    async_checkpoint,
    sharded_write,
    size_bytes,
    state_bytes_per_parameter,
    training_state,
    wan_transfer,
    write_s,
)
from physics.errors import ImpossibleArgumentError
from tests.unit.physics.law_checks import check_arrays, check_refusals

sizes = st.floats(1e6, 1e15)
bandwidths = st.floats(1e6, 1e13)
scales = st.floats(1e-3, 1e3)

GOOD: dict[str, dict[str, Any]] = {
    "async_checkpoint": {
        "checkpoint_bytes": 2.45e12,
        "gpus": 8192,
        "copy_bytes_per_s": 50e9,
        "bandwidth_bytes_per_s": 100e9,
    },
    "sharded_write": {
        "checkpoint_bytes": 2.45e12,
        "nodes": 100,
        "node_bytes_per_s": 5e9,
        "storage_bytes_per_s": 1e12,
    },
    "size_bytes": {"parameters": 70e9, "bytes_per_parameter": 14.0, "stored_share": 0.8},
    "state_bytes_per_parameter": {
        "weights_bytes_per_parameter": 2.0,
        "master_bytes_per_parameter": 4.0,
        "first_moment_bytes_per_parameter": 4.0,
        "second_moment_bytes_per_parameter": 4.0,
        "optimizer_bytes_per_parameter": 0.5,
        "gradients_bytes_per_parameter": 2.0,
    },
    "wan_transfer": {
        "checkpoint_bytes": 2.45e12,
        "link_bytes_per_s": 12.5e9,
        "rtt_s": 0.08,
        "link_share": 0.5,
        "window_bytes": 256e6,
        "streams": 1,
    },
    "write_s": {"checkpoint_bytes": 98e9, "bandwidth_bytes_per_s": 100e9},
}


def test_the_checks_below_cover_every_law() -> None:
    laws = {name for name in checkpoint.__all__ if name[0].islower()}
    assert laws == GOOD.keys() | {"training_state"}


@pytest.mark.parametrize("name", GOOD)
def test_an_impossible_argument_is_named(name: str) -> None:
    check_refusals(getattr(checkpoint, name), GOOD[name])


@pytest.mark.parametrize("name", GOOD)
def test_arrays_give_what_their_elements_give_one_by_one(name: str) -> None:
    check_arrays(getattr(checkpoint, name), GOOD[name])


# State for each parameter


@pytest.mark.parametrize(
    ("optimizer", "precision", "total"),
    [
        ("adam", "bf16-mixed", 14.0),
        ("adamw", "fp16-mixed", 14.0),
        ("adamw", "fp32", 12.0),
        ("adamw", "bf16", 6.0),
        ("adamw", "fp8-mixed", 13.0),
        ("adam-8bit", "bf16-mixed", 8.0),
        ("adamw-8bit", "fp32", 6.0),
        ("adafactor", "bf16-mixed", 6.0),
        ("lion", "bf16-mixed", 10.0),
        ("sgd", "fp32", 4.0),
        ("sgd-momentum", "fp32", 8.0),
    ],
)
def test_the_state_of_an_optimizer_at_a_precision(
    optimizer: Any, precision: Any, total: float
) -> None:
    state = training_state(optimizer=optimizer, precision=precision)
    assert state.total_bytes_per_parameter == total


def test_adam_in_mixed_precision_keeps_weights_master_and_two_moments() -> None:
    state = training_state()
    assert state.weights_bytes_per_parameter == 2.0
    assert state.master_bytes_per_parameter == 4.0
    assert state.moments_bytes_per_parameter == 8.0
    assert state.gradients_bytes_per_parameter == 0.0
    assert state.total_bytes_per_parameter == ADAM_MIXED_BYTES_PER_PARAMETER


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_gradients_count_only_when_asked_for(optimizer: Any, precision: Any) -> None:
    stored = training_state(optimizer=optimizer, precision=precision)
    held = training_state(optimizer=optimizer, precision=precision, with_gradients=True)
    added = held.total_bytes_per_parameter - stored.total_bytes_per_parameter
    assert added == PRECISIONS[precision].gradients_bytes_per_parameter > 0.0


@pytest.mark.parametrize("argument", ["optimizer", "precision"])
def test_an_unknown_kind_is_refused_with_those_that_there_are(argument: str) -> None:
    arguments: dict[str, Any] = {argument: "adm"}
    with pytest.raises(ImpossibleArgumentError, match="must be one of") as refused:
        training_state(**arguments)
    assert refused.value.argument == argument


def test_the_parts_of_a_state_add_up() -> None:
    parts = {
        "weights_bytes_per_parameter": 2.0,
        "master_bytes_per_parameter": 4.0,
        "first_moment_bytes_per_parameter": 4.0,
        "second_moment_bytes_per_parameter": 4.0,
    }
    assert state_bytes_per_parameter(**parts) == 14.0
    in_one = state_bytes_per_parameter(
        weights_bytes_per_parameter=2.0, optimizer_bytes_per_parameter=12.0
    )
    assert in_one == 14.0
    assert state_bytes_per_parameter(**parts, gradients_bytes_per_parameter=2.0) == 16.0


# Size and time to write


@pytest.mark.parametrize(
    ("parameters", "gigabytes", "seconds"),
    [(7e9, 98.0, 0.98), (70e9, 980.0, 9.8), (175e9, 2450.0, 24.5), (1e12, 14_000.0, 140.0)],
)
def test_a_checkpoint_of_adam_has_14_bytes_for_each_parameter(
    parameters: float, gigabytes: float, seconds: float
) -> None:
    size = size_bytes(parameters=parameters)
    assert size == pytest.approx(gigabytes * 1e9)
    written_s = write_s(checkpoint_bytes=size, bandwidth_bytes_per_s=100e9)
    assert written_s == pytest.approx(seconds)


def test_compression_leaves_a_share() -> None:
    assert size_bytes(parameters=1e9, bytes_per_parameter=10.0, stored_share=0.7) == 7e9


@given(size=sizes, bandwidth=bandwidths, scale=scales)
def test_bytes_and_bandwidth_in_another_unit_give_the_same_time(
    size: float, bandwidth: float, scale: float
) -> None:
    plain_s = write_s(checkpoint_bytes=size, bandwidth_bytes_per_s=bandwidth)
    scaled_s = write_s(checkpoint_bytes=size * scale, bandwidth_bytes_per_s=bandwidth * scale)
    assert scaled_s == pytest.approx(plain_s, rel=1e-12)


@given(size=sizes, nodes=st.integers(1, 20_000), node=bandwidths, storage=bandwidths)
def test_more_nodes_never_write_slower_and_never_beat_the_storage(
    size: float, nodes: int, node: float, storage: float
) -> None:
    write = sharded_write(
        checkpoint_bytes=size,
        nodes=np.array([nodes, nodes + 1.0]),
        node_bytes_per_s=node,
        storage_bytes_per_s=storage,
    )
    assert write.write_s[1] <= write.write_s[0]
    assert np.all(write.write_s >= size / storage * (1 - 1e-12))
    assert write.storage_binds[0] == (storage < nodes * node)


def test_storage_binds_once_the_nodes_exceed_it() -> None:
    write = sharded_write(
        checkpoint_bytes=2.45e12,
        nodes=np.array([1.0, 200.0, 1000.0]),
        node_bytes_per_s=5e9,
        storage_bytes_per_s=1e12,
    )
    assert write.write_s == pytest.approx([490.0, 2.45, 2.45])
    assert write.storage_binds.tolist() == [False, False, True]


# To another site


def test_a_transfer_takes_its_share_of_the_link_and_one_round_trip() -> None:
    transfer = wan_transfer(
        checkpoint_bytes=2.45e12, link_bytes_per_s=12.5e9, rtt_s=0.08, link_share=0.5
    )
    assert transfer.rate_bytes_per_s == 6.25e9
    assert transfer.transfer_s == pytest.approx(392.08)
    assert transfer.in_flight_bytes == 5e8
    assert transfer.window_binds is False


def test_a_small_window_holds_a_long_link_back_until_there_are_enough_streams() -> None:
    transfer = wan_transfer(
        checkpoint_bytes=2.45e12,
        link_bytes_per_s=12.5e9,
        rtt_s=0.08,
        window_bytes=64e6,
        streams=np.array([1.0, 8.0, 16.0]),
    )
    assert transfer.rate_bytes_per_s == pytest.approx([0.8e9, 6.4e9, 12.5e9])
    assert transfer.window_binds.tolist() == [True, True, False]


def test_without_distance_no_window_is_too_small() -> None:
    transfer = wan_transfer(checkpoint_bytes=1e9, link_bytes_per_s=1e9, rtt_s=0.0, window_bytes=1.0)
    assert (transfer.transfer_s, transfer.window_binds) == (1.0, False)


@given(size=sizes, link=bandwidths, rtt_s=st.floats(0.0, 1.0), window=st.floats(1e3, 1e10))
def test_a_window_and_a_larger_distance_only_slow_a_transfer(
    size: float, link: float, rtt_s: float, window: float
) -> None:
    free = wan_transfer(checkpoint_bytes=size, link_bytes_per_s=link, rtt_s=rtt_s)
    held = wan_transfer(
        checkpoint_bytes=size,
        link_bytes_per_s=link,
        rtt_s=np.array([rtt_s, rtt_s + 0.05]),
        window_bytes=window,
    )
    assert free.transfer_s <= held.transfer_s[0] * (1 + 1e-12)
    assert held.transfer_s[0] < held.transfer_s[1]


# In the background


def test_training_waits_only_for_the_copy_to_the_hosts() -> None:
    saved = async_checkpoint(
        checkpoint_bytes=2.45e12,
        gpus=1024,
        copy_bytes_per_s=50e9,
        bandwidth_bytes_per_s=100e9,
    )
    assert saved.stall_s == pytest.approx(0.04785, abs=5e-6)
    assert saved.write_s == 24.5
    assert saved.shortest_interval_s == saved.stall_s + saved.write_s


@given(size=sizes, gpus=st.integers(1, 100_000), copy=bandwidths, bandwidth=bandwidths)
def test_the_writer_is_done_before_the_next_copy_may_begin(
    size: float, gpus: int, copy: float, bandwidth: float
) -> None:
    saved = async_checkpoint(
        checkpoint_bytes=size, gpus=gpus, copy_bytes_per_s=copy, bandwidth_bytes_per_s=bandwidth
    )
    assert saved.stall_s == pytest.approx(size / gpus / copy, rel=1e-12)
    assert saved.write_s <= saved.shortest_interval_s
    assert saved.write_s == write_s(checkpoint_bytes=size, bandwidth_bytes_per_s=bandwidth)


def test_the_tables_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        OPTIMIZERS["mine"] = OPTIMIZERS["sgd"]  # type: ignore[index]
