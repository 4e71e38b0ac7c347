from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.sources import kernel_log
from headroom.agent.sources.kernel_log import (
    KernelLog,
    LogLine,
    XidLine,
    parse_kmsg,
    parse_line,
    parse_xid,
    pci_address,
)
from headroom.contracts import XidColumns
from tests.data_sets import data_set
from tests.unit.headroom.builders import Clock

XID = "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting"
SXID = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted"
GPUS = {(0, 0x9B, 0): 4}


class Kmsg:
    """What ``/dev/kmsg`` is to a reader: a record with each read, and never a wait."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        theirs.setblocking(False)
        self.fd = theirs.detach()

    def log(self, at_us: int, text: str, priority: int = 4) -> None:
        self._ours.send(f"{priority},17,{at_us},-;{text}\n SUBSYSTEM=pci\n".encode())

    def close(self) -> None:
        self._ours.close()


@pytest.fixture
def kmsg() -> Iterator[Kmsg]:
    made = Kmsg()
    yield made
    made.close()


@pytest.fixture
def log(kmsg: Kmsg, clock: Clock) -> Iterator[KernelLog]:
    made = KernelLog(kmsg.fd, lambda: GPUS, clock=clock)
    yield made
    made.close()


def read(log: KernelLog) -> list[Row]:
    return list(log.read())


def lines(name: str) -> list[str]:
    return (data_set("kernel-xid-logs") / name).read_text().splitlines()


def test_the_xids_of_a_real_dmesg_are_found() -> None:
    found = [parse_line(each) for each in lines("dmesg-xid-119.log")]
    xids = [(line.at_s, xid) for line in found if (xid := parse_xid(line.text))]
    assert {xid for _, xid in xids} == {XidLine(119, "0000:9b:00", is_switch=False)}
    assert len(xids) == 5
    first = datetime.fromtimestamp(xids[0][0]).astimezone()
    assert first.strftime("%Y-%m-%d %H:%M:%S") == "2025-02-23 16:24:18"


@pytest.mark.parametrize("name", ["kmsg-nvswitch.log", "kmsg-peermem.log"])
def test_real_records_of_the_kernel_log_are_read_and_hold_no_xid(name: str) -> None:
    records = lines(name)
    found = [parse_kmsg(record) for record in records]
    assert all(found)
    assert found[-1] is not None
    assert found[-1].text == records[-1].partition(";")[2]
    assert not [line for line in found if line and parse_xid(line.text)]


@pytest.mark.parametrize(
    ("stamp", "at_s"),
    [
        ("[Sun Feb 23 16:24:18 2025] ", 1740327858),
        ("2025-02-23T16:24:18,123456+00:00 ", 1740327858.123456),
        ("2025-02-23T17:24:18+0100 gpu-7 kernel: ", 1740327858),
        ("2025-02-23T16:24:18.123456Z gpu-7 kernel: [  512.25] ", 1740327858.123456),
        ("Sun 2025-02-23 16:24:18 UTC gpu-7 kernel: ", 1740327858),
        ("<4>2025-02-23T16:24:18,1+00:00 ", 1740327858.1),
        ("kern  :warn  : [Sun Feb 23 16:24:18 2025] ", 1740327858),
        ("kern  :err   : 2025-02-23T16:24:18,5+00:00 ", 1740327858.5),
        ("1740327858.123456 gpu-7 kernel: ", 1740327858.123456),
        ("[ 1234.567890] ", 1234.56789),
        ("<4>[ 1234.567890] ", 1234.56789),
        ("[ 1234.567890 <    0.000011>] ", 1234.56789),
        ("[ 1234.567890] gpu-7 kernel: ", 1234.56789),
        ("[  +1.500000] ", 101.5),
        ("[<    1.500000>] ", 101.5),
    ],
)
def test_every_stamp_that_dmesg_and_journald_write_is_read(
    stamp: str, at_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = parse_line(stamp + XID, before_s=100.0)
    assert found.at_s == pytest.approx(at_s)
    assert found.text == XID


@pytest.mark.parametrize("stamp", ["%b %e %H:%M:%S h kernel: ", "%b %e %H:%M:%S.25 h kernel: "])
def test_a_stamp_without_a_year_is_of_the_last_twelve_months(stamp: str) -> None:
    at = datetime.now().astimezone().replace(microsecond=0) - timedelta(days=60)
    found = parse_line(at.strftime(stamp) + XID)
    assert found.text == XID
    assert found.at_s == pytest.approx(at.timestamp(), abs=0.5)
    minute = parse_line(at.strftime("[%b%e %H:%M] ") + XID)
    assert minute == LogLine(at.replace(second=0).timestamp(), XID)


def test_a_line_without_a_stamp_is_from_now(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "log"
    file.touch()
    fd = os.open(file, os.O_RDONLY)
    log = KernelLog(fd, lambda: GPUS, is_text=True, clock=clock)
    file.write_text(f"{XID}\n2025-02-30T99:00:00 h kernel: {XID}\n")
    assert [(row["xid"], row["text"]) for row in read(log)] == [(119, XID), (119, XID)]
    log.close()


def test_each_line_of_one_second_is_a_row(tmp_path: Path, clock: Clock) -> None:
    file = tmp_path / "log"
    file.touch()
    log = KernelLog(os.open(file, os.O_RDONLY), lambda: GPUS, is_text=True, clock=clock)
    line = f"2025-02-23T16:24:18,123456+00:00 {XID}\n"
    file.write_text(17 * line)
    rows = read(log)
    assert len({row["ts"] for row in rows}) == 17
    assert {row["text"] for row in rows} == {XID}
    assert float(rows[-1]["ts"] or 0) == pytest.approx(clock.now, abs=1e-3)
    log.close()


def test_an_sxid_is_of_a_switch() -> None:
    assert parse_xid(SXID) == XidLine(12028, "0000:05:00.0", is_switch=True)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        "NVRM: Xid (PCI:0000:9b:00): not a number",
        "usb 1-1: Xid (PCI:0000:9b:00): 79",
        "",
    ],
)
def test_what_tells_of_no_xid_is_passed_over(text: str) -> None:
    assert parse_xid(text) is None


@given(st.text(max_size=200))
def test_no_line_is_too_odd(text: str) -> None:
    parse_kmsg(text)
    parse_line(text)
    parse_xid(text)
    pci_address(text)


@pytest.mark.parametrize(
    "text", ["0000:9b:00", "00000000:9B:00.0", "0000:9b:00.0", "9b:00.0", "9b:00"]
)
def test_a_pci_address_may_be_written_in_many_ways(text: str) -> None:
    assert pci_address(text) == (0, 0x9B, 0)


def test_a_line_becomes_a_row_of_its_gpu(kmsg: Kmsg, log: KernelLog, clock: Clock) -> None:
    kmsg.log(5_000_000, "usb 1-1: new device")
    kmsg.log(5_500_000, XID)
    assert read(log) == [{"ts": clock.now, "xid": 119, "gpu": 4, "pci": "0000:9b:00", "text": XID}]
    assert read(log) == []


def test_lines_of_one_reading_keep_their_distance(kmsg: Kmsg, log: KernelLog, clock: Clock) -> None:
    for at_us in (1_000_000, 1_250_000, 1_500_000):
        kmsg.log(at_us, XID)
    assert [row["ts"] for row in read(log)] == [clock.now - 0.5, clock.now - 0.25, clock.now]


def test_a_gpu_that_is_not_known_and_a_switch_have_no_index(kmsg: Kmsg, log: KernelLog) -> None:
    kmsg.log(1, XID.replace("9b", "3d"))
    kmsg.log(2, SXID)
    rows = read(log)
    assert [(row["gpu"], row["xid"]) for row in rows] == [(None, 119), (None, 12028)]


def test_the_rows_fit_the_contract_however_long_the_line(kmsg: Kmsg, log: KernelLog) -> None:
    kmsg.log(1, XID + "\0" + 1000 * "x")
    kmsg.log(2, SXID)
    buffer = ColumnBuffer(XidColumns)
    for row in read(log):
        buffer.append(1.0, row)
    block = buffer.take()
    assert block is not None
    assert block.text is not None
    assert (block.gpu, [len(text) for text in block.text]) == ([4, None], [500, len(SXID)])
    assert buffer.rejected == 0


def test_a_flood_is_read_in_pieces(
    kmsg: Kmsg, log: KernelLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "_MOST_RECORDS", 3)
    for at_us in range(5):
        kmsg.log(at_us, XID)
    assert [len(read(log)) for _ in range(3)] == [3, 2, 0]


def test_lost_records_are_counted_and_the_rest_is_read(
    kmsg: Kmsg, log: KernelLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    kmsg.log(1, XID)
    real, answers = os.read, iter([OSError(errno.EPIPE, "Broken pipe")])

    def read_with_a_gap(fd: int, size: int) -> bytes:
        for answer in answers:
            raise answer
        return real(fd, size)

    monkeypatch.setattr(os, "read", read_with_a_gap)
    assert len(read(log)) == 1
    assert (log.errors, log.last_error) == (1, "kernel log: records were lost")


def test_a_log_as_text_is_read_from_its_end_by_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "dmesg"
    old, *new = lines("dmesg-xid-119.log")[2:4]
    file.write_text(old + "\n")
    log = KernelLog.open(file, lambda: GPUS)
    assert read(log) == []
    with file.open("a") as out:
        out.write(old + "\n" + old[:40])
        out.flush()
        assert [row["xid"] for row in read(log)] == [119]
        out.write(old[40:] + "\n" + "\n".join(new))
    assert [row["gpu"] for row in read(log)] == [4]
    log.close()


def test_a_pipe_may_be_read_before_anybody_writes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    log = KernelLog.open(pipe, lambda: GPUS)
    assert read(log) == []
    writer = os.open(pipe, os.O_WRONLY)
    assert read(log) == []
    os.write(writer, (lines("dmesg-xid-119.log")[2] + "\n").encode())
    assert len(read(log)) == 1
    os.close(writer)
    log.close()


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK), reason="may not read the kernel log")
def test_the_log_of_this_kernel_is_read_from_now_on() -> None:
    log = KernelLog.open(Path("/dev/kmsg"), dict)
    read(log)
    assert (read(log), log.errors) == ([], 0)
    log.close()
