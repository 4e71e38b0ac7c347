"""Starts shims, and ends the processes that one has left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from headroom.work.cgroups import Cgroups, most_pids
from headroom.work.contract import Task
from headroom.work.environment import environment_of
from headroom.work.folder import Folder
from headroom.work.reading import read_plain, write_plain
from headroom.work.slices import Slices
from headroom.work.users import JobUser, Users, uids_in_use

__all__ = ["Launcher", "Separation", "why_no_view"]

logger = logging.getLogger(__name__)

_SHIM = Path(__file__).with_name("shim.py")
#: Folders that everybody may write to, of which a job gets its own.
_SHARED = ("/tmp", "/var/tmp")  # noqa: S108 - it is what they are to be kept out of
#: Of what is free where jobs lie, for all of them together.
_DISK_SHARE = 0.9
#: How long to wait for what ends leftovers, s.
_SWEEP_S = 5.0
_MOST_TASK_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Separation:
    """How jobs are kept apart from each other and from the agent.

    ``view``: each has a view of the machine of its own, where ``hidden`` files are empty.
    """

    users: Users
    view: bool = True
    hidden: Sequence[Path] = ()


@dataclass
class Launcher:
    """Starts one shim for each attempt, in a session of its own: it outlives us.

    ``log_bytes`` and ``disk_bytes`` are of one attempt, at most; without the second it is the share
    of what is free that its GPUs are of the machine's. ``frozen_s`` is for how long an attempt of
    which the server was not heard stands still before it is ended. ``prefix`` tells the control
    groups of one folder of jobs from another's.
    """

    cgroups: Cgroups | None
    log_bytes: int
    disk_bytes: int | None = None
    frozen_s: float = 6 * 3600.0
    separation: Separation | None = None
    prefix: str = ""
    #: the MIG slices of this machine
    slices: Slices = dict
    #: the pids of those that we have started and not reaped
    _shims: dict[Path, int] = field(default_factory=dict)

    def launch(self, attempt: str, task: Task, folder: Folder, until: float | None = None) -> None:
        """Start the shim of ``folder``. Started again, it finds the first start, and does nothing.

        ``until`` is as long as the attempt may run unless the server is heard again, by
        CLOCK_BOOTTIME in s. Raises OSError where the machine does not let us, UsersError, and
        SliceError where a slice that the task was given is not there.
        """
        folder.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        separation = self.separation if folder.is_apart else None
        user = _make_place(separation, task, folder)
        part = part_of(task)
        name = f"{self.prefix}{folder.path.name}"
        document = {
            "command": task.command,
            "env": environment_of(attempt, task, folder, os.environ, user, self.slices),
            "cwd": str(folder.work),
            "inputs": [msgspec.structs.asdict(each) for each in task.inputs],
            "outputs": [msgspec.structs.asdict(each) for each in task.outputs],
            "outputs_file": str(folder.outputs),
            "walltime_s": task.walltime_s,
            "grace_s": task.grace_s,
            "log_bytes": self.log_bytes,
            "cgroups": self.cgroups.make(name, part) if self.cgroups else [],
            "until": until,
            "frozen_s": self.frozen_s,
            "disk": self._disk(folder, part),
            "user": separation and user and self._cage(separation, user, folder, part),
        }
        write_plain(folder.path / "task.json", msgspec.json.encode(document), 0o600)
        if until is not None:
            folder.promise(until)
        self._shims[folder.path] = self._spawn(folder)

    def _spawn(self, folder: Folder) -> int:
        log = str(folder.path / "shim.log")
        return os.posix_spawn(
            sys.executable,
            [*_interpreter(), str(folder.path)],
            {},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (
                    os.POSIX_SPAWN_OPEN,
                    1,
                    log,
                    os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK,
                    0o600,
                ),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    # --- What a job is given ----------------------------------------------------------------------

    def _cage(
        self, separation: Separation, user: JobUser, folder: Folder, part: float
    ) -> dict[str, Any]:
        """Return the confinement of the command for the shim: see ``cage``."""
        rlimits = {"RLIMIT_CORE": 0}
        if user.is_own:
            rlimits["RLIMIT_NPROC"] = self.cgroups.pids if self.cgroups else most_pids()
        view = self._view(separation, folder, part) if separation.view else None
        return {
            "uid": user.uid,
            "gid": user.gid,
            "groups": list(user.groups),
            "rlimits": rlimits,
            "is_own": user.is_own,
            "is_private": view is not None,
            "view": view,
        }

    def _view(self, separation: Separation, folder: Folder, part: float) -> dict[str, Any]:
        nothing = folder.path.parent.parent / "nothing"
        nothing.touch(0o000)
        memory = self.cgroups.memory_bytes if self.cgroups else 1 << 34
        return {
            "binds": {
                place: str(folder.temporary)
                for place in _SHARED
                # Where jobs lie below it, it would hide their folders from themselves.
                if Path(place).is_dir() and not folder.place.is_relative_to(place)
            },
            "shm_bytes": max(1 << 20, int(memory * part / 2)),
            "hidden": [str(path) for path in separation.hidden],
            "nothing": str(nothing),
        }

    def _disk(self, folder: Folder, part: float) -> dict[str, Any] | None:
        """Return the disk limits of the job's folders, or None where there are no limits."""
        if self.disk_bytes is None and self.cgroups is None:
            return None
        free = os.statvfs(folder.place)
        share = _DISK_SHARE * part
        own = int(free.f_bavail * free.f_frsize * share)
        folders = [str(folder.work), *([str(folder.temporary)] if folder.is_apart else [])]
        return {
            "folders": folders,
            "bytes": self.disk_bytes or own,
            # Some file systems make room for files as they come, and say 0.
            "files": int(free.f_favail * share) or 1 << 40,
        }

    # --- What becomes of it -----------------------------------------------------------------------

    def is_starting(self, folder: Folder) -> bool:
        """Say whether a shim that we started is still there."""
        pid = self._shims.get(folder.path)
        if pid is None:
            return False
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            return True
        del self._shims[folder.path]
        return False

    def dismiss(self, folder: Folder) -> None:
        """Release the resources of an attempt that is over, and that nobody watches any more."""
        self.is_starting(folder)
        if self.cgroups:
            self.cgroups.remove(_groups_of(folder))

    def kill_leftovers(self, folder: Folder) -> int:
        """Kill processes whose shim is gone; return how many by their environment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(  # noqa: S603 - our own file
                [*_interpreter(), "--sweep", str(folder.path)],
                check=False,
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_SWEEP_S,
            )
        if folder.is_apart:
            return 0
        mark = f"HEADROOM_DIRECTIVES={folder.directives}".encode()
        found = [pid for pid in _pids() if mark in _environment(pid)]
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(found)


def _make_place(separation: Separation | None, task: Task, folder: Folder) -> JobUser | None:
    """Make the folders of the job; return the user that it runs as, where that is not ours."""
    if separation is None:
        folder.work.mkdir(parents=True, exist_ok=True)
        return None
    user = _user(separation.users, task, folder)
    folder.place.mkdir(exist_ok=True)
    # It may go through, and look at what is its own, and change nothing here.
    os.chown(folder.place, 0, user.gid)
    folder.place.chmod(0o750)
    for path in (folder.work, folder.temporary):
        path.mkdir(mode=0o700, exist_ok=True)
        os.chown(path, user.uid, user.gid, follow_symlinks=False)
    return user


def _user(users: Users, task: Task, folder: Folder) -> JobUser:
    # Those of attempts whose files still lie here are in use as well.
    others = [path for path in folder.place.parent.iterdir() if path != folder.place]
    taken = uids_in_use() | {path.lstat().st_gid for path in others}
    kept = folder.work.lstat().st_uid if folder.work.exists() else None
    return users.user_of(task.project, int(folder.path.name), taken, kept)


def why_no_view() -> str:
    """Return why this machine does not let jobs have a view of their own; "": it does."""
    done = subprocess.run(  # noqa: S603 - our own file
        [*_interpreter(), "--probe"],
        check=False,
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SWEEP_S,
    )
    if done.returncode == 0:
        return ""
    said = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
    return said or f"exit code {done.returncode}"


def _interpreter() -> list[str]:
    return [sys.executable, "-I", "-S", str(_SHIM)]


def _groups_of(folder: Folder) -> list[str]:
    """Return the control groups of an attempt, made in this or an earlier life."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, KeyError):
        task = msgspec.json.decode(read_plain(folder.path / "task.json", _MOST_TASK_BYTES))
        return [str(group) for group in task["cgroups"]]
    return []


def _pids() -> list[int]:
    return [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def part_of(task: Task) -> float:
    """Return the share of a machine that a task has, 0 to 1, by its GPUs, slices or cores.

    All of it where nothing says what it has.
    """
    if task.cores:
        return min(1.0, len(task.cores) / max(task.cores_of_node, 1))
    gpus = len(task.gpus) + sum(each.share for each in task.slices)
    return min(1.0, gpus / max(task.gpus_of_node, 1)) or 1.0
