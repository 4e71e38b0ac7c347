"""InfiniBand and RoCE ports, from sysfs."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headroom.agent.devices import Block, Row
from headroom.agent.rates import WRAP_32, WRAP_64, CounterRate

__all__ = ["InfinibandPoller"]

logger = logging.getLogger(__name__)

#: What `port_xmit_data` and `port_rcv_data` count: words of 4 bytes.
_WORD = 4
#: Counters of 32 bits that stay where they are when they are full, instead of starting anew.
_FULL_32 = 2**32 - 1
#: A port may seem to carry a little more than its rate, since two reads are never quite as far
#: apart as their times.
_SLACK = 1.25

#: Events that mean that the link, or one of its ends, lost or damaged something.
_ERRORS = {
    "counters": (
        "symbol_error",
        "link_error_recovery",
        "link_downed",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "port_rcv_errors",
        "port_rcv_remote_physical_errors",
        "port_rcv_constraint_errors",
        "port_xmit_constraint_errors",
        "port_xmit_discards",
    ),
    "hw_counters": ("out_of_sequence",),
}
#: Events after which this end sends again.
_RETRANSMITS = {
    "hw_counters": (
        "packet_seq_err",
        "implied_nak_seq_err",
        "local_ack_timeout_err",
        "roce_adp_retrans",
    ),
}


class InfinibandPoller:
    """All ports of all adapters below ``root``.

    A port is a link: ``links`` maps ``DEVICE/PORT`` to its name in the inventory, and one that is
    not in it is named ``NODE/DEVICE/PORT``.
    """

    block: Block = "links"

    def __init__(
        self,
        node: str,
        links: Mapping[str, str],
        *,
        root: Path = Path("/sys/class/infiniband"),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._links = links
        self._root = root
        self._monotonic = monotonic
        self._ports: dict[str, _Port] = {}

    def poll(self) -> Iterable[Row]:
        """Yield one row for each port that has counters."""
        for folder in sorted(self._root.glob("*/ports/*")):
            place = f"{folder.parts[-3]}/{folder.name}"
            if place not in self._ports:
                name = self._links.get(place, f"{self._node}/{place}")
                self._ports[place] = _Port(folder, name, self._monotonic)
            row = self._ports[place].read()
            if any(value is not None for name, value in row.items() if name != "link"):
                yield row

    def close(self) -> None:
        """Nothing is held open."""


class _Port:
    def __init__(self, folder: Path, link: str, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._link = link
        self._monotonic = monotonic
        self._state = ""
        self._tx = CounterRate()
        self._rx = CounterRate()
        self._retransmits = CounterRate()

    def read(self) -> Row:
        self._watch_state()
        most_words = self._most_bytes_per_s() / _WORD
        return {
            "link": self._link,
            "tx_bytes_per_s": self._bytes_per_s(self._tx, "port_xmit_data", most_words),
            "rx_bytes_per_s": self._bytes_per_s(self._rx, "port_rcv_data", most_words),
            "retransmits_per_s": self._retransmits_per_s(),
            "errors": self._sum(_ERRORS),
        }

    def _bytes_per_s(self, rate: CounterRate, name: str, most_words: float) -> float | None:
        words = _number(self._folder / "counters" / name)
        if words is None or words == _FULL_32:
            return None
        words_per_s = rate.update(
            self._monotonic(), words, wraps_at=(WRAP_32, WRAP_64), most_per_s=most_words
        )
        return None if words_per_s is None else words_per_s * _WORD

    def _retransmits_per_s(self) -> float | None:
        count = self._sum(_RETRANSMITS)
        return None if count is None else self._retransmits.update(self._monotonic(), count)

    def _sum(self, groups: Mapping[str, tuple[str, ...]]) -> int | None:
        """Return the sum of those counters that exist."""
        found = [
            count
            for group, names in groups.items()
            for name in names
            if (count := _number(self._folder / group / name)) is not None
        ]
        return sum(found) if found else None

    def _most_bytes_per_s(self) -> float:
        """Return the highest rate of the port: 400 Gb/s where it does not tell."""
        told = re.match(r"([\d.]+) Gb/sec", _text(self._folder / "rate"))
        gigabits = float(told[1]) if told else 0.0
        return (gigabits or 400.0) * 1e9 / 8 * _SLACK

    def _watch_state(self) -> None:
        state = _text(self._folder / "state").partition(": ")[2]
        if state == self._state:
            return
        if self._state or state != "ACTIVE":
            level = logging.INFO if state == "ACTIVE" else logging.WARNING
            logger.log(level, "link state", extra={"link": self._link, "state": state or "gone"})
        self._state = state


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """Return the value of a counter, or None: not every adapter has every counter."""
    text = _text(path)
    return int(text) if text.isdecimal() else None
