"""Replays over recorded telemetry: the same columns as live, and what would have happened."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from django.db import connection

from fleet import snapshot
from fleet.models import Gpu, Meter
from policies.headroom import live
from policies.rules import actions, document, replays
from policies.rules.models import RuleReplay
from policies.rules.recorded import History, not_recorded
from policies.scopes import ScopeKind
from telemetry import samples
from telemetry.store.columns import Window
from telemetry.timeline.tiers import Tier
from tests.builders.fleet import SmallFleet, small_fleet
from tests.builders.readings import write_samples

pytestmark = pytest.mark.django_db

RULE = """
name: rack-hot
scope: rack
severity: warning
summary: "Rack {name} has a GPU at {hottest_c}"
when: hottest_c > 80.0
for: 20s
clear: hottest_c < 75.0
clear_for: 20s
effects:
  - restrict: {kind: no_new_launches}
  - incident: {}
  - notify: {channels: [ops]}
"""
HOT = "oslo/A01"
STEP_S = 10.0


@pytest.fixture
def fleet(db: None) -> SmallFleet:
    return small_fleet(sites=("oslo",), rows=("A",), racks_per_row=2, gpus_per_node=2)


@pytest.fixture
def start(fleet: SmallFleet) -> float:
    """Ten minutes of readings: rack A01 of Oslo is hot from the 2nd to the 6th minute."""
    start = float(int(time.time() - 700.0))
    hot = fleet.nodes_of(HOT)
    for gpu in Gpu.objects.select_related("node"):
        warm = [85.0 if 12 <= step < 36 else 60.0 for step in range(60)]
        write_samples(
            samples.GPU,
            gpu.pk,
            [start + STEP_S * step + 1 for step in range(60)],
            power_w=400.0,
            temp_c=warm if gpu.node.name in hot else 60.0,
            throttle=0,
        )
    return start


def test_a_replay_says_what_would_have_happened(start: float) -> None:
    version = actions.create_draft("author", RULE)
    found = replays.result(version, start, start + 600)
    outcome = found["version"]
    assert (outcome["firings"], outcome["scopes"], outcome["pages"]) == (1, 1, 2)
    (episode,) = outcome["episodes"]
    assert episode["scope"] == HOT
    assert episode["summary"] == f"Rack {HOT} has a GPU at 85 °C"
    # Hot from 120 s on; a step ends 10 s after it began.
    assert episode["fired_at"] - start == pytest.approx(150)
    assert episode["cleared_at"] - start == pytest.approx(390)
    assert outcome["restricted"] == {"no_new_launches": {"count": 1, "scope_s": 240.0}}
    assert max(outcome["series"]["firing"]) == 1
    assert outcome["not_recorded"] == []
    assert found["active_number"] is None


def test_the_active_version_is_run_beside_it(start: float) -> None:
    actions.promote("reviewer", actions.create_draft("author", RULE), "active")
    draft = actions.create_draft("author", RULE.replace("80.0", "90.0"))
    found = replays.result(draft, start, start + 600)
    assert found["version"]["firings"] == 0
    assert found["active"]["firings"] == 1
    assert found["active_number"] == 1


def test_jobs_that_would_have_waited_are_counted(fleet: SmallFleet, start: float) -> None:
    node = fleet.nodes_of(HOT)[0]
    gpu = fleet.gpu(node)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE gpu_sample SET job_id = 7 WHERE gpu_id = %s"
            " AND ts >= to_timestamp(%s) AND ts < to_timestamp(%s)",
            [gpu.pk, start + 200, start + 500],
        )
    outcome = replays.result(actions.create_draft("author", RULE), start, start + 600)["version"]
    assert outcome["delayed_jobs"] == 1
    assert outcome["delayed_s"] == pytest.approx(390 - 210, abs=11)


def test_a_replay_is_run_once_and_kept(start: float) -> None:
    version = actions.create_draft("author", RULE)
    row = actions.ask_for_replay("author", version, start, start + 600)
    replays.run(row.pk)
    row.refresh_from_db()
    assert (row.state, row.error) == ("done", "")
    assert row.result is not None
    assert row.result["version"]["firings"] == 1
    RuleReplay.objects.filter(pk=row.pk).update(result=None)
    replays.run(row.pk)
    row.refresh_from_db()
    assert row.result is None


def test_a_replay_that_fails_says_why(start: float, monkeypatch: pytest.MonkeyPatch) -> None:
    version = actions.create_draft("author", RULE)
    row = actions.ask_for_replay("author", version, start, start + 600)

    def fails(*_: Any) -> None:
        raise OSError("the cold tier is away")

    monkeypatch.setattr(replays, "outcomes", fails)
    replays.run(row.pk)
    row.refresh_from_db()
    assert (row.state, row.error) == ("failed", "OSError: the cold tier is away")
    assert row.finished_at is not None


@pytest.mark.parametrize(
    ("start", "end"), [(100.0, 50.0), (0.0, 1e10), (0.0, 40 * 86_400.0), (50.0, 50.0)]
)
def test_a_span_that_cannot_be_is_refused(start: float, end: float) -> None:
    version = actions.create_draft("author", RULE)
    with pytest.raises(actions.Refused):
        actions.ask_for_replay("author", version, start, end)


def test_what_is_not_recorded_is_told() -> None:
    rule = document.read(RULE.replace("hottest_c > 80.0", "hottest_c > 80.0 && lemon_gpus > 3.0"))
    assert not_recorded(rule.scope, rule.fields) == ["lemon_gpus"]


COMPARED = {
    ScopeKind.SITE: "power_load_w power_budget_w power_use power_headroom_w hottest_c gpus"
    " thermal_margin_c throttling throttling_share stale_nodes stale_share",
    ScopeKind.ZONE: "cooling_load_w cooling_use cooling_headroom_w hottest_c thermal_margin_c",
    ScopeKind.POWER_DOMAIN: "power_load_w power_use power_headroom_w failover_load_w"
    " failover_headroom_w power_confidence",
    ScopeKind.RACK: "power_load_w power_use power_confidence hottest_c thermal_margin_c"
    " shutdown_margin_c throttling throttling_share stale stale_nodes stale_share",
    ScopeKind.NODE: "power_load_w hottest_c thermal_margin_c throttling stale",
    ScopeKind.GPU: "power_load_w power_use hottest_c thermal_margin_c throttling stale",
    ScopeKind.LINK: "link_load_bits_per_s link_use link_headroom_bits_per_s stale is_wan",
}


@pytest.mark.parametrize("metered", [False, True])
def test_columns_are_those_of_live_headroom(fleet: SmallFleet, metered: bool) -> None:
    if metered:
        site = fleet.sites["oslo"]
        Meter.objects.create(name="m1", kind="power", rack=fleet.racks[HOT])
        Meter.objects.create(
            name="m2", kind="power", power_domain=site.power_domains.get(name="feed-a1")
        )
    now = float(int(time.time()))
    rng = np.random.default_rng(4)
    link = next(iter(fleet.links))
    fleet.report(
        at=now - 1.0,
        power_w=lambda n, i: 300.0 + 10.0 * i + float(rng.integers(100)),
        temp_c=lambda n, i: 60.0 + float(rng.integers(30)),
        throttle=lambda n, i: 0x20 if i == 1 else 0,
        links={link: 5e9},
    )
    headroom = live.current(now)
    kinds = set(COMPARED)
    window = Window(now - 100.0, now)
    fields = frozenset(" ".join(COMPARED.values()).split())
    readings = replays._readings(
        snapshot.fresh(), kinds, window, Tier.RAW, STEP_S, fields=fields, jobs=False
    )
    history = History(headroom, readings)
    for kind, names in COMPARED.items():
        found = history.columns(kind, frozenset(names.split()))
        table = headroom.table(kind)
        for name in names.split():
            made = found[name][-1] if found[name].ndim == 2 else found[name]
            expected = table.columns[name]
            if expected.dtype == bool:
                assert made.tolist() == expected.tolist(), (kind, name)
            else:
                np.testing.assert_allclose(
                    made, expected, rtol=1e-6, err_msg=f"{kind} {name}", equal_nan=True
                )


def test_long_spans_are_replayed_by_coarser_steps() -> None:
    assert replays._tier(3_600.0) == (Tier.RAW, 10.0)
    assert replays._tier(5 * 86_400.0) == (Tier.MINUTE, 60.0)
    assert replays._tier(30 * 86_400.0) == (Tier.HOUR, 3_600.0)


def test_a_span_in_pieces_gives_what_it_gives_whole(
    start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = document.read(RULE)
    whole = replays.outcomes({"version": rule}, start, start + 600)

    def in_pieces(*_: Any) -> list[Window]:
        return [Window(start + at, start + at + 200.0) for at in (0.0, 200.0, 400.0)]

    monkeypatch.setattr(replays, "_windows", in_pieces)
    assert replays.outcomes({"version": rule}, start, start + 600) == whole
