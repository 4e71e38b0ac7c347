"""The journal of limits: the values in force before our changes, on disk before we change them."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from headroom.disk import Disk
from headroom.errors import HeadroomError

__all__ = ["Entry", "HeldLimit", "Journal", "JournalError", "Key"]

#: The GPU's UUID and the kind of limit.
Key = tuple[str, str]


class JournalError(HeadroomError):
    """The journal of limits cannot be used."""


class HeldLimit(Struct, frozen=True):
    """A limit that an entry serves."""

    id: str
    asked: float


class Entry(Struct, frozen=True, kw_only=True):
    """One kind of limit that we changed on one GPU.

    ``original`` was in force before (None: the driver does not tell). ``ours`` is all that may be
    in force of what we set: more than one where we died between two steps.
    """

    uuid: str
    gpu: int
    kind: str
    original: float | None
    ours: tuple[float, ...]
    limits: tuple[HeldLimit, ...]

    @property
    def key(self) -> Key:
        """The key under which the journal has the entry."""
        return self.uuid, self.kind


class _File(Struct):
    machine_boot: str
    entries: list[Entry]


class Journal:
    """The entries in force, by GPU and kind. Each change is on disk when the call returns."""

    def __init__(self, path: Path, *, machine_boot: str | None = None) -> None:
        """Read the entries that an earlier life left. Raises :class:`JournalError`.

        After a reboot of the machine there is nothing left to undo: no limit outlives it.
        """
        self._path = path
        self._disk = Disk()
        self._boot = self._disk.boot_id() if machine_boot is None else machine_boot
        self._entries: dict[Key, Entry] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise JournalError(
                f"the journal of limits {path} cannot be read: {exc}; see what is in force with "
                "nvidia-smi -q -d POWER, put right what is wrong, then remove the file"
            ) from exc
        if found.machine_boot == self._boot:
            self._entries = {entry.key: entry for entry in found.entries}

    @property
    def entries(self) -> dict[Key, Entry]:
        """The present entries, by GPU and kind."""
        return dict(self._entries)

    def get(self, key: Key) -> Entry | None:
        """Return the entry of one kind of limit on one GPU."""
        return self._entries.get(key)

    def put(self, entry: Entry) -> None:
        """Write an entry down. Raises :class:`JournalError`, and then nothing may be set."""
        self._save({**self._entries, entry.key: entry})

    def drop(self, key: Key) -> None:
        """Forget an entry."""
        self._save({k: entry for k, entry in self._entries.items() if k != key})

    def _save(self, entries: dict[Key, Entry]) -> None:
        made = self._path.with_name(f"{self._path.name}.new")
        text = msgspec.json.encode(_File(self._boot, list(entries.values())))
        try:
            self._disk.remove(made)
            self._disk.put(self._path, text, made, 0o644)
        except OSError as exc:
            raise JournalError(f"the journal of limits {self._path}: {exc}") from exc
        self._entries = entries
