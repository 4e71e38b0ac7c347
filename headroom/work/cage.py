"""The confinement of a command before it starts: its user, its limits, its view of the machine.

Imports nothing but the standard library: the shim uses it. What cannot be done is an error, and
the command is not started: the agent has tried beforehand what this machine allows.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "become",
    "join_view",
    "leave_space",
    "no_new_privileges",
    "open_space",
    "prctl",
    "private_view",
]

#: Of prctl(2).
PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
#: Of unshare(2).
_NEW_MOUNTS, _NEW_IPC, _NEW_PIDS = 0x00020000, 0x08000000, 0x20000000
#: Of mount(2).
_NO_SUID, _NO_DEV, _NO_EXEC = 2, 4, 8
_BIND, _RECURSIVE, _SLAVE = 4096, 16384, 1 << 19
#: keyctl(2) has no wrapper in the C library; its number by machine.
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
#: More capabilities than any kernel has.
_MOST_CAPABILITIES = 64
#: The kernel takes jobs first when memory runs out, not who watches them.
_FIRST_TO_GO = "500"

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, value: int = 0) -> None:
    """Call prctl(2) with one value."""
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        _fail("prctl", str(option))


def no_new_privileges() -> None:
    """Set no_new_privs: no program started from here on gains rights by sudo or set-user-ID."""
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def open_space() -> None:
    """Put the next child, and all below it, into a new PID namespace."""
    _unshare(_NEW_PIDS)


def leave_space() -> None:
    """Undo :func:`open_space`: the next child is in this process's own PID namespace again."""
    _enter("/proc/self/ns/pid", "pid")


def private_view(
    *,
    binds: Mapping[str, str],
    shm_bytes: int,
    hidden: Sequence[str],
    nothing: str,
) -> None:
    """Give this process, the first of its PID namespace, mounts, IPC and a /proc of its own.

    /proc shows its own processes alone, ``binds`` (folder by place) are its temporary folders,
    /dev/shm is new, and in the place of each of the files ``hidden`` is ``nothing``, an empty file.
    """
    _unshare(_NEW_MOUNTS | _NEW_IPC)
    # What is mounted on the machine later is seen here; what is mounted here is not seen there.
    _mount("none", "/", "", _RECURSIVE | _SLAVE)
    for path in hidden:
        with contextlib.suppress(FileNotFoundError):
            _mount(nothing, path, "", _BIND)
    for place, folder in binds.items():
        _mount(folder, place, "", _BIND)
    _mount("tmpfs", "/dev/shm", "tmpfs", _NO_SUID | _NO_DEV, f"mode=1777,size={shm_bytes}")  # noqa: S108 - it is new
    _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEV | _NO_EXEC)


def join_view(pid: int) -> None:
    """Give this process the mounts and the IPC of ``pid``: see :func:`private_view`."""
    for kind in ("ipc", "mnt"):
        _enter(f"/proc/{pid}/ns/{kind}", kind)


def become(user: Mapping[str, Any]) -> None:
    """Take on ``uid``, ``gid`` and ``groups``, and give up every right beside theirs, for good."""
    _new_keyring()
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_GO)
    for name, most in user["rlimits"].items():
        _limit(getattr(resource, name), int(most))
    os.umask(0o077)
    os.setgroups(user["groups"])
    _drop_bounding_set()
    gid, uid = int(user["gid"]), int(user["uid"])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    no_new_privileges()


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    least = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (least, least))


def _drop_bounding_set() -> None:
    for capability in range(_MOST_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            return  # the kernel has no more


def _new_keyring() -> None:
    """Leave the session's keys behind: they are the agent's."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _libc.syscall(number, _JOIN_SESSION_KEYRING, None)


def _enter(path: str, kind: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(fd, 0) != 0:
            _fail("setns", kind)
    finally:
        os.close(fd)


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        _fail("unshare", hex(flags))


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    given = [word.encode() for word in (source, target, kind)]
    if _libc.mount(*given, ctypes.c_ulong(flags), data.encode() or None) != 0:
        _fail("mount", target)


def _fail(call: str, what: str) -> None:
    number = ctypes.get_errno()
    raise OSError(number, f"{call}: {os.strerror(number)}", what)
