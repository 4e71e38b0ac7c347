"""Headroom by place at /metrics: what was published last, and nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from policies import loop
from policies.headroom import exposition, live, metrics
from policies.headroom.exposition import Exposition, Row
from policies.scopes import ScopeKind
from telemetry import stream
from tests.builders.fleet import SmallFleet, small_fleet


def samples() -> dict[tuple[str, ...], float]:
    """Return the values by name and labels, in the order of the labels' names."""

    def each() -> Iterator[tuple[tuple[str, ...], float]]:
        for family in text_string_to_metric_families(metrics.generate().decode()):
            for sample in family.samples:
                labels = (sample.labels[name] for name in sorted(sample.labels))
                yield (sample.name.removeprefix("headroom_scope_"), *labels), sample.value

    return dict(each())


@pytest.fixture
def fleet() -> SmallFleet:
    return small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))


def test_a_round_of_the_loop_publishes_them(fleet: SmallFleet) -> None:
    fleet.report(at=(now := time.time()))
    done = loop.evaluate_once(now)
    assert done is not None
    assert done.failed == ()
    rack = live.current(now).powers[ScopeKind.RACK]
    found = samples()
    place = ("rack", "oslo/A01", "oslo")
    assert found["budget_watts", *place] == rack.budget_w[0]
    assert found["load_watts", *place] == rack.load_w[0]
    assert found["headroom_watts", *place] == rack.headroom_w[0]
    assert found["load_watts", "racks", "oslo", "oslo"] == pytest.approx(rack.load_w.sum())
    assert found["places", "rack", "yes"] == 2
    assert found["evaluated_timestamp_seconds",] == now


def test_a_rack_that_is_no_longer_among_the_tightest_leaves_no_series(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exposition.exposed, "__defaults__", (1,))
    now = time.time()
    for hot in ("oslo/A01", "oslo/A02"):
        nodes, now = fleet.nodes_of(hot), now + 2
        fleet.report(at=now, power_w=200.0)
        fleet.report(at=now + 0.5, only=nodes, power_w=600.0)
        exposition.publish(live.current(now + 0.5))
        racks = [key[2] for key in samples() if key[:2] == ("load_watts", "rack")]
        assert racks == [hot]


def test_claims_are_shown_by_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("rack", "oslo/A01", "oslo", 50e3, 49e3, 60.0, 300.0)
    found = Exposition(at=1.0, rows=(row,), shown={"rack": 1}, left_out={"rack": 7})
    monkeypatch.setattr(exposition, "read", lambda: found)
    shown = samples()
    over = {key[1]: value for key, value in shown.items() if key[0] == "over_budget_in_seconds"}
    assert over == {"earliest": 60.0, "latest": 300.0}
    assert shown["places", "rack", "no"] == 7
    assert not any(math.isnan(value) for value in shown.values())


def test_links_are_told_in_bytes(fleet: SmallFleet) -> None:
    fleet.report(at=(now := time.time()), links={"oslo/A01/uplink": 6e10})
    exposition.publish(headroom := live.current(now))
    found, link = samples(), headroom.table(ScopeKind.LINK).row("oslo/A01/uplink")
    place = ("link", "oslo/A01/uplink", "oslo")
    assert found["capacity_bytes_per_second", *place] == link["link_capacity_bits_per_s"] / 8
    assert found["headroom_bytes_per_second", *place] == link["link_headroom_bits_per_s"] / 8
    assert found["load_bytes_per_second", *place] == pytest.approx(6e10)


def test_what_nobody_renews_is_no_longer_shown(fleet: SmallFleet) -> None:
    fleet.report()
    exposition.publish(live.current(time.time()))
    assert 0 < stream.connection().ttl("headroom:exposition") <= 30
    stream.connection().delete("headroom:exposition")
    assert samples() == {}


def test_without_redis_there_are_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> None:
        raise redis.ConnectionError

    monkeypatch.setattr(exposition, "read", away)
    assert samples() == {}
