"""30,000 requests that no client would send, to a whole installation: no 500, none slow.

Everything is a figure of one seed that nothing was mended with (``tests.fuzz.unseen_seed``).
``FUZZ_SEED`` and ``FUZZ_REQUESTS`` choose another seed and another number.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import os
import sys
import time
from collections import Counter
from typing import Any

import psutil

from bench import django_in, report
from bench.stack import Stack, running
from tests.fuzz import UNBOUNDED, unseen_seed

REQUESTS = 30_000
#: After each of so many, memory and logs are looked at, and who has lost his session logs in again.
_PART = 1_000


def run() -> None:
    requests = int(os.environ.get("FUZZ_REQUESTS", REQUESTS))
    seed = int(os.environ.get("FUZZ_SEED", unseen_seed()))
    began = time.monotonic()
    os.environ.update(UNBOUNDED)
    with running("--web-workers", "2") as stack:
        django_in.set_up(stack)
        found, tracebacks = _run(stack, seed, requests)
    figures = _figures(found, tracebacks, seed, time.monotonic() - began)
    report.show("fuzz", figures)
    if requests >= REQUESTS:
        report.keep("fuzz", figures)
    if found.faults or tracebacks or found.grew_too_much:
        sys.exit("a request brought about what none may")


def _run(stack: Stack, seed: int, requests: int) -> tuple[Any, list[str]]:
    from tests.builders.lively import make_lively
    from tests.fuzz import corpus, making, world
    from tests.fuzz import running as fuzzing

    agent = making.Identity(make_lively().token)
    admin = world.people()["admin"]
    known = corpus.gather(stack.url, admin.cookie, corpus.openapi())
    logs, tracebacks = fuzzing.Logs(stack.state_dir / "logs"), []
    found = fuzzing.Report()
    for start in range(0, requests, _PART):
        who = {**world.people(), "agent": agent}
        maker = making.Maker(known, who, seed, requests)
        part = range(start, min(start + _PART, requests))
        told = len(found.faults)
        fuzzing.run(stack.url, maker, part, report=found)
        new = logs.tracebacks()
        print(*found.faults[told:], *new, sep="\n", file=sys.stderr, flush=True)
        tracebacks += new
        found.memory_mib.append(sum(map(_rss_mib, stack.pids("web"))))
        print(
            f"{found.requests} requests, {len(found.faults)} faults, {len(tracebacks)} tracebacks,"
            f" {found.memory_mib[-1]:.0f} MiB, slowest {found.slowest_s:.1f} s",
            file=sys.stderr,
        )
    told = len(found.faults)
    fuzzing.send_slow_again(stack.url, found)
    print(*found.faults[told:], sep="\n", file=sys.stderr)
    return found, tracebacks


def _rss_mib(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.Error:
        return 0.0


def _figures(found: Any, tracebacks: list[str], seed: int, took_s: float) -> dict[str, Any]:
    classes = Counter(f"{status // 100}xx" for status in found.by_status.elements())
    return {
        "requests": found.requests,
        "seed": seed,
        "faults": len(found.faults),
        "tracebacks": len(tracebacks),
        "slowest_s": found.slowest_s,
        "over_5_s_at_first": len(found.slow),
        "memory_third_mib": found.memory_mib[len(found.memory_mib) // 3],
        "memory_end_mib": found.memory_mib[-1],
        "took_s": took_s,
        "by_class": dict(sorted(classes.items())),
        "by_status": {str(status): n for status, n in sorted(found.by_status.items())},
    }
