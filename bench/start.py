"""From the command to a server that is ready: the first start on an empty folder, and the next.

The requirements are installed already. The floor is a start of the Python interpreter that imports
Django.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from bench import report
from bench.stack import new_state_dir, running_on

STARTS = 5


def run() -> None:
    with new_state_dir() as state_dir:
        first_s = _start(state_dir)
        next_s = [_start(state_dir) for _ in range(STARTS)]
    report.show(
        "start",
        {
            "first_start_s": first_s,
            "next_start_p50_s": report.percentile(next_s, 0.5),
            "next_start_worst_s": max(next_s),
            "import_django_s": _import_django(),
        },
        {"first_start_s": "initdb, migrations and the first admin included"},
    )


def _start(state_dir: Path) -> float:
    began = time.perf_counter()
    with running_on(state_dir):
        return time.perf_counter() - began


def _import_django() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import django.core.management"], check=True)
    return time.perf_counter() - began
