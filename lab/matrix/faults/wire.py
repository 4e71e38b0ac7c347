"""The wire that a command's processes talk over, packet by packet: see :mod:`lab.matrix.sandbox`.

It holds the device of the command's network. When this process dies, the kernel removes the device.
"""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections.abc import Mapping

from lab.matrix.faults.links import SYNC, Flow, Link

__all__ = ["Wire"]

_MOST_BYTES = 65_536
_IPV4 = 4
_LOOK_S = 0.2


class Wire:
    """Carries packets of the device back to it, each over the link that its addresses say."""

    def __init__(
        self, device: int, links: Mapping[str, Link], addresses: Mapping[str, str]
    ) -> None:
        """``addresses`` has the address of each link but ``sync``, which is for all others."""
        self._device = device
        os.set_blocking(device, False)
        self._links = links
        self._by_address = {_packed(address): links[name] for name, address in addresses.items()}
        self._flows: dict[tuple[str, bytes], Flow] = {}
        self._due: list[tuple[float, int, bytes]] = []
        self._number = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop carrying, and remove the device."""
        self._over.set()
        self._thread.join()
        os.close(self._device)

    def _carry(self) -> None:
        while not self._over.is_set():
            ready, _, _ = select.select([self._device], [], [], self._wait_s())
            if ready:
                self._take()
            self._deliver()

    def _wait_s(self) -> float:
        if not self._due:
            return _LOOK_S
        return min(_LOOK_S, max(0.0, self._due[0][0] - time.monotonic()))

    def _take(self) -> None:
        """Read the packets sent, until there are no more or a delayed one is due."""
        while True:
            try:
                packet = os.read(self._device, _MOST_BYTES)
            except BlockingIOError:
                return
            now_s = time.monotonic()
            if packet[0] >> 4 == _IPV4:
                self._send(packet, now_s)
            if self._due and self._due[0][0] <= now_s:
                return

    def _send(self, packet: bytes, now_s: float) -> None:
        link = self._link_of(packet)
        link.count(len(packet), now_s)
        # The source and its port tell the two directions of a connection apart.
        flow = self._flows.setdefault((link.name, packet[12:16]), Flow())
        due_s = link.due_s(flow, len(packet), now_s)
        if due_s is None:
            return
        self._number += 1
        heapq.heappush(self._due, (due_s, self._number, packet))

    def _link_of(self, packet: bytes) -> Link:
        for address in (packet[12:16], packet[16:20]):
            if address in self._by_address:
                return self._by_address[address]
        return self._links[SYNC]

    def _deliver(self) -> None:
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            _, _, packet = heapq.heappop(self._due)
            try:
                os.write(self._device, packet)
            except OSError:
                # The host's queue is full: lost, as on any network.
                continue


def _packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))
