"""An agent for each of 12,500 nodes, connected and pushing, beside attackers and open browsers.

100,000 GPUs; each agent keeps its connection and pushes a batch of its node's 8 GPUs every ten
seconds. 64 attackers send headers and then a byte a second, from four addresses; 200 people have
the Fleet page open, each with a session of his own; ``/healthz`` is asked ten times a second, on a
new connection each time. Server, stores, worker and all clients share the cores.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from bench import django_in, report
from bench.stack import REPOSITORY, Stack, running

GPUS = 100_000
ATTACKERS = 64
BROWSERS = 200
WARM_UP_S = 90.0
#: Long enough for six readings of each GPU; what is measured for less is a look, and not kept.
WHOLE_MINUTES = 1.0
#: How often the live frame is looked at, s: so much may be too much in what is told.
_LOOK_S = 0.05


def run(*, minutes: float = WHOLE_MINUTES) -> None:
    """Measure for so long, print, and keep the figures of a whole run."""
    with running() as stack:
        django_in.set_up(stack)
        agents = _start(stack, "agents", gpus=GPUS, token_file=_token_file(stack))
        cookies = [django_in.session_cookie(f"browser-{i}") for i in range(BROWSERS)]
        others = _start(stack, "others", cookies=cookies, attackers=ATTACKERS)
        figures = _measure(stack, agents, others, minutes * 60)
    report.show("connections", figures, NOTES)
    if minutes >= WHOLE_MINUTES:
        print(f"kept in {report.keep('connections', figures)}")


NOTES = {
    "agents_refused": "pushes that were not answered with 202, or not before the next was due",
    "visible_p99_s": "from the reading to the live frame, of each GPU",
    "healthz_p99_ms": "on a new connection each time",
    "machine_share": "of all cores: web, worker, beat, Valkey and Postgres",
    "clients_share": "of all cores: agents, browsers, attackers",
    "load_1min": "of the machine, with whatever else ran on it",
}


def _token_file(stack: Stack) -> str:
    path = stack.state_dir / "bench-token"
    path.write_text(django_in.operator_token())
    return str(path)


def _start(stack: Stack, kind: str, **options: Any) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.crowd", kind],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _tell(process, {"url": stack.url, **options})
    return process


def _tell(process: subprocess.Popen[str], what: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def _wait_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "ready\n":
        if not line:
            raise RuntimeError(f"{process.args!r} has ended")


def _measure(
    stack: Stack,
    agents: subprocess.Popen[str],
    others: subprocess.Popen[str],
    measured_s: float,
) -> dict[str, Any]:
    for process in (agents, others):
        _wait_ready(process)
    begin = time.time() + WARM_UP_S
    for process in (agents, others):
        _tell(process, [begin, begin + measured_s])
    time.sleep(max(0.0, begin - time.time()))
    with ages_of_readings() as ages:
        before = stack.cpu_seconds()
        time.sleep(measured_s)
        used = {name: total - before[name] for name, total in stack.cpu_seconds().items()}
        load = os.getloadavg()[0]
    told = [json.loads(process.communicate()[0].splitlines()[-1]) for process in (agents, others)]
    used_shares = {
        name: used_s / measured_s / (os.cpu_count() or 1) for name, used_s in used.items()
    }
    return _figures(told[0], told[1], np.concatenate(ages), used_shares) | {"load_1min": load}


def _figures(
    agents: dict[str, Any], others: dict[str, Any], ages_s: Any, shares: dict[str, float]
) -> dict[str, Any]:
    cores = os.cpu_count() or 1
    pushes = agents["statuses"]["push"]
    taken = pushes.pop("202", 0)
    refused = sum(pushes.values()) + sum(agents["statuses"].get("late", {}).values())
    attacks = others["statuses"].get("attack", {})
    return {
        "healthz_p99_ms": 1e3 * report.percentile(others["took_s"]["healthz"], 0.99),
        "healthz_worst_ms": 1e3 * max(others["took_s"]["healthz"]),
        "agents_refused": refused,
        "visible_p50_s": float(np.quantile(ages_s, 0.5)),
        "visible_p99_s": float(np.quantile(ages_s, 0.99)),
        "agents": agents["agents"],
        "agents_reconnected": agents["reconnects"],
        "pushes": taken,
        "push_p50_ms": 1e3 * report.percentile(agents["took_s"]["push"], 0.5),
        "push_p99_ms": 1e3 * report.percentile(agents["took_s"]["push"], 0.99),
        "browsers": BROWSERS,
        "heatmap_p99_ms": 1e3 * report.percentile(others["took_s"]["heatmap"], 0.99),
        "panel_p99_ms": 1e3 * report.percentile(others["took_s"]["panel"], 0.99),
        "polls": sum(_count(others, kind) for kind in ("heatmap", "panel")),
        "polls_refused": sum(_refused(others, kind) for kind in ("heatmap", "panel")),
        "attackers": ATTACKERS,
        **{f"attacks_answered_{status}": count for status, count in sorted(attacks.items())},
        "machine_share": sum(shares.values()),
        **{f"machine_share_{name}": share for name, share in shares.items()},
        "clients_share": sum(each["cpu_s"] / each["ran_s"] for each in (agents, others)) / cores,
    }


def _count(told: dict[str, Any], kind: str) -> int:
    return sum(told["statuses"][kind].values())


def _refused(told: dict[str, Any], kind: str) -> int:
    fine = ("200", "204", "304")
    return sum(n for status, n in told["statuses"][kind].items() if status not in fine)


@contextmanager
def ages_of_readings() -> Iterator[list[Any]]:
    """Note for every reading that the live frame takes up in the block its age at that moment, s.

    Each GPU is compared with itself: what comes late is told too. Complete after the block.
    """
    from telemetry import frame

    ages: list[Any] = []
    done = threading.Event()

    def watch() -> None:
        live = frame.read()
        version, seen = live.version, live.gpu["ts"]
        while not done.wait(_LOOK_S):
            if frame.version() == version:
                continue
            live = frame.read()
            now, version, ts = time.time(), live.version, live.gpu["ts"]
            # The frame grows by GPUs that were never heard before.
            before = np.pad(seen, (0, len(ts) - len(seen)), constant_values=0.0)
            ages.append(now - ts[ts > before])
            seen = ts

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield ages
    finally:
        done.set()
        watcher.join()
