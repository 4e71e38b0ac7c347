"""Exec shim: become another user, ask to be told of the parent's death, run a command.

    python -I -S child.py SIGNAL PARENT_PID UID GID COMMAND…

UID -1 stays the user that we are. Run by its path and without site-packages, since it is on
the way of every start. A shim rather than `preexec_fn`, which is not safe beside threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _become(uid: int, gid: int) -> None:
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def _die_with(parent: int, death_signal: int) -> None:
    """Have the kernel send `death_signal` when `parent` (its thread that forked us) dies."""
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, death_signal, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The parent may have died before the kernel knew of our wish.
    if os.getppid() != parent:
        sys.exit(1)


def main(argv: list[str]) -> None:
    """Replace this process by the command in `argv`."""
    death_signal, parent, uid, gid = (int(word) for word in argv[:4])
    # A shell starts background jobs with SIGINT ignored, which an exec would pass on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if uid >= 0:
        _become(uid, gid)
    # After the change of user, which clears it.
    _die_with(parent, death_signal)
    os.execvp(argv[4], argv[4:])  # noqa: S606 - replaces us on purpose, no shell


if __name__ == "__main__":
    main(sys.argv[1:])
