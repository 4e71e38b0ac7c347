"""The heatmap's data at 1,536, 10,000 and 100,000 GPUs: server time and bytes on the wire.

Each request finds a frame that has changed since the last, so nothing is answered from a cache;
``unchanged`` is what a page pays when nothing has. The ceiling is /healthz in the same run: what
the server and HTTP cost with no work at all. How soon pages can be used is that of
``bench.interactive``.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import time
from typing import Any

import numpy as np
import urllib3

from bench import django_in, interactive, report
from bench.stack import Stack, apart, running

SIZES = (1_536, 10_000, 100_000)
REQUESTS = 40
#: A web process serves one view of the fleet for half a second; then the next is made anew.
VIEW_S = 0.55


def run() -> None:
    with running("--web-workers", "1") as stack:
        django_in.set_up(stack)
        cookie = django_in.session_cookie()
        pool = urllib3.PoolManager(retries=False)
        figures: dict[str, Any] = {}
        for gpus in SIZES:
            _load_fleet(gpus)
            figures |= _measure(pool, stack, cookie, _label(gpus))
        figures["healthz_p95_ms"] = report.percentile(
            [_timed(pool, f"{stack.url}/healthz", {})[0] for _ in range(REQUESTS)], 0.95
        )
    figures |= apart(interactive.figures)
    report.show("pages", figures, interactive.NOTES)


def _label(gpus: int) -> str:
    return f"{gpus // 1000}k" if gpus % 1000 == 0 else str(gpus)


def _load_fleet(gpus: int) -> None:
    from fleet import inventory
    from tests.builders.inventory import make_inventory

    document = inventory.parse(make_inventory(gpus=gpus))
    inventory.apply(inventory.plan(document, inventory.read_state(), prune_sites=True), "bench")


def _touch_frame() -> None:
    """Write a new reading of every GPU, as a whole round of pushes would."""
    from fleet import snapshot
    from telemetry import samples
    from telemetry.frame import FrameWriter
    from telemetry.samples import NULL_INT, Rows

    ids = snapshot.current().gpus.ids
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {
        c.name: np.full(len(ids), np.nan if c.dtype.kind == "f" else NULL_INT, c.dtype)
        for c in samples.GPU.columns
    }
    columns |= {
        "ts": np.full(len(ids), time.time()),
        "gpu_id": ids,
        "power_w": rng.uniform(80, 700, len(ids)),
        "power_limit_w": np.full(len(ids), 700.0),
        "temp_c": rng.uniform(35, 86, len(ids)),
        "sm_mhz": rng.uniform(1200, 1980, len(ids)),
        "throttle": rng.choice([0, 0, 0, 4], len(ids)),
    }
    writer = FrameWriter(0)
    writer.update("gpu", Rows(samples.GPU, columns), time.time())
    writer.flush()


def _measure(
    pool: urllib3.PoolManager, stack: Stack, cookie: str, label: str
) -> dict[str, float | int]:
    url = f"{stack.url}/live/fleet?metric=tightest"
    headers = {"Cookie": cookie, "Accept-Encoding": "gzip"}
    _timed(pool, url, headers)
    fresh, size = [], 0
    for _ in range(REQUESTS):
        _touch_frame()
        time.sleep(VIEW_S)
        elapsed_ms, answer = _timed(pool, url, headers)
        fresh.append(elapsed_ms)
        size = max(size, len(answer.data))
    unchanged = []
    for _ in range(REQUESTS):
        etag = {"If-None-Match": answer.headers["ETag"]}
        elapsed_ms, answer_now = _timed(pool, url, headers | etag)
        unchanged.append(elapsed_ms)
        answer = answer_now if "ETag" in answer_now.headers else answer
    return {
        f"heatmap_{label}_p50_ms": report.percentile(fresh, 0.5),
        f"heatmap_{label}_p95_ms": report.percentile(fresh, 0.95),
        f"heatmap_{label}_unchanged_p95_ms": report.percentile(unchanged, 0.95),
        f"heatmap_{label}_bytes": size,
    }


def _timed(
    pool: urllib3.PoolManager, url: str, headers: dict[str, str]
) -> tuple[float, urllib3.BaseHTTPResponse]:
    """Return milliseconds and the answer, its body as it came over the wire."""
    started = time.perf_counter()
    answer = pool.request("GET", url, headers=headers, decode_content=False, redirect=False)
    elapsed_ms = (time.perf_counter() - started) * 1e3
    if answer.status not in (200, 304):
        raise RuntimeError(f"{url} answers {answer.status}")
    return elapsed_ms, answer
