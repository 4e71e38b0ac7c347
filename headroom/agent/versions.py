"""The versions of what runs on this node: of driver, firmware and what jobs tell of themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from headroom.contracts import VersionReport

__all__ = ["Versions"]

#: They are told when they change, and so often besides, s: a batch may be lost with its disk.
_EVERY_S = 600.0
_MOST_CHARACTERS = 300
_FABRIC_DRIVER = "module/mlx5_core/version"
_NIC_FIRMWARE = "class/infiniband/*/fw_ver"


class Versions:
    """Gathers versions from those who know them, each a function that returns some by field."""

    def __init__(
        self,
        node: str,
        tellers: Iterable[Callable[[], Mapping[str, str]]] = (),
        *,
        sys: Path = Path("/sys"),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._node = node
        self._tellers = tuple(tellers)
        self._sys = sys
        self._clock = clock
        self._told: dict[str, str] = {}
        self._told_at = -_EVERY_S

    def due(self) -> list[VersionReport]:
        """Return a report where something has changed, or the last is a while ago; else none."""
        found = {name: value[:_MOST_CHARACTERS] for name, value in self._found().items() if value}
        now = self._clock()
        if not found or (found == self._told and now - self._told_at < _EVERY_S):
            return []
        self._told, self._told_at = found, now
        return [VersionReport(node=self._node, at=now, **found)]

    def _found(self) -> dict[str, str]:
        nics = {_read(path) for path in self._sys.glob(_NIC_FIRMWARE)}
        found = {
            "nic_firmware": ", ".join(sorted(nics - {""})),
            "fabric_driver": _read(self._sys / _FABRIC_DRIVER),
        }
        for tell in self._tellers:
            found |= tell()
        return found


def _read(path: Path) -> str:
    """Return what a file of the kernel says; empty: it says nothing."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
