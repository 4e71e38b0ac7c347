"""Both embedded servers over one state directory."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from config.embedded.postgres import Postgres
from config.embedded.server import Server
from config.embedded.state import StateLock, make_state_dir
from config.embedded.valkey import Valkey

__all__ = ["EmbeddedServers"]


class EmbeddedServers:
    """Postgres and Valkey, or one of them, running while this is entered.

    One launcher at a time holds a state directory. Not `durable` is for tests: a crash of the
    operating system may take data then, the death of a process may not.
    """

    def __init__(
        self,
        state_dir: Path,
        *,
        postgres: bool = True,
        valkey: bool = True,
        durable: bool = True,
    ) -> None:
        self.state_dir = make_state_dir(state_dir)
        self._lock = StateLock(self.state_dir / "headroom.lock", "Headroom")
        self._postgres = Postgres(self.state_dir, durable=durable) if postgres else None
        self._valkey = Valkey(self.state_dir, durable=durable) if valkey else None

    @property
    def database_url(self) -> str | None:
        """URL of the database, with its password; None when Postgres was not asked for."""
        return self._postgres.url if self._postgres else None

    @property
    def owner_url(self) -> str | None:
        """URL for the owner of the schema: for migrations, and no service."""
        return self._postgres.owner_url if self._postgres else None

    @property
    def superuser_url(self) -> str | None:
        """The same for the cluster's superuser: for launchers, and nobody else."""
        return self._postgres.superuser_url if self._postgres else None

    @property
    def redis_url(self) -> str | None:
        """URL of Valkey, with its password; None when it was not asked for."""
        return self._valkey.url if self._valkey else None

    @property
    def environment(self) -> dict[str, str]:
        """The URLs that there are, by the name of their setting."""
        urls = {"DATABASE_URL": self.database_url, "REDIS_URL": self.redis_url}
        return {name: url for name, url in urls.items() if url}

    @property
    def pids(self) -> dict[str, int | None]:
        """Process of each server by name, None while it is down."""
        return {server.name: server.pid for server in self._servers}

    def lock(self) -> None:
        """Take the state directory, or raise AlreadyRunningError. `start` does it as well."""
        self._lock.acquire()

    def start(self) -> None:
        """Start the servers asked for and return once they serve; all or nothing."""
        self._lock.acquire()
        try:
            for server in self._servers:
                server.start()
        except BaseException:
            self.stop()
            raise

    def ensure_running(self) -> list[str]:
        """Start dead servers again; return their names. Cheap, never waits: call it often."""
        return [server.name for server in self._servers if server.ensure_running()]

    def trim_logs(self) -> None:
        """Keep the servers' logs within bounds."""
        for server in self._servers:
            server.trim_log()

    def stop(self) -> None:
        """Stop Valkey, then Postgres, and give the state directory back."""
        try:
            for server in reversed(self._servers):
                server.stop()
        finally:
            self._lock.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def _servers(self) -> list[Server]:
        return [server for server in (self._postgres, self._valkey) if server]
