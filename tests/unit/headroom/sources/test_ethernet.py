from __future__ import annotations

from pathlib import Path

import pytest

from headroom.agent.devices import Row
from headroom.agent.sources.ethernet import EthernetPoller
from headroom.agent.sources.periodic import SourceError
from tests.unit.headroom.builders import Clock

ROUTES = (
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth1\t00000000\t0102000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    "eth0\t00000000\t0102000A\t0003\t0\t0\t10\t00000000\t0\t0\t0\n"
    "eth1\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
)


class Machine:
    """The parts of sysfs and procfs that are read."""

    def __init__(self, root: Path) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        (self.proc / "net").mkdir(parents=True)
        (self.proc / "net" / "route").write_text(ROUTES)
        self.set_retransmits(0)
        self._counts: dict[tuple[str, str], int] = {}

    def set_retransmits(self, segments: int) -> None:
        text = f"Ip: Forwarding\nIp: 1\nTcp: OutSegs RetransSegs\nTcp: 999 {segments}\n"
        (self.proc / "net" / "snmp").write_text(text)

    def add(self, name: str, *, speed: str = "100000") -> None:
        statistics = self.sys / "class" / "net" / name / "statistics"
        statistics.mkdir(parents=True)
        for counter in ("tx_bytes", "rx_bytes", "tx_errors", "rx_errors", "rx_dropped"):
            (statistics / counter).write_text("0\n")
        (self.sys / "class" / "net" / name / "speed").write_text(f"{speed}\n")

    def set(self, name: str, counter: str, value: int) -> None:
        (self.sys / "class" / "net" / name / "statistics" / counter).write_text(f"{value}\n")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.add("eth0")
    made.add("eth1")
    return made


@pytest.fixture
def poller(machine: Machine, clock: Clock) -> EthernetPoller:
    links = {"eth0": "front", "eth1": "storage"}
    return EthernetPoller(links, proc=machine.proc, sys=machine.sys, monotonic=clock)


def poll(poller: EthernetPoller) -> dict[object, Row]:
    return {row["link"]: row for row in poller.poll()}


def test_bytes_become_rates_and_errors_stay_counts(
    poller: EthernetPoller, machine: Machine, clock: Clock
) -> None:
    poll(poller)
    machine.set("eth0", "tx_bytes", 5000)
    machine.set("eth0", "rx_bytes", 1000)
    machine.set("eth0", "rx_errors", 3)
    machine.set("eth0", "rx_dropped", 99)  # what nobody here listens to
    clock.now += 5
    row = poll(poller)["front"]
    assert (row["tx_bytes_per_s"], row["rx_bytes_per_s"], row["errors"]) == (1000, 200, 3)


def test_retransmits_stand_with_the_interface_of_the_default_route(
    poller: EthernetPoller, machine: Machine, clock: Clock
) -> None:
    poll(poller)
    machine.set_retransmits(10)
    clock.now += 5
    rows = poll(poller)
    assert rows["front"]["retransmits_per_s"] == 2
    assert "retransmits_per_s" not in rows["storage"]


def test_a_card_that_counts_in_32_bits_goes_on(
    poller: EthernetPoller, machine: Machine, clock: Clock
) -> None:
    machine.set("eth0", "tx_bytes", 2**32 - 500)
    poll(poller)
    machine.set("eth0", "tx_bytes", 500)
    clock.now += 1
    assert poll(poller)["front"]["tx_bytes_per_s"] == 1000


@pytest.mark.parametrize("speed", ["-1", "0", "unknown"])
def test_a_fall_on_an_interface_of_unknown_speed_is_a_reset(
    machine: Machine, clock: Clock, speed: str
) -> None:
    machine.add("veth0", speed=speed)
    machine.set("veth0", "tx_bytes", 2**32 - 500)
    poller = EthernetPoller({"veth0": "x"}, proc=machine.proc, sys=machine.sys, monotonic=clock)
    poll(poller)
    machine.set("veth0", "tx_bytes", 500)
    clock.now += 1
    assert poll(poller)["x"]["tx_bytes_per_s"] is None


def test_an_interface_that_is_not_there_is_told_and_the_others_are_read(
    machine: Machine, clock: Clock
) -> None:
    links = {"eth9": "gone", "eth0": "front"}
    poller = EthernetPoller(links, proc=machine.proc, sys=machine.sys, monotonic=clock)
    rows: list[Row] = []
    with pytest.raises(SourceError, match="eth9"):
        rows.extend(poller.poll())
    assert [row["link"] for row in rows] == ["front"]


def test_this_machine_can_be_read(clock: Clock) -> None:
    poller = EthernetPoller({"lo": "loop"}, monotonic=clock)
    poll(poller)
    clock.now += 1
    assert poll(poller)["loop"]["tx_bytes_per_s"] is not None
