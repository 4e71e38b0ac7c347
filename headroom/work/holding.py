"""All processes of one job, to be stopped, let go on, or killed together.

Imports nothing but the standard library: the shim uses it. Control groups do it at once and
for whatever the job forks meanwhile. Where there are none, signals go to all that descend from the
shim, again and again until nobody new is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

__all__ = ["Holding"]

#: How long a group may take to stand still, s. One that waits for a disk takes longer, and is
#: stopped all the same as soon as it comes back from there.
_FREEZE_S = 1.0
_STEP_S = 0.005
#: A sweep by signals that still finds new processes after so many turns is up against a fork bomb.
_MOST_TURNS = 50
#: States in /proc/PID/stat of what runs no code any more.
_DEAD = frozenset({"Z", "X", "x"})


class Holding:
    """The processes of a job. ``groups`` are its control groups, ``keeper`` the ancestor of all.

    ``uid`` is given where it is the job's alone.
    """

    def __init__(self, groups: Sequence[str], *, keeper: int, uid: int | None = None) -> None:
        paths = [Path(group) for group in groups]
        self._v2 = next((path for path in paths if (path / "cgroup.freeze").exists()), None)
        self._v1 = next((path for path in paths if (path / "freezer.state").exists()), None)
        self._groups = paths
        self._keeper = keeper
        self._uid = uid
        self._by_signals = False

    def freeze(self) -> None:
        """Have nothing of it run on. Returns when it stands still, or after a second."""
        try:
            self._by_signals = not self._freeze_groups()
        except OSError:
            self._by_signals = True
        if self._by_signals:
            self._sweep(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run on."""
        with contextlib.suppress(OSError):
            self._thaw_groups()
        if self._by_signals:
            self._sweep(signal.SIGCONT)
        self._by_signals = False

    def kill(self) -> None:
        """End all of it, whatever it catches, forks or leaves. Frozen, it runs no more on the way.

        Who waits for them is left to the caller.
        """
        with contextlib.suppress(OSError):
            self._kill_groups()
        if self._uid is not None:
            _kill_all_of(self._uid)
        self._sweep(signal.SIGKILL)

    def members(self) -> set[int]:
        """Return the pids of all that lives, in the groups and among the descendants."""
        found = set(_descendants(self._keeper))
        for group in self._groups:
            found |= _pids_of(group)
        return found - {self._keeper, os.getpid()}

    def _kill_groups(self) -> None:
        if self._v2 is not None and (self._v2 / "cgroup.kill").exists():
            self._v2.joinpath("cgroup.kill").write_text("1")
            return
        if self._v1 is not None:
            _wait(self._frozen_v1)
        for group in self._groups:
            for pid in _pids_of(group) - {self._keeper, os.getpid()}:
                _tell(pid, signal.SIGKILL)
        # The signal is waiting for them: they end before they run a line of their own.
        self._thaw_groups()

    def _freeze_groups(self) -> bool:
        """Freeze by a control group; return whether there is one that can."""
        if self._v2 is not None:
            self._v2.joinpath("cgroup.freeze").write_text("1")
            _wait(lambda: "frozen 1" in _read(self._v2, "cgroup.events"))
        elif self._v1 is not None:
            # Asked again, it also catches what was forked in between.
            _wait(self._frozen_v1)
        return self._v2 is not None or self._v1 is not None

    def _thaw_groups(self) -> None:
        if self._v2 is not None:
            self._v2.joinpath("cgroup.freeze").write_text("0")
        elif self._v1 is not None:
            self._v1.joinpath("freezer.state").write_text("THAWED")

    def _frozen_v1(self) -> bool:
        if self._v1 is None:
            return True
        self._v1.joinpath("freezer.state").write_text("FROZEN")
        return _read(self._v1, "freezer.state").strip() == "FROZEN"

    def _sweep(self, number: int) -> None:
        told: set[int] = set()
        for _ in range(_MOST_TURNS):
            new = self.members() - told
            if not new:
                return
            for pid in new:
                _tell(pid, number)
            told |= new


def _wait(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _FREEZE_S
    while not is_so() and time.monotonic() < end:
        time.sleep(_STEP_S)


def _read(folder: Path | None, name: str) -> str:
    return "" if folder is None else (folder / name).read_text()


def _pids_of(group: Path) -> set[int]:
    try:
        return {int(word) for word in (group / "cgroup.procs").read_text().split()}
    except OSError:
        return set()


def _descendants(keeper: int) -> Iterator[int]:
    """Yield the pids of all that live below ``keeper``, as /proc shows it at one look."""
    children: dict[int, list[int]] = {}
    for pid, parent in _parents():
        children.setdefault(parent, []).append(pid)
    left = [keeper]
    while left:
        below = children.pop(left.pop(), [])
        left.extend(below)
        yield from below


def _parents() -> Iterator[tuple[int, int]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name, in parentheses, may hold anything.
                words = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if words[0] not in _DEAD:
                    yield int(entry.name), int(words[1])


def _kill_all_of(uid: int) -> None:
    """Kill every process of a user at once: the kernel lets none of them fork meanwhile."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            os.kill(-1, signal.SIGKILL)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _tell(pid: int, number: int) -> None:
    # It may be over by now.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
