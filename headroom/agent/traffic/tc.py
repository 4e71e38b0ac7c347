"""The interface to ``tc`` of iproute2: what is on an interface, and changing what is ours."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from headroom.agent.traffic.queues import HANDLE, Matches, Queue, built, changed
from headroom.errors import HeadroomError

__all__ = ["Standing", "Tc", "TcError"]

#: Packages put it where not every user's PATH looks.
_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"
_TIMEOUT_S = 5.0
_ROOT = re.compile(r"^qdisc (\S+) ([0-9a-f]+:) (?:dev \S+ )?root\b", re.MULTILINE)
_CLASS = re.compile(
    rf"^class htb {HANDLE}([0-9a-f]+) .*?rate (\S+) ceil (\S+) .*\n\s*Sent (\d+) bytes",
    re.MULTILINE,
)
_UNITS = {"bit": 1, "Kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}
_REFUSALS = ("Operation not permitted", "Specified qdisc kind is unknown", "classifier not found")


class TcError(HeadroomError):
    """Queues could not be read or set. ``is_refusal``: nothing was changed, and it never will."""

    def __init__(self, message: str, *, is_refusal: bool = False) -> None:
        super().__init__(message)
        self.is_refusal = is_refusal


@dataclass(frozen=True)
class Standing:
    """One queue as the kernel tells of it: rates in bit/s as far as it writes them, bytes sent."""

    rate: float
    ceil: float
    sent_bytes: int


class Tc:
    """``tc`` on this machine. All methods raise :class:`TcError`."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def find(cls) -> Tc:
        """Return the ``tc`` of this machine. Raises :class:`TcError` where there is none."""
        path = shutil.which("tc") or shutil.which("tc", path=_PATH)
        if path is None:
            raise TcError("there is no tc: install iproute2", is_refusal=True)
        return cls(path)

    def is_ours(self, device: str) -> bool:
        """Say whether the queues on an interface are those that we make."""
        return self._root(device) == ("htb", HANDLE)

    def set(self, device: str, tree: tuple[Queue, ...], matches: Matches) -> None:
        """Bring an interface to ``tree``: made where there is nothing, changed where it is ours.

        What somebody else has set is left as it is, and refused. Half of a tree is never left.
        """
        kind, handle = self._root(device)
        if (kind, handle) == ("htb", HANDLE):
            lines = list(changed(device, tree))
        elif handle != "0:":
            raise TcError(
                f"{device} has queues of somebody else ({kind} {handle}), which are left alone",
                is_refusal=True,
            )
        else:
            lines = list(built(device, tree, matches))
        try:
            self._do("-batch", "-", said="\n".join(lines) + "\n")
        except TcError:
            if self.is_ours(device):
                self.remove(device)
            raise

    def remove(self, device: str) -> None:
        """Remove our queues: the kernel puts its own in their place."""
        self._do("qdisc", "del", "dev", device, "root", "handle", HANDLE)

    def standing(self, device: str) -> Mapping[int, Standing]:
        """Return our queues on an interface by their minor numbers; empty: there are none."""
        told = self._do("-s", "class", "show", "dev", device)
        return {
            int(minor, 16): Standing(_bits(rate), _bits(ceil), int(sent))
            for minor, rate, ceil, sent in _CLASS.findall(told)
        }

    def _root(self, device: str) -> tuple[str, str]:
        """Return kind and handle of the queues on an interface; "0:" is the kernel's own choice."""
        found = _ROOT.search(self._do("qdisc", "show", "dev", device))
        return (found[1], found[2]) if found else ("none", "0:")

    def _do(self, *words: str, said: str = "") -> str:
        try:
            done = subprocess.run(  # noqa: S603 - our own words, and names of interfaces
                [self.path, *words],
                input=said,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise TcError(f"tc: {exc}") from exc
        if done.returncode:
            told = " ".join(done.stderr.split())[:300]
            raise TcError(f"tc: {told}", is_refusal=any(each in told for each in _REFUSALS))
        return done.stdout


def _bits(told: str) -> float:
    """Return a rate as ``tc`` writes it, bit/s."""
    number, unit = re.fullmatch(r"([\d.]+)(\D+)", told).groups()  # type: ignore[union-attr]
    return float(number) * _UNITS[unit]
