"""Embedded Postgres: cluster, configuration, start as an unprivileged user."""

from __future__ import annotations

import hashlib
import hmac
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import psycopg

from config import roles
from config.embedded.binaries import can_use, find_postgres, readable_by, shared_dir
from config.embedded.exceptions import (
    DamagedFileError,
    DataLostError,
    ServerFailedError,
    VersionMismatchError,
)
from config.embedded.server import Server
from config.embedded.spawn import Account, own_command

__all__ = ["Postgres", "memory_bytes", "tuning"]

#: The superuser has the name of the database, as the one role of earlier versions had.
_DATABASE = _SUPERUSER = "headroom"
_OWNER = "headroom_owner"
_APPLICATION = "headroom_app"
_MIB = 1024 * 1024
#: The major version that brought the locale provider of Postgres itself, ``builtin``.
_BUILTIN_LOCALE_SINCE = 17
#: The line of postmaster.pid, from 0, in which the server says that it is ready.
_STATUS_LINE = 7
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_bytes() -> int:
    """Return the memory that this machine or container has."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _CGROUP_LIMITS:
        if path.exists() and (text := path.read_text(encoding="ascii").strip()).isdigit():
            limits.append(int(text))
    return min(limits)


def tuning(memory: int, *, durable: bool) -> dict[str, str]:
    """Return our settings for a machine with `memory` bytes.

    Buffers must hold the index of the partition that is written to; WAL must take a burst
    without a forced checkpoint. Commits stay synchronous even when not `durable`: that gives
    up only what a crash of the operating system could take.
    """
    settings = {
        "shared_buffers": f"{max(64, min(512, memory // 8 // _MIB))}MB",
        "max_connections": "100",
        "synchronous_commit": "on",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "15min",
        "wal_compression": "pglz",
        "log_checkpoints": "off",
        "log_line_prefix": "'%m [%p] '",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    if not durable:
        settings |= {"fsync": "off", "full_page_writes": "off", "max_wal_size": "1GB"}
    return settings


class Postgres(Server):
    """The database server. SIGINT is its fast shutdown."""

    name: ClassVar[str] = "postgres"
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT

    def __init__(self, state_dir: Path, *, durable: bool) -> None:
        super().__init__(state_dir, durable=durable)
        self._programs = find_postgres()

    @property
    def url(self) -> str:
        """The URL for clients, password included: of a role that works with rows alone."""
        return self._url_of(self._login(_APPLICATION))

    @property
    def owner_url(self) -> str:
        """The URL for migrations: of the role that owns the schema."""
        return self._url_of(self._login(_OWNER))

    @property
    def superuser_url(self) -> str:
        """The URL of the cluster's superuser. Only launchers use it, to make the other roles."""
        return self._url_of(roles.Login(_SUPERUSER, self._record.password))

    def start(self) -> None:
        """Start, and give each role its rights, also where an earlier version had but one."""
        super().start()
        try:
            roles.make(
                self.superuser_url, owner=self._login(_OWNER), application=self._login(_APPLICATION)
            )
        except psycopg.Error as error:
            self.stop()
            why = f"could not give its roles their rights: {error}"
            raise ServerFailedError(self.name, why, "") from error

    def _login(self, role: str) -> roles.Login:
        """Return a role with its password, derived one way from the superuser's."""
        key = self._record.password.encode()
        return roles.Login(role, hmac.new(key, role.encode(), hashlib.sha256).hexdigest())

    def _url_of(self, login: roles.Login) -> str:
        place = f"127.0.0.1:{self._record.port}/{_DATABASE}"
        return f"postgresql://{login.name}:{login.password}@{place}"

    def _place_data(self) -> Path:
        account = _unprivileged()
        if account is None or can_use(self._state_dir, account, os.X_OK):
            return self._state_dir / "postgres"
        # The server's user cannot pass through a private home, whose mode is not ours to change.
        tag = hashlib.sha256(str(self._state_dir).encode()).hexdigest()[:16]
        home = Path(tempfile.mkdtemp(dir=shared_dir(), prefix=f"data-{tag}-"))
        home.chmod(0o711)
        return home / "postgres"

    def _prepare(self) -> None:
        self._account = _owner_of(self._data_dir) or _unprivileged()
        if self._account:
            self._programs = readable_by(self._account, self._programs)
            if not can_use(self._data_dir.parent, self._account, os.X_OK):
                raise DataLostError(self._data_dir, self._record_path)
        version = self._server_version()
        if not self._data_dir.exists():
            self._make_cluster(int(version))
        data_version = self._data_version()
        if data_version != version:
            raise VersionMismatchError(self._data_dir, data_version, version)
        # We hold the data, so a pid file is that of a dead server; its number may by now
        # belong to another process, at which Postgres would refuse to start.
        (self._data_dir / "postmaster.pid").unlink(missing_ok=True)
        lines = [f"{k} = {v}\n" for k, v in tuning(memory_bytes(), durable=self._durable).items()]
        self._write(self._data_dir / "headroom.conf", "# Written at each start.\n" + "".join(lines))

    def _argv(self) -> Sequence[str]:
        fixed = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._record.port),
            # No socket file: its path may be too long, and nobody needs it.
            "unix_socket_directories": "",
        }
        flags = [word for key, value in fixed.items() for word in ("-c", f"{key}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self._data_dir), *flags]

    def _is_ready(self) -> bool:
        try:
            text = (self._data_dir / "postmaster.pid").read_text(encoding="utf-8")
        except FileNotFoundError:
            return False
        lines = text.splitlines()
        return len(lines) > _STATUS_LINE and lines[_STATUS_LINE].strip() == "ready"

    def _data_version(self) -> str:
        marker = self._data_dir / "PG_VERSION"
        try:
            text = marker.read_text(encoding="ascii").strip()
        except (FileNotFoundError, UnicodeDecodeError):
            text = ""
        if not text.isdigit():
            raise DamagedFileError(
                marker,
                "it is to hold the version of PostgreSQL",
                f"Restore {self._data_dir} from a back-up, or move it away to start empty.",
            )
        return text

    def _server_version(self) -> str:
        """Return the major version, as PG_VERSION has it."""
        words = self._run("postgres", "--version").split()
        return next(word for word in words if word[0].isdigit()).partition(".")[0]

    def _make_cluster(self, version: int) -> None:
        """Make a new cluster beside its final place: a half-made one never counts."""
        unfinished = self._data_dir.with_name(self._data_dir.name + ".new")
        if unfinished.exists():
            shutil.rmtree(unfinished)
        unfinished.mkdir(mode=0o700)
        self._give(unfinished)
        builtin = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        with tempfile.TemporaryFile(dir=self._state_dir) as password:
            password.write(f"{self._record.password}\n".encode())
            password.seek(0)
            if self._account:
                os.fchown(password.fileno(), self._account.uid, self._account.gid)
            self._run(
                "initdb",
                f"--pgdata={unfinished}",
                f"--username={_SUPERUSER}",
                f"--pwfile=/dev/fd/{password.fileno()}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
                *(builtin if version >= _BUILTIN_LOCALE_SINCE else []),
                *([] if self._durable else ["--no-sync"]),
                pass_fds=[password.fileno()],
            )
        with (unfinished / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write("\ninclude_if_exists = 'headroom.conf'\n")
        fsync = "on" if self._durable else "off"
        single = ["--single", "-D", str(unfinished), "-c", f"fsync={fsync}", "postgres"]
        self._run("postgres", *single, stdin=f"CREATE DATABASE {_DATABASE}\n")
        unfinished.rename(self._data_dir)

    def _run(
        self, program: str, *arguments: str, stdin: str = "", pass_fds: Sequence[int] = ()
    ) -> str:
        done = subprocess.run(  # noqa: S603 - commands are our own
            own_command([str(self._programs / program), *arguments], signal.SIGKILL, self._account),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
            pass_fds=tuple(pass_fds),
        )
        if done.returncode != 0:
            why = f"could not run {program} (status {done.returncode})"
            raise ServerFailedError(self.name, why, done.stdout.strip())
        return done.stdout

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, encoding="utf-8")
        self._give(path)

    def _give(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.uid, self._account.gid)


def _unprivileged() -> Account | None:
    """Return the user for Postgres, which refuses root; None when we are not root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise ServerFailedError(
        Postgres.name, "refuses to run as root, and there is no user postgres or nobody", ""
    )


def _owner_of(data_dir: Path) -> Account | None:
    """Return the owner of the data, if we are root and it is not ours."""
    if os.geteuid() != 0 or not data_dir.exists():
        return None
    status = data_dir.stat()
    return Account(status.st_uid, status.st_gid) if status.st_uid else None
