"""Starts shepherds, and ends what one has left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import msgspec

from headroom.work.cgroups import Cgroups
from headroom.work.contract import Task
from headroom.work.environment import environment_of
from headroom.work.folder import Folder

__all__ = ["Launcher"]

_SHEPHERD = Path(__file__).with_name("shepherd.py")


class Launcher:
    """Starts one shepherd for each attempt, in a session of its own: it outlives us."""

    def __init__(self, *, cgroups: Cgroups | None, log_bytes: int) -> None:
        self._cgroups = cgroups
        self._log_bytes = log_bytes
        #: the pids of those that we have started and not reaped
        self._shepherds: dict[Path, int] = {}

    def launch(self, attempt: str, task: Task, folder: Folder) -> None:
        """Start the shepherd of ``folder``. Started again, it finds what was, and does nothing.

        Raises OSError where the machine does not let us.
        """
        folder.work.mkdir(parents=True, exist_ok=True)
        name = folder.path.name
        part = min(1.0, len(task.gpus) / max(task.gpus_of_node, 1)) or 1.0
        document = {
            "command": task.command,
            "env": environment_of(attempt, task, folder, os.environ),
            "cwd": str(folder.work),
            "walltime_s": task.walltime_s,
            "grace_s": task.grace_s,
            "log_bytes": self._log_bytes,
            "cgroups": self._cgroups.make(name, part) if self._cgroups else [],
        }
        made = folder.path / "task.json.new"
        made.touch(0o600)
        made.write_bytes(msgspec.json.encode(document))
        made.replace(folder.path / "task.json")
        log = str(folder.path / "shepherd.log")
        self._shepherds[folder.path] = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", str(_SHEPHERD), str(folder.path)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def is_starting(self, folder: Folder) -> bool:
        """Say whether a shepherd that we started is still there."""
        pid = self._shepherds.get(folder.path)
        if pid is None:
            return False
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            return True
        del self._shepherds[folder.path]
        return False

    def dismiss(self, folder: Folder) -> None:
        """Let go of what belonged to an attempt that is over."""
        pid = self._shepherds.pop(folder.path, None)
        if pid is not None:
            # It has written down the end, and is about to go.
            os.waitpid(pid, 0)
        if self._cgroups:
            self._cgroups.remove(folder.path.name)

    def kill_leftovers(self, folder: Folder) -> int:
        """Kill what runs on though its shepherd is gone; return how many processes."""
        mark = f"HEADROOM_DIRECTIVES={folder.directives}".encode()
        found = [pid for pid in _pids() if mark in _environment(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
