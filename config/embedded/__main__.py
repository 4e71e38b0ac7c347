"""Run a command beside embedded servers: `python -m config.embedded -- COMMAND…`."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from config.embedded.exceptions import EmbeddedError
from config.embedded.servers import EmbeddedServers
from config.embedded.spawn import spawn

_WATCH_S = 0.2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with DATABASE_URL and REDIS_URL set; return its exit status."""
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with EmbeddedServers(options.state_dir, durable=not options.fast) as servers:
            return _run(options.command, servers)
    except EmbeddedError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(command: Sequence[str], servers: EmbeddedServers) -> int:
    child = spawn(
        command,
        death_signal=signal.SIGTERM,
        env=os.environ | servers.environment | _owner(servers),
        # Of our session: it has the terminal, Ctrl-C included.
        new_session=False,
    )
    # A Ctrl-C is the command's to answer; we follow when it ends. A function and not SIG_IGN.
    signal.signal(signal.SIGINT, lambda _number, _frame: None)
    signal.signal(signal.SIGTERM, lambda _number, _frame: child.terminate())
    while True:
        try:
            status = child.wait(_WATCH_S)
        except subprocess.TimeoutExpired:
            servers.ensure_running()
        else:
            return status if status >= 0 else 128 - status


def _owner(servers: EmbeddedServers) -> dict[str, str]:
    """Return the environment that the command needs to migrate."""
    return {"DATABASE_OWNER_URL": servers.owner_url} if servers.owner_url else {}


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m config.embedded",
        description="Run COMMAND beside an embedded Postgres and Valkey.",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=Path(os.environ.get("HEADROOM_STATE_DIR", ".headroom")),
        help="where data is kept (default: HEADROOM_STATE_DIR, else .headroom)",
    )
    parser.add_argument(
        "--fast", action="store_true", help="do not sync to disk: for tests, not for data"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="after --")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
