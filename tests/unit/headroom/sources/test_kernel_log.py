from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.agent.devices import ColumnBuffer, Row
from headroom.agent.sources import kernel_log
from headroom.agent.sources.kernel_log import (
    KernelLog,
    XidLine,
    parse_dmesg,
    parse_kmsg,
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
    found = [line for each in lines("dmesg-xid-119.log") if (line := parse_dmesg(each))]
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
    parse_dmesg(text)
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
