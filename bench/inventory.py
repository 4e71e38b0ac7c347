"""Reading, planning and applying a whole inventory of 10,000 and 100,000 GPUs.

The floor is PyYAML's C parser alone over the same text in the same run.
"""

from __future__ import annotations

# What needs models is imported in functions: Django is set up when there is a server.
import time
from typing import Any

import yaml

from bench import django_in, report
from bench.stack import running

SIZES = (10_000, 100_000)


def run() -> None:
    with running() as stack:
        django_in.set_up(stack)
        figures: dict[str, Any] = {}
        for gpus in SIZES:
            figures |= _measure(gpus)
    report.show("inventory", figures)


def _measure(gpus: int) -> dict[str, float]:
    from fleet import inventory, snapshot
    from tests.builders.inventory import make_inventory

    label = f"{gpus // 1000}k"
    text = make_inventory(gpus=gpus)
    started = time.perf_counter()
    yaml.load(text, Loader=yaml.CSafeLoader)
    parsed_s = time.perf_counter() - started

    started = time.perf_counter()
    document = inventory.parse(text)
    todo = inventory.plan(document, inventory.read_state(), prune_sites=True)
    inventory.apply(todo, "bench")
    imported_s = time.perf_counter() - started

    started = time.perf_counter()
    again = inventory.plan(inventory.parse(text), inventory.read_state(), prune_sites=True)
    replanned_s = time.perf_counter() - started
    if again:
        raise RuntimeError("a second plan of the same file is not empty")

    started = time.perf_counter()
    snapshot.load()
    return {
        f"yaml_{label}_s": parsed_s,
        f"import_{label}_s": imported_s,
        f"plan_again_{label}_s": replanned_s,
        f"snapshot_{label}_s": time.perf_counter() - started,
    }
