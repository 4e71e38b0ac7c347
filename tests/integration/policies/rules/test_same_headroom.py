"""A replay sees the headroom that live rules saw: of readings that went the real way."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fleet.models import HardwareModel, Meter
from headroom.contracts import MeterColumns, TelemetryBatch
from policies.headroom import live
from policies.rules import document, replays
from policies.scopes import ScopeKind
from tests.builders.fleet import SmallFleet, push, small_fleet

pytestmark = pytest.mark.django_db

RACK = "oslo/A01"
NODE, OTHER = "oslo-a01-n1", "oslo-a01-n2"
_RULE = """
name: seen
scope: {kind}
severity: warning
summary: "{{name}}"
when: {field} > {above}
clear: {field} < {below}
effects:
  - incident: {{}}
"""


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    return small_fleet(sites=("oslo",), rows=("A",), racks_per_row=1, gpus_per_node=8)


@pytest.fixture
def now() -> float:
    return float(int(time.time()))


def report_meter(fleet: SmallFleet, at: float, power_w: float) -> None:
    columns = MeterColumns(ts=[at], meter=["m1"], power_w=[power_w])
    batch = TelemetryBatch(
        agent=fleet.agent.name, boot_id="boot-2", seq=1, oldest_seq=1, sent_at=at, meters=columns
    )
    push(fleet.agent, batch, received_at=at)


def live_value(kind: ScopeKind, name: str, field: str, now: float) -> float:
    return float(live.current(now).table(kind).row(name)[field])


def fires_in_replay(kind: ScopeKind, name: str, field: str, above: float, now: float) -> bool:
    """Say whether a rule on ``field > above`` would fire on a scope at the end of a recording."""
    text = _RULE.format(kind=kind.value, field=field, above=above, below=above - 0.25)
    rule = document.read(text)
    found: Any = replays.outcomes({"it": rule}, now - 100.0, now)["it"]
    return any(e["scope"] == name and e["cleared_at"] is None for e in found["episodes"])


def assert_same(kind: ScopeKind, name: str, field: str, value: float, now: float) -> None:
    assert live_value(kind, name, field, now) == pytest.approx(value)
    assert fires_in_replay(kind, name, field, value - 0.5, now)
    assert not fires_in_replay(kind, name, field, value + 0.5, now)


def test_a_node_that_fell_silent_above_its_rating_is_not_taken_to_have_come_down(
    fleet: SmallFleet, now: float
) -> None:
    HardwareModel.objects.filter(kind="node").update(rated_w=4_600.0)
    fleet.report(at=now - 80.0, power_w=760.0)
    assert_same(ScopeKind.NODE, NODE, "power_load_w", 8 * 760.0 + 4_600.0, now)


def test_a_node_that_was_never_heard_is_not_there_yet(fleet: SmallFleet, now: float) -> None:
    fleet.report(at=now - 5.0, only=[NODE])
    assert_same(ScopeKind.RACK, RACK, "stale_nodes", 0.0, now)


def test_a_metered_node_with_a_silent_gpu_is_stale(fleet: SmallFleet, now: float) -> None:
    Meter.objects.create(name="m1", kind="power", node=fleet.nodes[NODE])
    fleet.report(at=now - 90.0)
    report_meter(fleet, now - 5.0, 6_000.0)
    fleet.gpus_per_node = 7
    fleet.report(at=now - 5.0, only=[NODE])
    fleet.gpus_per_node = 8
    fleet.report(at=now - 5.0, only=[OTHER])
    assert_same(ScopeKind.RACK, RACK, "stale_nodes", 1.0, now)
