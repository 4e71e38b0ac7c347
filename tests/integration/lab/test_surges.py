"""The demo under surges: load of no known owner goes up by surprise, and is held on the server.

``SURGE_S=3600`` in the environment holds each surge for an hour.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.stack import Stack
from headroom.client import Client
from lab.demo import Demo, Settings
from lab.surges import Surge, add
from tests.builders.demo import heard_demo, until
from tests.integration.policies.test_episode import text_of_page

pytestmark = pytest.mark.slow
BACK_WITHIN_S = 20.0
#: Each surge goes on for so long, and is held for the rest of it.
SURGE_S = float(os.environ.get("SURGE_S", "45"))
#: Before it comes a budget is made tight, and the load below it has settled, s.
SETTLES_S = 15.0
#: The kinds of scopes of what surges.
KINDS = {"zone": "zone", "rack": "rack", "feed": "power_domain"}


def loads(demo: Demo) -> dict[str, tuple[list[str], Any, Any]]:
    """Return names, loads and budgets of racks, zones and feeds, in W, as the twin has them.

    Of a feed it is what it would carry if the other one failed.
    """
    twin, fleet = demo.twin, demo.fleet
    domains = twin.domains
    zones = list(dict.fromkeys(f"{rack.site}/{rack.zone}" for rack in fleet.racks))
    zone_w = np.bincount(fleet.row_of_rack, twin.rack_w, len(zones))
    names = [f"{fleet.sites[s]}/{n}" for s, n in zip(domains.site, domains.names, strict=True)]
    racks = [f"{rack.site}/{rack.name}" for rack in fleet.racks]
    feeds = domains.of_kind("feed")
    return {
        "rack": (racks, twin.rack_w.copy(), twin.parts.rack_budget_w),
        "zone": (zones, zone_w, twin.parts.zone_capacity_w),
        "feed": (
            [names[i] for i in feeds],
            twin.domain_w[feeds] + twin.domain_w[domains.partner[feeds]],
            domains.budget_w[feeds],
        ),
    }


def tightest(demo: Demo, place: str) -> str:
    names, load_w, budget_w = loads(demo)[place]
    return names[int((load_w / budget_w).argmax())]


def narrow(operator: Client, demo: Demo, place: str, name: str) -> float:
    """Leave a place little more than it draws, W: the demo has room that a surge would not fill."""
    names, load_w, budget_w = loads(demo)[place]
    row = names.index(name)
    value = round(min(float(budget_w[row]), 1.03 * float(load_w[row])))
    operator.post(
        "/api/v1/restrictions",
        {
            "kind": "power_budget_w",
            "scope": {"kind": KINDS[place], "name": name},
            "value": value,
            "reason": "test",
            "for_s": SURGE_S + 20.0,
        },
    )
    return value


def test_each_surge_is_back_under_its_budget_within_twenty_seconds_and_held(
    stack: Stack, tmp_path: Path
) -> None:
    token = stack.credential("operator_token")
    operator = Client(stack.url, token)
    surges = tmp_path / "surges.json"
    with heard_demo(stack, token, Settings(gpus=256), surges=surges) as demo:
        until(lambda: operator.get("/api/v1/controller")["acting"] == demo.fleet.gpu_count, 60.0)
        for place in KINDS:
            name = tightest(demo, place)
            row = loads(demo)[place][0].index(name)
            budget_w = narrow(operator, demo, place, name)
            time.sleep(SETTLES_S)
            began = time.time()
            add(surges, Surge(place, name, 1.2, began + SURGE_S), began)
            seen = []
            while time.time() - began < SURGE_S:
                seen.append((time.time() - began, loads(demo)[place][1][row] / budget_w))
                time.sleep(0.25)
            over = [at for at, share in seen if share > 1.0]
            said = operator.get("/api/v1/controller")
            held = [each for each in said["budgets"] if each["scope"] == f"{KINDS[place]} {name}"]
            print(
                f"\n{place} {name}: most {max(share for _, share in seen):.3f}, over for the last "
                f"time after {max(over, default=0.0):.1f} s ({len(over) / 4:.1f} s in all), at the "
                f"end {seen[-1][1]:.3f}, {said['capped']} GPUs capped, "
                f"{said['taken_w'] / 1000:.1f} kW taken; {held}"
            )
            assert max(over, default=0.0) < BACK_WITHIN_S
            assert sum(each["gpus"] for each in held) > 0
            story(stack, operator, f"{KINDS[place]} {name}")


def story(stack: Stack, operator: Client, scope: str) -> None:
    """Check that pages, metrics and incidents tell the same of ``scope`` as the API does."""
    said = operator.get("/api/v1/controller")
    page = text_of_page(stack, "/")
    told = re.search(r"held by the controller: ([\d,]+) GPUs capped", page)
    assert told is not None, page[:500]
    assert int(told[1].replace(",", "")) == pytest.approx(said["capped"], rel=0.2)
    for each in operator.get("/api/v1/incidents")["results"]:
        its_scope = f"{each['scope_kind']} {each['scope_name']}"
        if each["state"] != "resolved" and its_scope == scope:
            shown = text_of_page(stack, f"/incidents/{each['number']}/")
            assert f"{scope}: held by the controller" in shown
