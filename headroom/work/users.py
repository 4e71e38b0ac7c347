"""The users that jobs run as: an account for each project, or one of its own for each attempt."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from headroom.errors import HeadroomError

__all__ = ["DEFAULT_UIDS", "JobUser", "Users", "UsersError", "can_change_user", "uids_in_use"]

#: Of user ids, those that neither distributions nor systemd nor containers give away.
DEFAULT_UIDS = (1_900_000_000, 1_900_065_535)
#: CAP_CHOWN, CAP_KILL, CAP_SETGID, CAP_SETUID, as bits of CapEff.
_NEEDED = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7


class UsersError(HeadroomError):
    """Jobs cannot be run as the users that were configured."""


@dataclass(frozen=True)
class JobUser:
    """The user that one attempt runs as. ``is_own``: nobody else on the machine has this uid."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    #: None: its folder
    home: str | None = None
    is_own: bool = False


class Users:
    """The users of jobs: ``accounts`` by project, else ``default``, else one of ``uids`` each."""

    def __init__(
        self,
        accounts: Mapping[str, str],
        *,
        default: str | None = None,
        uids: tuple[int, int] = DEFAULT_UIDS,
        groups: Sequence[str] = (),
    ) -> None:
        """Look the accounts up. Raises :class:`UsersError` where one is not on this machine."""
        self._more = tuple(_gid(name) for name in groups)
        self._accounts = {project: self._account(name) for project, name in accounts.items()}
        self._default = None if default is None else self._account(default)
        self._uids = uids

    def user_of(
        self, project: str, number: int, taken: Set[int], kept: int | None = None
    ) -> JobUser:
        """Return the user of attempt ``number`` of this machine. ``taken`` are uids in use.

        ``kept`` is the uid that it was given before, where it was.
        """
        return self._accounts.get(project) or self._default or self._own(number, taken, kept)

    def _own(self, number: int, taken: Set[int], kept: int | None) -> JobUser:
        first, last = self._uids
        count = last - first + 1
        if kept is not None and first <= kept <= last:
            return JobUser(f"job-{number}", kept, kept, self._more, is_own=True)
        for step in range(count):
            uid = first + (number + step) % count
            if uid not in taken and not _has_account(uid):
                return JobUser(f"job-{number}", uid, uid, self._more, is_own=True)
        raise UsersError(f"all of the user ids {first} to {last} are in use: widen [work] uids")

    def _account(self, name: str) -> JobUser:
        try:
            found = pwd.getpwnam(name)
        except KeyError as exc:
            raise UsersError(
                f"there is no account {name!r} on this machine: make it, or change [work] users"
            ) from exc
        if found.pw_uid in (0, os.geteuid()):
            raise UsersError(f"jobs cannot run as {name!r}: that is the agent itself, or root")
        return JobUser(name, found.pw_uid, found.pw_gid, self._more, home=found.pw_dir)


def uids_in_use() -> set[int]:
    """Return the uids that have a process on this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            # Not by the folder's owner: that is root where a process wants it so.
            with contextlib.suppress(OSError, StopIteration):
                lines = (entry / "status").read_text(errors="replace").splitlines()
                found.add(int(next(line for line in lines if line.startswith("Uid:")).split()[1]))
    return found


def can_change_user() -> bool:
    """Say whether this process may start others as other users: root with its rights."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text()
    held = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return int(held.split()[1], 16) & _NEEDED == _NEEDED


def _gid(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as exc:
        raise UsersError(
            f"there is no group {name!r} on this machine: make it, or change [work] groups"
        ) from exc


def _has_account(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True
