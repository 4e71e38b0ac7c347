"""Start child processes that do not outlive us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["Account", "own_command", "spawn"]

_SHIM = Path(__file__).with_name("child.py")


@dataclass(frozen=True)
class Account:
    """An unprivileged user to run a server as."""

    uid: int
    gid: int


def own_command(
    argv: Sequence[str], death_signal: signal.Signals, account: Account | None = None
) -> list[str]:
    """Return `argv` wrapped so that it gets `death_signal` when this process dies."""
    uid, gid = (account.uid, account.gid) if account else (-1, -1)
    shim = [sys.executable, "-I", "-S", str(_SHIM), str(int(death_signal)), str(os.getpid())]
    return [*shim, str(uid), str(gid), *argv]


def spawn(
    argv: Sequence[str],
    *,
    death_signal: signal.Signals,
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: int | IO[bytes] | None = None,
    pass_fds: Sequence[int] = (),
    new_session: bool = True,
) -> subprocess.Popen[bytes]:
    """Start `argv`; its stdout and stderr go to `output`, or where ours go.

    Call it from the main thread only: the kernel sends the death signal when the thread
    that forked ends, not the process. The child keeps the pid that this returns. In a
    session of its own (the default) a terminal's Ctrl-C does not reach it.
    """
    return subprocess.Popen(  # noqa: S603 - commands are our own
        own_command(argv, death_signal, account),
        env=env,
        cwd=cwd,
        stdin=None if not new_session else subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output is not None else None,
        pass_fds=tuple(pass_fds),
        start_new_session=new_session,
    )
