"""The parts of the server, each as a process: `python -m config.process worker`.

`make run` starts them all under its supervisor. Where something else keeps processes running
(containers, Kubernetes, systemd), it starts each by this command, so that its flags stand once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

__all__ = ["PARTS", "command", "main"]

# Quiet: no banner, which is not a log.
_CELERY = ("celery", "--quiet", "-A", "config")


def _worker(name: str, queues: str) -> tuple[str, ...]:
    return (
        *_CELERY, "worker", "--queues", queues, "--pool", "prefork", "--concurrency", "2",
        "--loglevel", "INFO", "--without-gossip", "--without-mingle", "-n", f"{name}@%h",
    )  # fmt: skip


#: What `python -m` is given to run each part.
PARTS: dict[str, tuple[str, ...]] = {
    "web": ("config.door",),
    "worker": _worker("worker", "readings,control"),
    "housekeeper": _worker("housekeeper", "housekeeping"),
    "beat": (*_CELERY, "beat", "--loglevel", "INFO"),
}


def command(part: str, *flags: str) -> tuple[str, ...]:
    """Return the command of a service, with more flags of its own."""
    return (sys.executable, "-m", *PARTS[part], *flags)


def main(arguments: Sequence[str] | None = None) -> None:
    """Become the part that is named."""
    parser = argparse.ArgumentParser(prog="python -m config.process", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="more flags of the part")
    options = parser.parse_args(arguments)
    os.execv(sys.executable, command(options.part, *options.flags))  # noqa: S606


if __name__ == "__main__":
    main()
