"""Ethernet interfaces, from sysfs, and TCP retransmissions, from procfs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headroom.agent.devices import Block, Row
from headroom.agent.rates import WRAP_32, WRAP_64, CounterRate
from headroom.agent.sources.periodic import SourceError
from headroom.traffic import TrafficClass, reading_of

__all__ = ["EthernetPoller", "SentBytes"]

#: An interface may seem to carry a little more than its speed, since two reads are never quite as
#: far apart as their times.
_SLACK = 1.25
#: Returns how many bytes of each class an interface has sent, as far as it is counted.
SentBytes = Callable[[str], Mapping[TrafficClass, int]]
#: Not the dropped ones: those count what nobody here wanted, too.
_ERRORS = ("rx_errors", "tx_errors")


class EthernetPoller:
    """The interfaces that ``links`` maps to names of links in the inventory.

    The kernel counts what TCP sends again for the machine as a whole: it stands in the row of the
    interface through which the default route goes.
    """

    block: Block = "links"

    def __init__(
        self,
        links: Mapping[str, str],
        *,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        monotonic: Callable[[], float] = time.monotonic,
        sent_by_class: SentBytes = lambda _: {},
    ) -> None:
        self._proc = proc
        self._sent_by_class = sent_by_class
        self._monotonic = monotonic
        self._interfaces = {
            name: _Interface(sys / "class" / "net" / name, link, monotonic)
            for name, link in links.items()
        }
        self._retransmits = CounterRate()

    def poll(self) -> Iterable[Row]:
        """Yield one row for each configured interface that exists; raise when one is missing."""
        missing = []
        retransmits_per_s = self._retransmits_per_s()
        route = self._default_interface()
        for name, interface in self._interfaces.items():
            row = interface.read()
            if row is None:
                missing.append(name)
            else:
                row |= interface.rates_of(self._sent_by_class(name))
                yield row | ({"retransmits_per_s": retransmits_per_s} if name == route else {})
        if missing:
            raise SourceError(f"no such interface: {', '.join(missing)}")

    def close(self) -> None:
        """Nothing is held open."""

    def _retransmits_per_s(self) -> float | None:
        """Return how many segments TCP sends again each second."""
        names, values = (
            line.split()
            for line in (self._proc / "net" / "snmp").read_text().splitlines()
            if line.startswith("Tcp:")
        )
        counts = dict(zip(names, values, strict=True))
        return self._retransmits.update(self._monotonic(), int(counts["RetransSegs"]))

    def _default_interface(self) -> str:
        """Return the interface of the IPv4 default route of the least metric, or ""."""
        lines = (self._proc / "net" / "route").read_text().splitlines()[1:]
        routes = [line.split() for line in lines]
        default = [r for r in routes if r[1] == "00000000" and r[7] == "00000000"]
        return min(default, key=lambda r: int(r[6]))[0] if default else ""


class _Interface:
    def __init__(self, folder: Path, link: str, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._link = link
        self._monotonic = monotonic
        self._tx = CounterRate()
        self._rx = CounterRate()
        self._sent = {each: CounterRate() for each in TrafficClass}

    def rates_of(self, sent: Mapping[TrafficClass, int]) -> dict[str, float | None]:
        """Return the rates of classes, bytes per second. None: not counted, or not for long."""
        return {
            reading_of(each): self._sent[each].update(self._monotonic(), count)
            for each, count in sent.items()
        }

    def read(self) -> dict[str, float | str | None] | None:
        if not self._folder.exists():
            return None
        most = self._most_bytes_per_s()
        wraps = (WRAP_32, WRAP_64) if most else ()
        rates = {
            field: rate.update(
                self._monotonic(), self._count(name), wraps_at=wraps, most_per_s=most or 1e15
            )
            for field, rate, name in (
                ("tx_bytes_per_s", self._tx, "tx_bytes"),
                ("rx_bytes_per_s", self._rx, "rx_bytes"),
            )
        }
        return {"link": self._link, "errors": sum(map(self._count, _ERRORS)), **rates}

    def _count(self, name: str) -> int:
        return int((self._folder / "statistics" / name).read_text())

    def _most_bytes_per_s(self) -> float:
        """Return the speed of the interface; 0 where it does not tell, as virtual ones do."""
        try:
            megabits = int((self._folder / "speed").read_text())
        except (OSError, ValueError):
            return 0.0
        return max(0, megabits) * 1e6 / 8 * _SLACK
