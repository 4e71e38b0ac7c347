"""The surroundings of one run of a command: its groups, its links, its storage, its folder.

Everything here ends with :meth:`Surroundings.close`; what would outlive this process has a lease.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headroom.errors import HeadroomError
from headroom.work.environment import port_of
from lab.matrix import groups, sandbox
from lab.matrix.channel import Channel
from lab.matrix.faults.links import STORAGE, SYNC, Link
from lab.matrix.faults.relay import Relay
from lab.matrix.faults.wire import Wire
from lab.matrix.groups import Group
from lab.matrix.hearing import Ear
from lab.matrix.leases import EndProcesses, Journal, Lease, RemoveGroups
from lab.matrix.processes import MARK
from lab.matrix.store import Store

__all__ = ["CHECKPOINTS", "Address", "RoomError", "Started", "Surroundings"]

#: The folders of checkpoints of a run: a command that is moved goes on in the other one.
CHECKPOINTS = ("checkpoints", "elsewhere")

#: A host and a port.
Address = tuple[str, int]

#: How long the command's own network may take to come up.
_ROOM_WAIT_S = 20.0
_HOST = "127.0.0.1"


class RoomError(HeadroomError):
    """A network for the command alone could not be made."""


@dataclass
class Started:
    """The command, started once."""

    process: subprocess.Popen[bytes]
    wire: Wire | None = None
    relays: list[Relay] = field(default_factory=list)

    def close(self) -> None:
        """Let its links go, once it has ended."""
        for relay in self.relays:
            relay.close()
        if self.wire is not None:
            self.wire.close()


class Surroundings:
    """The surroundings of one run of a command, over all its starts."""

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        *,
        mark: str,
        has_room: bool,
        lasts_s: float,
        storage: Address | None = None,
        reaches: Mapping[str, Address] | None = None,
    ) -> None:
        """``reaches`` are the named links; ``storage`` None: a storage of ours is started."""
        self.folder = folder
        self.journal = journal
        self.mark = mark
        self.lasts_s = lasts_s
        self.checkpoints = folder / CHECKPOINTS[0]
        self.checkpoints.mkdir(parents=True)
        self.step_log = folder / "steps.jsonl"
        self.output = folder / "output.log"
        self.channel = Channel(folder)
        self.ear = Ear(folder)
        self._has_room = has_room
        self._leases: list[Lease] = []
        self.why_no_group = ""
        self.group = self._make_group()
        self._store = Store(folder / "storage") if storage is None else None
        self._reached = {STORAGE: self._store.address if self._store else storage or ("", 0)}
        self._reached |= reaches or {}
        self.links = {name: Link(name) for name in (SYNC, *self._reached)}
        self._take(EndProcesses(mark), "the command runs")

    def _make_group(self) -> Group | None:
        name = f"headroom-matrix-{self.mark}"
        try:
            lease = RemoveGroups(groups.groups_of(name).paths)
            self._take(lease, "control groups of the command")
            return groups.make(name)
        except groups.GroupError as error:
            self.why_no_group = str(error)
            return None

    def _take(self, undo: EndProcesses | RemoveGroups, said: str) -> None:
        self._leases.append(self.journal.take(undo, said, for_s=self.lasts_s))

    def start(self, command: tuple[str, ...]) -> Started:
        """Start the command. Raises :class:`RoomError`."""
        self.channel.begin()
        return self._start_in_room(command) if self._has_room else self._start_here(command)

    def move(self) -> None:
        """Have the next start find the checkpoints under another path, as at another place."""
        there = next(name for name in CHECKPOINTS if name != self.checkpoints.name)
        self.checkpoints = self.checkpoints.rename(self.folder / there)

    def close(self) -> None:
        """End the processes that are left of the command, and its surroundings."""
        for lease in reversed(self._leases):
            self.journal.undo(lease)
        self._leases = []
        self.ear.close()
        if self._store is not None:
            self._store.close()

    def _start_here(self, command: tuple[str, ...]) -> Started:
        relays, ports = [], {}
        for name, address in self._reached.items():
            listening = socket.create_server((_HOST, 0))
            ports[name] = (_HOST, listening.getsockname()[1])
            relays.append(Relay(listening, address, self.links[name], has_trouble=True))
        process = self._execute(command, ports, told=None, listen=[])
        return Started(process, relays=relays)

    def _start_in_room(self, command: tuple[str, ...]) -> Started:
        # Ports are free in a new network, and the room is told them; so they are known before.
        names = list(self._reached)
        hosts = {name: f"127.87.0.{number}" for number, name in enumerate(names, start=1)}
        at = {name: (host, _ROOM_PORT) for name, host in hosts.items()}
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = self._execute(command, at, told=theirs, listen=list(hosts.values()))
            theirs.close()
            device, listening = _received(ours, len(names), process)
            wire = Wire(device, self.links, hosts)
            relays = [
                Relay(each, self._reached[name], self.links[name], has_trouble=False)
                for name, each in zip(names, listening, strict=True)
            ]
            ours.send(b"1")
        return Started(process, wire, relays)

    def _execute(
        self,
        command: tuple[str, ...],
        at: Mapping[str, Address],
        *,
        told: socket.socket | None,
        listen: list[str],
    ) -> subprocess.Popen[bytes]:
        options = {
            "groups": self.group.joined_by if self.group else [],
            "socket": None if told is None else told.fileno(),
            "listen": [[host, _ROOM_PORT] for host in listen],
        }
        with self.output.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - the command of whoever runs us
                [sys.executable, "-I", "-S", sandbox.__file__, json.dumps(options), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(at),
                start_new_session=True,
                pass_fds=[] if told is None else [told.fileno()],
            )

    def _environment(self, at: Mapping[str, Address]) -> dict[str, str]:
        own = {
            MARK: self.mark,
            "HEADROOM_STEP_LOG": str(self.step_log),
            "HEADROOM_CHECKPOINT_DIR": str(self.checkpoints),
            "HEADROOM_STORAGE_URL": "http://{}:{}".format(*at[STORAGE]),
            "MASTER_ADDR": _HOST,
            "MASTER_PORT": str(_free_port(self.mark)),
            **self.channel.environment,
            **self.ear.environment,
            # What it says is read while it runs.
            "PYTHONUNBUFFERED": "1",
        }
        named = {name: address for name, address in at.items() if name != STORAGE}
        own |= {f"HEADROOM_LINK_{_upper(name)}": f"{h}:{p}" for name, (h, p) in named.items()}
        return {**os.environ, **own}


#: In a network of the command alone nothing else has it.
_ROOM_PORT = 8700


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


def _free_port(mark: str) -> int:
    """Return a port at which nobody listens now: from that on which a job of the name would have.

    Connections get their own ends elsewhere, else one would take it before the command does.
    """
    return next(port for port in range(port_of(mark), 2**16) if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as found:
        try:
            found.bind((_HOST, port))
        except OSError:
            return False
    return True


def _received(
    ours: socket.socket, count: int, process: subprocess.Popen[bytes]
) -> tuple[int, list[socket.socket]]:
    """Return the device and the listening sockets that the room sends. Raises RoomError."""
    ours.settimeout(_ROOM_WAIT_S)
    said, handles = b"", list[int]()
    with contextlib.suppress(TimeoutError):
        said, handles, _, _ = socket.recv_fds(ours, 4096, count + 1)
    if len(handles) != count + 1:
        process.kill()
        process.wait()
        raise RoomError(said.decode(errors="replace") or "it did not come up")
    device, *listening = handles
    return device, [socket.socket(fileno=each) for each in listening]
