"""A primary and a standby that holds each commit before it is acknowledged: real servers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from config.embedded.binaries import find_postgres, readable_by
from config.embedded.ports import choose_port
from config.embedded.postgres import _unprivileged
from config.embedded.spawn import own_command, spawn
from tests.integration.embedded.helpers import serves, until

_NAME = "headroom"


class Pair:
    """Two servers. Whoever asks by ``url`` gets the one that takes writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._account = _unprivileged()
        programs = find_postgres()
        self._programs = readable_by(self._account, programs) if self._account else programs
        self._ports = [choose_port(), choose_port()]
        self._servers: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"postgresql://{_NAME}@{hosts}/{_NAME}?target_session_attrs=read-write"

    def start(self) -> None:
        """Make the primary and its standby, and wait until commits wait for both."""
        primary, standby = self._folder / "primary", self._folder / "standby"
        self._run(
            "initdb",
            "-D",
            str(primary),
            "-U",
            _NAME,
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        self._launch(0, primary, "-c", "synchronous_standby_names=*")
        with psycopg.connect(self._one(0, "postgres"), autocommit=True) as connection:
            connection.execute("SET synchronous_commit = local")
            connection.execute(f"CREATE DATABASE {_NAME}")
        self._run(
            "pg_basebackup", "-D", str(standby), "-R", "-X", "stream", "-c", "fast", "--no-sync",
            "-h", "127.0.0.1", "-p", str(self._ports[0]), "-U", _NAME,
        )  # fmt: skip
        self._launch(1, standby)
        assert until(self._is_synchronous, 30)

    def fail_over(self) -> None:
        """End the primary, and have the standby take its place."""
        self.end_primary()
        self.promote()

    def end_primary(self) -> None:
        """End the primary as a power cut would."""
        server = self._servers.pop(0)
        # Its children hold shared memory: all of them at once.
        for pid in _family(server.pid):
            os.kill(pid, signal.SIGKILL)
        server.wait()

    def promote(self) -> None:
        """Have the standby take writes."""
        with psycopg.connect(self._one(1), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 30)")

    def stop(self) -> None:
        for server in self._servers.values():
            server.send_signal(signal.SIGQUIT)
            server.wait(20)

    def _one(self, which: int, database: str = _NAME) -> str:
        return f"postgresql://{_NAME}@127.0.0.1:{self._ports[which]}/{database}"

    def _is_synchronous(self) -> bool:
        with psycopg.connect(self._one(0)) as connection:
            row = connection.execute("SELECT sync_state FROM pg_stat_replication").fetchone()
        return row == ("sync",)

    def _launch(self, which: int, data: Path, *flags: str) -> None:
        fixed = ("-c", "unix_socket_directories=", "-c", "max_connections=100")
        port = str(self._ports[which])
        with (self._folder / f"{data.name}.log").open("wb") as log:
            self._servers[which] = spawn(
                [str(self._programs / "postgres"), "-D", str(data), "-p", port, *fixed, *flags],
                death_signal=signal.SIGQUIT,
                account=self._account,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                cwd=Path("/"),
                output=log,
            )
        assert until(lambda: serves(self._one(which, "postgres")), 60)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(
            own_command(command, signal.SIGKILL, self._account),
            check=True,
            capture_output=True,
            cwd="/",
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )


def _family(pid: int) -> list[int]:
    from config.vitals import with_descendants

    return with_descendants([pid])[pid]


@contextmanager
def replicated() -> Iterator[Pair]:
    """Run both until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="headroom-pair-"))
    if account := _unprivileged():
        os.chown(folder, account.uid, account.gid)
    pair = Pair(folder)
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)
