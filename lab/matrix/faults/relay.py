"""Relays TCP connections between a command and its peers, with the trouble of a link.

In a room of its own (:mod:`lab.matrix.sandbox`) the wire has the trouble, packet by packet, and
the relay only leads out of the room. Elsewhere the relay has it, as a stream sees it: what is lost
comes later, after the time in which TCP would notice.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from lab.matrix.faults.links import Flow, Link

__all__ = ["Relay"]

#: As much is on its way at once: a window of TCP.
_PIECE_BYTES = 256 * 1024
_SEGMENT_BYTES = 1_448
#: After so long TCP sends again what was not acknowledged, s.
_RETRANSMIT_S = 0.2
_CONNECT_S = 10.0
_LOOK_S = 0.02


class Relay:
    """Takes connections at a listening socket and leads them to a host and port."""

    def __init__(
        self, listening: socket.socket, to: tuple[str, int], link: Link, *, has_trouble: bool
    ) -> None:
        """``has_trouble``: the relay imposes the link's trouble, since no wire does."""
        self._listening = listening
        self._to = to
        self._link = link
        self._has_trouble = has_trouble
        self._over = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name=f"relay {link.name}", daemon=True).start()

    def close(self) -> None:
        """Stop relaying."""
        self._over.set()
        with contextlib.suppress(OSError):
            # It wakes up whoever accepts.
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for each in self._open:
                _shut(each)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        with near:
            try:
                far = socket.create_connection(self._to, timeout=_CONNECT_S)
            except OSError:
                return
            with far:
                far.settimeout(None)
                self._carry_both(near, far)

    def _carry_both(self, near: socket.socket, far: socket.socket) -> None:
        with self._lock:
            self._open |= {near, far}
        back = threading.Thread(target=self._carry, args=(far, near), daemon=True)
        back.start()
        self._carry(near, far)
        back.join()
        with self._lock:
            self._open -= {near, far}

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        """Relay one direction, until it ends or breaks."""
        flow = Flow()
        try:
            while piece := source.recv(_PIECE_BYTES):
                self._hold(flow, len(piece))
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            _shut(source)
            _shut(sink)

    def _hold(self, flow: Flow, size: int) -> None:
        if not self._has_trouble:
            return
        self._link.count(size, time.monotonic())
        while self._link.trouble.is_cut and not self._over.is_set():
            time.sleep(_LOOK_S)
        due_s = self._link.stream_due_s(
            flow, size, time.monotonic(), segment=_SEGMENT_BYTES, timeout_s=_RETRANSMIT_S
        )
        self._over.wait(max(0.0, due_s - time.monotonic()))


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
