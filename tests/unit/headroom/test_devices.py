from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent import devices
from headroom.agent.devices import ColumnBuffer, Row, close_all
from headroom.contracts import (
    GpuColumns,
    HostColumns,
    LinkColumns,
    NodeReport,
    TelemetryBatch,
    XidColumns,
    decode_batch,
    encode_batch,
)


def test_rows_become_columns_with_null_for_what_is_missing() -> None:
    buffer = ColumnBuffer(GpuColumns)
    buffer.append(1.0, {"gpu": 0, "power_w": 300.0})
    buffer.append(1.0, {"gpu": 1, "temp_c": 50})

    block = buffer.take()

    assert block == GpuColumns(
        ts=[1.0, 1.0], gpu=[0, 1], power_w=[300.0, None], temp_c=[None, 50.0]
    )
    assert buffer.take() is None


def test_a_field_that_no_row_has_is_left_out() -> None:
    buffer = ColumnBuffer(GpuColumns)
    buffer.append(1.0, {"gpu": 0, "power_w": None})
    block = buffer.take()
    assert block is not None
    assert block.power_w is None


def test_mad_values_become_null_and_are_counted() -> None:
    buffer = ColumnBuffer(HostColumns)
    buffer.append(1.0, {"cpu_util": math.nan, "mem_used": -5, "psi_io": 101.0, "psi_cpu": 100.0})
    block = buffer.take()
    assert block == HostColumns(ts=[1.0], psi_cpu=[100.0])
    assert buffer.rejected == 3


def test_a_row_without_what_names_its_thing_is_left_out_and_counted() -> None:
    buffer = ColumnBuffer(LinkColumns)
    buffer.append(1.0, {"link": "a", "errors": 1})
    for nameless in ({}, {"link": None}, {"link": ""}, {"link": 7}):
        buffer.append(2.0, {"errors": 2, **nameless})
    assert buffer.take() == LinkColumns(ts=[1.0], link=["a"], errors=[1])
    assert buffer.rejected > 0
    assert buffer.take() is None


def test_a_gpu_beyond_all_gpus_costs_its_row_and_not_the_batch() -> None:
    buffer = ColumnBuffer(GpuColumns)
    buffer.append(1.0, {"gpu": 300, "power_w": 1.0})
    buffer.append(1.0, {"gpu": 1, "power_w": 2.0})
    assert buffer.take() == GpuColumns(ts=[1.0], gpu=[1], power_w=[2.0])


def test_texts_are_cut_to_what_the_contract_takes() -> None:
    buffer = ColumnBuffer(XidColumns)
    buffer.append(1.0, {"xid": 79, "text": "a\0b" + 600 * "x", "pci": 80 * "0"})
    buffer.append(2.0, {"xid": 80})
    block = buffer.take()
    assert block is not None
    assert block.text is not None
    assert block.pci is not None
    assert (block.text[0][:3], len(block.text[0]), block.text[1]) == ("abx", 500, "")
    assert block.pci == [50 * "0", None]


@pytest.mark.parametrize("value", [2**63 - 1, 2**63])
def test_the_largest_counter_is_taken_and_one_more_is_not(value: int) -> None:
    buffer = ColumnBuffer(LinkColumns)
    buffer.append(1.0, {"link": "a", "errors": value})
    block = buffer.take()
    assert block is not None
    assert block.errors == ([value] if value < 2**63 else None)


def test_whole_numbers_may_come_as_floats() -> None:
    buffer = ColumnBuffer(GpuColumns)
    buffer.append(1.0, {"gpu": 3.0, "mem_used": 1024.0})
    assert buffer.take() == GpuColumns(ts=[1.0], gpu=[3], mem_used=[1024])


@given(
    rows=st.lists(
        st.dictionaries(
            st.sampled_from(["power_w", "temp_c", "util", "mem_used", "fan", "throttle"]),
            st.none() | st.integers(-(2**70), 2**70),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_a_source_says_the_contract_takes_the_batch(
    rows: list[dict[str, int | None]],
) -> None:
    buffer = ColumnBuffer(GpuColumns)
    for row in rows:
        buffer.append(1.0, {"gpu": 0, **row})
    batch = TelemetryBatch(
        agent="a",
        boot_id="b",
        seq=1,
        oldest_seq=1,
        sent_at=1.0,
        nodes=[NodeReport(node="n", gpus=buffer.take())],
    )
    decoded = decode_batch(encode_batch(batch), json=False)
    assert decoded.nodes[0].gpus is not None
    assert len(decoded.nodes[0].gpus) == len(rows)


class Closing:
    """A source that takes its time to close, or never does."""

    block: Literal["host"] = "host"
    errors = 0
    last_error = ""

    def __init__(self, closes: bool = True) -> None:
        self.closed = threading.Event()
        self.gate = threading.Event()
        if closes:
            self.gate.set()

    def read(self) -> Iterable[Row]:
        return []

    def close(self) -> None:
        self.gate.wait(20)
        self.closed.set()


def test_one_source_that_hangs_does_not_keep_the_others_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "_CLOSE_S", 0.2)
    sources = [Closing(), Closing(closes=False), Closing()]
    close_all(sources)
    assert [source.closed.is_set() for source in sources] == [True, False, True]
    sources[1].gate.set()
