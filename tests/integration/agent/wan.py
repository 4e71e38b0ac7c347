"""A line between two sites that is as slow as a WAN, is used by others, and may be cut.

The other end is a network of its own: what is started there is reached over this line alone. It
wants root, and the ``ip`` and ``tc`` of iproute2.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from types import TracebackType

import pytest

_DATAGRAM_BYTES = 1_250
_EVERY_S = 0.05
#: Nobody listens there: what arrives is thrown away.
_DISCARD_PORT = 9


class Wan:
    """One line of ``bits_per_s`` each way. ``interface``: its end here, ``far``: the other's IP."""

    def __init__(self, bits_per_s: int) -> None:
        if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
            pytest.skip("a line between two networks wants root, and iproute2")
        self.bits_per_s = bits_per_s
        self.interface = self._network = "headroom-wan"
        self.near, self.far = "198.18.77.1", "198.18.77.2"
        self._over = threading.Event()
        self._others: threading.Thread | None = None

    def __enter__(self) -> Wan:
        there = f"{self.interface}-f"
        # Of one that was killed there may be one left.
        _do("ip", "link", "delete", self.interface, check=False)
        _do("ip", "netns", "delete", self._network, check=False)
        _do("ip", "netns", "add", self._network)
        _do("ip", "link", "add", self.interface, "type", "veth", "peer", "name", there)
        _do("ip", "link", "set", there, "netns", self._network)
        _do("ip", "address", "add", f"{self.near}/30", "dev", self.interface)
        _do(*self.there("ip", "address", "add", f"{self.far}/30", "dev", there))
        for inside, name in (((), self.interface), (self.there(), there), (self.there(), "lo")):
            _do(*inside, "ip", "link", "set", name, "up")
        for inside, name in (((), self.interface), (self.there(), there)):
            rate = f"{self.bits_per_s}bit"
            _do(
                *inside, "tc", "qdisc", "add", "dev", name, "root", "tbf", "rate", rate, "burst",
                "32kb", "latency", "400ms",
            )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._others is not None:
            self._others.join()
        _do("ip", "netns", "delete", self._network)

    def there(self, *argv: str) -> tuple[str, ...]:
        """Return the command that does ``argv`` at the other end."""
        return ("ip", "netns", "exec", self._network, *argv)

    def use(self, share: float) -> None:
        """Have others use a share of the line towards the other end, until the end."""
        bits_per_s = share * self.bits_per_s
        self._others = threading.Thread(target=self._send, args=(bits_per_s,), daemon=True)
        self._others.start()

    def _send(self, bits_per_s: float) -> None:
        due = 0.0
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            while not self._over.wait(_EVERY_S):
                due = min(due, bits_per_s) + bits_per_s * _EVERY_S
                while due >= 8 * _DATAGRAM_BYTES:
                    due -= 8 * _DATAGRAM_BYTES
                    try:
                        out.sendto(b"\0" * _DATAGRAM_BYTES, (self.far, _DISCARD_PORT))
                    except OSError:
                        due = 0.0  # it is cut

    def cut(self) -> None:
        _do("ip", "link", "set", self.interface, "down")

    def mend(self) -> None:
        _do("ip", "link", "set", self.interface, "up")

    def sent_bytes(self) -> int:
        """Return what has gone over it to the other end, as its interface counts it."""
        counted = Path("/sys/class/net") / self.interface / "statistics" / "tx_bytes"
        return int(counted.read_text())


def _do(*argv: str, check: bool = True) -> None:
    subprocess.run(argv, check=check, timeout=60, capture_output=True)
