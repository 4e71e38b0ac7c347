"""Undoes shares of links once the agent is dead, or a lease is over that nobody has undone.

It runs as a process in a session of its own, with this file alone and nothing but the standard
library. The agent holds the other end of its standard input: the kernel closes that however the
agent ends. A line is ``INTERFACE SECONDS``: our queues there are to be gone by then
(``time.monotonic``), unless a later line says otherwise; 0: they are gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

HANDLE = "4864:"
_LOOK_S = 0.5
_TRIES = 20
_READY = b"ready\n"
#: What ``tc`` says where the queues are not ours, or the interface has gone.
_NOT_THERE = (b"Invalid handle", b"Cannot find", b"No such")


class Guard:
    """The guard, seen from the agent. One that dies is started anew, and told all."""

    def __init__(self, tc: str) -> None:
        """Start it. It watches when this returns. Raises ``OSError``."""
        self._tc = tc
        self._noted: dict[str, float] = {}
        self._process = self._started()

    def note(self, device: str, until_s: float) -> None:
        """Note until when our queues may be on an interface; 0: there are none. Raises OSError."""
        self._noted[device] = until_s
        try:
            self._say(device)
        except BrokenPipeError:
            self._process.wait()
            self._process = self._started()

    def dismiss(self) -> None:
        """End it: it first undoes what is left. May be called again."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.communicate()

    def _started(self) -> subprocess.Popen[bytes]:
        # What is noted already goes with it: whoever dies meanwhile has told it all.
        known = [f"{device} {until_s:.3f}" for device, until_s in self._noted.items()]
        process = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", "-S", __file__, self._tc, *known],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
        if process.stdout is None or process.stdout.readline() != _READY:
            raise OSError("the guard of shares did not start")
        return process

    def _say(self, device: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{device} {self._noted[device]:.3f}\n".encode())


def watch(tc: str, known: list[str]) -> None:
    """Undo what is over, and all once standard input is closed. ``known``: lines of before."""
    held = {device: float(told) for device, told in map(str.split, known)}
    rest, is_open = b"", True
    while is_open:
        if select.select([0], [], [], _LOOK_S)[0]:
            got = os.read(0, 65_536)
            is_open = bool(got)
            *lines, rest = (rest + got).split(b"\n")
            for line in lines:
                device, told = line.decode().split()
                held[device] = float(told)
        now = time.monotonic()
        for device, until_s in list(held.items()):
            if not until_s or (now >= until_s and _is_gone(tc, device)):
                del held[device]
    for device in held:
        for _ in range(_TRIES):
            if _is_gone(tc, device):
                break
            time.sleep(_LOOK_S)


def _is_gone(tc: str, device: str) -> bool:
    """Remove our queues from an interface, and no others: none but ours have the handle.

    Return whether none are left there.
    """
    words = [tc, "qdisc", "del", "dev", device, "root", "handle", HANDLE]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=10)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0 or any(each in done.stderr for each in _NOT_THERE)


def main() -> None:
    """Watch until standard input is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The agent may be dead already: then all the more.
    with contextlib.suppress(OSError):
        os.write(1, _READY)
    watch(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()
