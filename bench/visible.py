"""From a push to the number on the screen: a browser with the heatmap open, a reading that changes.

The time begins when the agent sends the batch and ends when the rack's cell shows its value: web,
stream, writer, commit, live frame, the page's poll and its script. ``python -m bench ingest`` has
the part up to the live frame.
"""

from __future__ import annotations

import time

from playwright.sync_api import Page, sync_playwright

from bench import report
from bench.stack import Stack, running
from headroom.client import Client
from tests.browser.chromium import DESKTOP, FLAGS, executable
from tests.builders.batches import make_batch

READINGS = 40
_LIMIT_S = 20.0


def run() -> None:
    with running() as stack, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=FLAGS)
        context = browser.new_context(viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
        name, _, value = stack.credential("session_cookie").partition("=")
        context.add_cookies([{"name": name, "value": value, "url": stack.url}])
        operator = Client(stack.url, stack.credential("operator_token"))
        agent = _enroll(operator)
        page = context.new_page()
        agent.push(make_batch("bench", "bench-n1", 1, temp_c=30.0))
        _wait_for_racks(page, stack)
        times = [_seen(page, agent, seq) for seq in range(2, READINGS + 2)]
    report.show(
        "visible",
        {
            "visible_in_browser_p50_s": report.percentile(times, 0.5),
            "visible_in_browser_p95_s": report.percentile(times, 0.95),
            "visible_in_browser_worst_s": max(times),
            "readings": len(times),
        },
        {"visible_in_browser_p95_s": "from the push to the cell on the screen"},
    )


_INVENTORY = """
hardware_models:
  - {name: bench-gpu, kind: gpu, rated_w: 700, slowdown_c: 90, sm_max_mhz: 1980}
sites:
  - name: bench
    racks:
      - name: R1
        budget_w: 40000
        nodes:
          - {name: bench-n1, gpus: {model: bench-gpu, count: 8}}
"""


def _enroll(operator: Client) -> Client:
    operator.post_yaml("/api/v1/fleet/apply", _INVENTORY)
    made = operator.post("/api/v1/agents", {"name": "bench", "nodes": ["bench-n1"]})
    return operator.with_token(made["token"])


def _wait_for_racks(page: Page, stack: Stack) -> None:
    end = time.monotonic() + _LIMIT_S
    while time.monotonic() < end:
        page.goto(f"{stack.url}/?metric=heat&site=bench")
        if page.locator("#heatmap .cell").count():
            return
    raise TimeoutError("the rack does not appear on the heatmap")


def _seen(page: Page, agent: Client, seq: int) -> float:
    """Push a temperature that the cell does not show yet; return how long it takes to show it."""
    temp_c = 30.0 + seq % 50
    text = f"{90 - temp_c:.0f} °C"
    # Not in step with the page's poll, as real readings are not.
    time.sleep(0.37)
    began = time.perf_counter()
    agent.push(make_batch("bench", "bench-n1", seq, temp_c=temp_c))
    page.locator("#heatmap .cell span", has_text=text).wait_for(timeout=_LIMIT_S * 1000)
    return time.perf_counter() - began
