"""Readings of the machine itself: CPU, memory, network, pressure stalls, CPU package power."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import psutil

from headroom.agent.devices import Row, Value
from headroom.agent.rates import CounterRate

__all__ = ["HostSource"]

logger = logging.getLogger(__name__)

#: The kernel counts CPU time in ticks of 10 ms: a share of fewer than ten says nothing.
_CPU_SPAN_S = 0.1
#: No CPU package draws more, µW: a counter that seems to say so was reset, and did not wrap.
_MOST_PACKAGE_UW = 5e9


class HostSource:
    """The node itself. A machine without any GPU is a useful node, too."""

    block: Literal["gpus", "host"] = "host"

    def __init__(
        self,
        *,
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.errors = 0
        self.last_error = ""
        self._proc = proc
        self._sys = sys
        self._monotonic = monotonic
        self._rx = CounterRate()
        self._tx = CounterRate()
        self._has_said = False
        self._rapl = {domain: CounterRate() for domain in _rapl_packages(sys)}
        # The first call has nothing to compare with and says 0 %, which would be a lie.
        psutil.cpu_percent(interval=None)
        self._cpu_read_at = monotonic()

    def read(self) -> Iterable[Row]:
        """Return one row. A part that fails is null and counted."""
        row: dict[str, Value] = {}
        for part in (self._cpu, self._memory, self._network, self._pressure, self._power):
            try:
                row |= part()
            except (OSError, psutil.Error, ValueError, IndexError) as exc:
                self.errors += 1
                self.last_error = f"host{part.__name__}: {exc}"
        return [row]

    def close(self) -> None:
        """Nothing is held open."""

    def _cpu(self) -> dict[str, Value]:
        now = self._monotonic()
        if now - self._cpu_read_at < _CPU_SPAN_S:
            return {}
        self._cpu_read_at = now
        return {"cpu_util": psutil.cpu_percent(interval=None)}

    def _memory(self) -> dict[str, Value]:
        memory = psutil.virtual_memory()
        return {"mem_used": memory.total - memory.available, "mem_total": memory.total}

    def _network(self) -> dict[str, Value]:
        counters = self._interfaces(psutil.net_io_counters(pernic=True))
        now = self._monotonic()
        return {
            "net_rx_bytes_per_s": self._rx.update(now, sum(c.bytes_recv for c in counters)),
            "net_tx_bytes_per_s": self._tx.update(now, sum(c.bytes_sent for c in counters)),
        }

    def _interfaces(self, by_name: dict[str, Any]) -> list[Any]:
        """Return the counters of real network cards, or where there are none, of all but loopback.

        Bridges and virtual pairs pass on what a real card counts already.
        """
        net = self._sys / "class" / "net"
        real = [count for name, count in by_name.items() if (net / name / "device").exists()]
        return real or [count for name, count in by_name.items() if name != "lo"]

    def _pressure(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for field, name in (("psi_cpu", "cpu"), ("psi_mem", "memory"), ("psi_io", "io")):
            try:
                text = (self._proc / "pressure" / name).read_text()
            except OSError:  # a kernel without PSI, or one that has it turned off
                continue
            found[field] = _some_avg10(text)
        return found

    def _power(self) -> dict[str, Value]:
        """Return the power of all CPU packages by RAPL, W. Often only root may read it."""
        watts = []
        for domain, rate in self._rapl.items():
            try:
                energy_uj = int((domain / "energy_uj").read_text())
                range_uj = int((domain / "max_energy_range_uj").read_text())
            except OSError as exc:
                self._say_once(exc)
                return {}
            rate_uw = rate.update(
                self._monotonic(), energy_uj, wraps_at=range_uj, most_per_s=_MOST_PACKAGE_UW
            )
            watts.append(None if rate_uw is None else rate_uw / 1e6)
        known = [w for w in watts if w is not None]
        return {"cpu_power_w": sum(known)} if known and len(known) == len(watts) else {}

    def _say_once(self, exc: OSError) -> None:
        if not self._has_said:
            logger.info("no CPU power", extra={"cause": exc})
        self._has_said = True


def _rapl_packages(sys: Path) -> list[Path]:
    """Return the RAPL domains of whole CPU packages; those inside them would count twice."""
    found = []
    for domain in sorted((sys / "class" / "powercap").glob("intel-rapl:*")):
        try:
            name = (domain / "name").read_text().strip()
        except OSError:
            continue
        if name.startswith("package"):
            found.append(domain)
    return found


def _some_avg10(text: str) -> float:
    """Return ``avg10`` of the ``some`` line of a pressure file, percent."""
    fields = dict(part.split("=") for part in text.splitlines()[0].split()[1:])
    return float(fields["avg10"])
