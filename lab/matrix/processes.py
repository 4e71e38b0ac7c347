"""The processes of a command, wherever they went: all that carry a mark in their environment.

A process group would lose those that begin a session of their own, as launchers of training jobs
do. What a process has in its environment at its start, its children have too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

__all__ = ["MARK", "cpu_s", "end", "members", "resume", "said", "signal_all"]

#: The variable that marks what belongs to a run of a command.
MARK = "HEADROOM_MATRIX_MARK"

_PROC = Path("/proc")
_LOOK_S = 0.02
_MOST_LETTERS = 60


def members(mark: str) -> list[int]:
    """Return the pids of the processes with a mark that have not ended, least first."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            # It may end while it is looked at, or belong to somebody else.
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return sorted(found)


def signal_all(mark: str, number: signal.Signals) -> int:
    """Send a signal to all processes with a mark; return how many got it."""
    told = 0
    for pid in members(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            told += 1
    return told


def resume(mark: str) -> None:
    """Resume the processes with the mark, if they are stopped."""
    signal_all(mark, signal.SIGCONT)


def end(mark: str, *, grace_s: float) -> None:
    """End the processes with a mark: by SIGTERM, and by SIGKILL after ``grace_s``."""
    if not signal_all(mark, signal.SIGTERM):
        return
    # What is stopped does not hear of its end.
    resume(mark)
    deadline = time.monotonic() + grace_s
    while members(mark) and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    # What starts others meanwhile is caught the next time round.
    while signal_all(mark, signal.SIGKILL):
        time.sleep(_LOOK_S)


def said(pid: int) -> str:
    """Return a process in words: the beginning of its command line, and its pid."""
    words = ""
    # It may end while it is looked at.
    with contextlib.suppress(OSError):
        words = (
            (_PROC / str(pid) / "cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode("utf-8", "replace")
        )
    return f"{words[:_MOST_LETTERS].strip() or 'a process'} ({pid})"


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process took, with that of its children that have ended."""
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
