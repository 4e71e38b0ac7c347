from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.sources.infiniband import InfinibandPoller
from headroom.contracts import LinkColumns
from tests.unit.headroom.builders import Clock


def poll(poller: InfinibandPoller) -> dict[object, Row]:
    return {row["link"]: row for row in poller.poll()}


def write(root: Path, port: str, counter: str, value: object) -> None:
    device, number = port.split("/")
    (root / device / "ports" / number / counter).write_text(f"{value}\n")


def read(root: Path, port: str, counter: str) -> int:
    device, number = port.split("/")
    return int((root / device / "ports" / number / counter).read_text())


def advance(root: Path, port: str, counter: str, by: int) -> None:
    write(root, port, counter, read(root, port, counter) + by)


@pytest.fixture
def poller(infiniband: Path, clock: Clock) -> InfinibandPoller:
    return InfinibandPoller(
        "oslo-a01-n1", {"mlx5_0/1": "oslo/A01/rail-0"}, root=infiniband, monotonic=clock
    )


def test_every_port_of_a_real_node_is_a_link(poller: InfinibandPoller) -> None:
    rows = poll(poller)
    assert len(rows) == 9
    assert "oslo/A01/rail-0" in rows
    assert "oslo-a01-n1/mlx5_1/1" in rows
    # 15 overruns and 14 receive errors each; one of them went down 255 times besides.
    errors = [rows[name]["errors"] for name in ("oslo/A01/rail-0", "oslo-a01-n1/mlx5_1/1")]
    assert errors == [29, 29 + 255]
    assert rows["oslo/A01/rail-0"]["tx_bytes_per_s"] is None  # one look tells no rate


def test_data_counters_count_words_of_four_bytes(
    poller: InfinibandPoller, infiniband: Path, clock: Clock
) -> None:
    poll(poller)
    advance(infiniband, "mlx5_0/1", "counters/port_xmit_data", 1000)
    advance(infiniband, "mlx5_0/1", "counters/port_rcv_data", 250)
    clock.now += 5
    row = poll(poller)["oslo/A01/rail-0"]
    assert (row["tx_bytes_per_s"], row["rx_bytes_per_s"]) == (800, 200)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_counter_at_its_end_goes_on(
    poller: InfinibandPoller, infiniband: Path, clock: Clock, bits: int
) -> None:
    write(infiniband, "mlx5_0/1", "counters/port_xmit_data", 2**bits - 1000)
    poll(poller)
    write(infiniband, "mlx5_0/1", "counters/port_xmit_data", 1000)
    clock.now += 1
    assert poll(poller)["oslo/A01/rail-0"]["tx_bytes_per_s"] == pytest.approx(8000, rel=0.3)


def test_a_reset_adapter_carried_nothing_that_can_be_told(
    poller: InfinibandPoller, infiniband: Path, clock: Clock
) -> None:
    write(infiniband, "mlx5_0/1", "counters/port_xmit_data", 10**15)
    poll(poller)
    write(infiniband, "mlx5_0/1", "counters/port_xmit_data", 5)
    clock.now += 1
    assert poll(poller)["oslo/A01/rail-0"]["tx_bytes_per_s"] is None


def test_a_counter_that_is_full_says_nothing(
    poller: InfinibandPoller, infiniband: Path, clock: Clock
) -> None:
    write(infiniband, "mlx5_0/1", "counters/port_xmit_data", 2**32 - 1)
    for _ in range(2):
        assert poll(poller)["oslo/A01/rail-0"]["tx_bytes_per_s"] is None
        clock.now += 1


def test_more_than_the_port_can_carry_is_a_glitch(
    poller: InfinibandPoller, infiniband: Path, clock: Clock
) -> None:
    poll(poller)
    advance(infiniband, "mlx5_0/1", "counters/port_xmit_data", 10**12)  # 32 Tbit/s on 400 Gbit/s
    clock.now += 1
    assert poll(poller)["oslo/A01/rail-0"]["tx_bytes_per_s"] is None


def test_what_roce_sends_again_is_a_rate_and_what_it_misses_an_error(
    poller: InfinibandPoller, infiniband: Path, clock: Clock
) -> None:
    before = poll(poller)["oslo/A01/rail-0"]
    advance(infiniband, "mlx5_0/1", "hw_counters/packet_seq_err", 6)
    advance(infiniband, "mlx5_0/1", "hw_counters/local_ack_timeout_err", 4)
    advance(infiniband, "mlx5_0/1", "hw_counters/out_of_sequence", 3)
    clock.now += 5
    row = poll(poller)["oslo/A01/rail-0"]
    assert row["retransmits_per_s"] == 2
    assert isinstance(before["errors"], int)
    assert row["errors"] == before["errors"] + 3


def test_an_adapter_without_some_counters_gives_the_others(
    poller: InfinibandPoller, infiniband: Path
) -> None:
    port = infiniband / "mlx5_0" / "ports" / "1"
    for counter in (port / "hw_counters").iterdir():
        counter.unlink()
    (port / "counters" / "port_xmit_data").unlink()
    row = poll(poller)["oslo/A01/rail-0"]
    assert (row["retransmits_per_s"], row["tx_bytes_per_s"]) == (None, None)
    assert row["errors"] is not None


def test_a_port_without_counters_is_no_link(infiniband: Path, clock: Clock) -> None:
    (infiniband / "virtual" / "ports" / "1").mkdir(parents=True)
    rows = poll(InfinibandPoller("n", {}, root=infiniband, monotonic=clock))
    assert "n/virtual/1" not in rows


def test_a_link_that_goes_down_is_in_the_log_once(
    poller: InfinibandPoller, infiniband: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        poll(poller)
        write(infiniband, "mlx5_0/1", "state", "1: DOWN")
        poll(poller)
        poll(poller)
        write(infiniband, "mlx5_0/1", "state", "4: ACTIVE")
        poll(poller)
    told = [(r.levelname, r.__dict__["state"]) for r in caplog.records]
    assert told == [("WARNING", "DOWN"), ("INFO", "ACTIVE")]


def test_the_rows_fit_the_contract(poller: InfinibandPoller, clock: Clock) -> None:
    buffer = ColumnBuffer(LinkColumns)
    for _ in range(2):
        for row in poller.poll():
            buffer.append(clock.now, row)
        clock.now += 1
    block = buffer.take()
    assert block is not None
    assert (len(block), buffer.rejected) == (18, 0)
