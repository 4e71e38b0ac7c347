from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.host import HostSource
from headroom.contracts import HostColumns
from tests.unit.headroom.builders import Clock


def read(source: HostSource) -> Row:
    (row,) = source.read()
    return row


def make_rapl(sys: Path, number: str, name: str, energy_uj: int) -> Path:
    domain = sys / "class" / "powercap" / f"intel-rapl:{number}"
    domain.mkdir(parents=True)
    (domain / "name").write_text(name + "\n")
    (domain / "energy_uj").write_text(f"{energy_uj}\n")
    (domain / "max_energy_range_uj").write_text("1000000000\n")
    return domain


def test_this_machine_gives_a_row_that_fits_the_contract(clock: Clock) -> None:
    source = HostSource(monotonic=clock)
    buffer = ColumnBuffer(HostColumns)
    for _ in range(2):
        clock.now += 1
        buffer.append(clock.now, read(source))
    block = buffer.take()
    assert block is not None
    assert block.mem_total is not None
    assert block.mem_total[0]
    assert block.cpu_util is not None
    assert block.net_rx_bytes_per_s is not None
    assert (source.errors, buffer.rejected) == (0, 0)


def test_the_first_cpu_reading_waits_for_a_span_to_measure(clock: Clock) -> None:
    source = HostSource(monotonic=clock)
    assert "cpu_util" not in read(source)
    clock.now += 1
    assert "cpu_util" in read(source)


def test_real_cards_are_counted_and_what_they_carry_is_not_counted_twice(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "class" / "net" / "eth0" / "device").mkdir(parents=True)
    counts = {
        name: SimpleNamespace(bytes_recv=0, bytes_sent=0) for name in ("lo", "eth0", "docker0")
    }
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic: counts)
    source = HostSource(sys=tmp_path, monotonic=clock)
    assert read(source)["net_rx_bytes_per_s"] is None
    for count in counts.values():
        count.bytes_recv, count.bytes_sent = 1000, 500
    clock.now += 2
    row = read(source)
    assert (row["net_rx_bytes_per_s"], row["net_tx_bytes_per_s"]) == (500, 250)


def test_pressure_is_the_ten_second_share_of_some(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text(
        "some avg10=12.34 avg60=1.00 avg300=0.10 total=99\nfull avg10=0.00 avg60=0.00\n"
    )
    row = read(HostSource(proc=tmp_path, monotonic=clock))
    assert row["psi_cpu"] == 12.34
    assert "psi_io" not in row


def test_a_pressure_file_in_another_form_costs_only_itself(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("")
    source = HostSource(proc=tmp_path, monotonic=clock)
    assert read(source)["mem_total"]
    assert source.errors == 1


def test_cpu_power_is_that_of_the_packages_and_survives_the_wrap(
    tmp_path: Path, clock: Clock
) -> None:
    first = make_rapl(tmp_path, "0", "package-0", 999_000_000)
    second = make_rapl(tmp_path, "1", "package-1", 0)
    make_rapl(tmp_path, "0:0", "core", 0)
    source = HostSource(sys=tmp_path, monotonic=clock)
    assert "cpu_power_w" not in read(source)
    (first / "energy_uj").write_text("99000000\n")  # 1 J to the end, 99 J after it
    (second / "energy_uj").write_text("50000000\n")
    clock.now += 2
    assert read(source)["cpu_power_w"] == pytest.approx(75)


def test_a_counter_that_was_reset_is_not_taken_for_a_package_of_many_kilowatts(
    tmp_path: Path, clock: Clock
) -> None:
    domain = make_rapl(tmp_path, "0", "package-0", 500_000_000_000)
    (domain / "max_energy_range_uj").write_text("999999999999\n")
    source = HostSource(sys=tmp_path, monotonic=clock)
    read(source)
    (domain / "energy_uj").write_text("1000\n")  # half of the range away: 250 kW for two seconds
    clock.now += 2
    assert "cpu_power_w" not in read(source)


def test_cpu_power_that_may_not_be_read_is_left_out_and_told_once(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    domain = make_rapl(tmp_path, "0", "package-0", 0)
    (domain / "energy_uj").unlink()
    source = HostSource(sys=tmp_path, monotonic=clock)
    with caplog.at_level(logging.INFO):
        assert "cpu_power_w" not in read(source)
        assert "cpu_power_w" not in read(source)
    assert [record.message for record in caplog.records] == ["no CPU power"]
    assert source.errors == 0
