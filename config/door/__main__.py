"""Starts the web server: `python -m config.door`.

Granian takes this process over, once it may have as many files open as it is to hold connections.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
from collections.abc import Sequence

__all__ = ["flags", "main", "room_for"]

#: Connections that one web process holds: an agent for each of 12,500 nodes on either, and others.
CONNECTIONS = 16_384
#: Connections that the kernel may hold until a web process takes them.
BACKLOG = 4096
#: Files that a web process has open besides: code, logs, database, Redis, assets on their way.
_OTHER_FILES = 512
#: Headers have to come within this, and a connection without a request is closed after it, ms.
HEADER_TIMEOUT_MS = 30_000
#: The most that headers may hold, bytes.
HEADER_BYTES = 65_536


def main(arguments: Sequence[str] | None = None) -> None:
    """Become granian."""
    options = _parse(arguments)
    connections = room_for(options.connections, _raised_limit(options.connections + _OTHER_FILES))
    command = [sys.executable, "-m", "granian", *flags(options, connections)]
    os.execv(sys.executable, command)  # noqa: S606 - the program is this one


def room_for(wanted: int, files: int) -> int:
    """Return how many connections a process may hold that may have ``files`` files open.

    Says so where these are fewer than ``wanted``.
    """
    possible = max(files - _OTHER_FILES, _OTHER_FILES)
    if possible >= wanted:
        return wanted
    sys.stderr.write(
        f"warning: this process may have {files} files open, so it holds {possible} connections "
        f"at most instead of {wanted}. Raise the limit: `ulimit -Hn {wanted + _OTHER_FILES}`, "
        f"LimitNOFILE= of systemd, `--ulimit nofile=` of Docker.\n"
    )
    return possible


def _raised_limit(wanted: int) -> int:
    """Raise the limit of open files to ``wanted`` where needed and allowed; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return wanted if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


def flags(options: argparse.Namespace, connections: int) -> list[str]:
    """Return granian's options."""
    return [
        "--interface", "rsgi", "config.door.rsgi:application",
        "--host", options.host, "--port", str(options.port),
        "--http", "1", "--no-ws",
        "--workers", str(options.workers), "--loop", "auto",
        # Granian calls it backpressure, and counts connections of each process, not requests.
        "--backlog", str(BACKLOG), "--backpressure", str(connections),
        "--http1-header-read-timeout", str(HEADER_TIMEOUT_MS),
        "--http1-buffer-size", str(HEADER_BYTES),
        "--respawn-failed-workers", "--respawn-interval", "0.5",
        # Below the supervisor's own grace.
        "--workers-kill-timeout", "8",
    ]  # fmt: skip


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m config.door", description=__doc__)
    default = "(default: %(default)s)"
    parser.add_argument("--host", default="127.0.0.1", help=f"address to listen on {default}")
    parser.add_argument("--port", type=int, default=8000, help=f"port to listen on {default}")
    parser.add_argument("--workers", type=int, default=2, help=f"processes {default}")
    parser.add_argument(
        "--connections",
        type=int,
        default=CONNECTIONS,
        help=f"connections that each process holds {default}",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
