from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.devices import ColumnBuffer
from headroom.contracts import (
    GpuColumns,
    HostColumns,
    NodeReport,
    TelemetryBatch,
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
