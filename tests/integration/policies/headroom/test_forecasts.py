"""Forecasts are kept, compared when they are due, and summed up."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fleet import snapshot
from fleet.models import Rack
from policies import current
from policies.headroom import budgets, forecasts, live, tasks
from policies.headroom.inputs import Limits, Outlook
from policies.headroom.models import ForecastScore
from policies.scopes import ScopeKind
from tests.builders.accounts import api_client
from tests.builders.fleet import SmallFleet, small_fleet


@pytest.fixture
def fleet() -> SmallFleet:
    return small_fleet(sites=("oslo",), racks_per_row=2, rows=("A",))


def a_minute(fleet: SmallFleet, at: float, power_w: float) -> int:
    fleet.report(at=at, power_w=power_w)
    return forecasts.score(live.current(at))


def test_a_forecast_is_compared_with_what_came_when_it_is_due(fleet: SmallFleet) -> None:
    start = 60.0 * (time.time() // 60 - 10)
    made = [a_minute(fleet, start + 60 * minute, 400.0) for minute in range(5)]
    # One site, three domains, one zone, two racks: a minute ahead, from the second minute on.
    assert made == [0, 7, 7, 7, 7]
    # And five minutes ahead.
    assert a_minute(fleet, start + 300, 450.0) == 14
    # Rows are of an hour each, and these minutes may be of two.
    counts: Counter[int] = Counter()
    for row in ForecastScore.objects.filter(kind="rack"):
        counts[row.horizon_s] += row.count
    assert counts == {60: 10, 300: 2}
    found = {
        each.kind: each.errors for each in forecasts.scores(start + 300) if each.horizon_s == 300
    }
    # It was flat, and rose by 8 · 50 W and what the hosts make of it.
    rise_w = 8 * 50 * 1.5
    assert found[ScopeKind.RACK].bias_w == pytest.approx(-rise_w, rel=1e-3)
    assert found[ScopeKind.RACK].percentile_w(0.95) == pytest.approx(rise_w, rel=0.16)
    assert found[ScopeKind.SITE].bias_w == pytest.approx(-2 * rise_w, rel=1e-3)
    # Nothing was shown but "as now".
    assert (found[ScopeKind.SITE].of_as_now, found[ScopeKind.SITE].shown) == (1.0, 0)


def test_it_is_done_once_a_minute_and_adds_up(fleet: SmallFleet) -> None:
    start = 60.0 * (time.time() // 60 - 20)
    for minute in range(8):
        a_minute(fleet, start + 60 * minute, 400.0)
        assert forecasts.score(live.current(start + 60 * minute + 1.5)) == 0
    row = ForecastScore.objects.filter(kind="rack", horizon_s=300)
    assert sum(each.count for each in row) == 6
    assert sum(sum(each.histogram) for each in row) == 6


def outlook_of(fleet: SmallFleet) -> Outlook:
    found = forecasts.outlook(snapshot.current())
    assert found is not None
    return found


def test_records_are_kept_by_what_they_are_of_when_the_inventory_changes(
    fleet: SmallFleet,
) -> None:
    start = 60.0 * (time.time() // 60 - 20)
    assert forecasts.outlook(snapshot.current()) is None
    for minute in range(4):
        a_minute(fleet, start + 60 * minute, 400.0)
    before = outlook_of(fleet)
    assert (before.record.compared[0] == 3).all()
    Rack.objects.order_by("name").first().delete()  # type: ignore[union-attr]
    snapshot.invalidate()
    after = outlook_of(fleet)
    assert len(after.silent) == len(before.silent) - 1
    np.testing.assert_array_equal(after.record.packed()[:, :-1], before.record.packed()[:, :-2])
    np.testing.assert_array_equal(after.record.packed()[:, -1], before.record.packed()[:, -1])


def test_a_load_is_not_compared_in_a_minute_in_which_nodes_fell_silent(fleet: SmallFleet) -> None:
    start = 60.0 * (time.time() // 60 - 20)
    for minute in range(3):
        a_minute(fleet, start + 60 * minute, 400.0)
    # Nothing is heard for a minute: all loads are assumed.
    live.invalidate()
    assert forecasts.score(live.current(start + 180)) == 0
    assert (outlook_of(fleet).record.fresh == 0).all()
    assert (outlook_of(fleet).record.compared[0] == 2).all()
    # Then all are assumed again, and alike.
    live.invalidate()
    assert forecasts.score(live.current(start + 240)) == 7


def test_claims_are_judged_by_budgets_as_restrictions_have_lowered_them(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.report()
    arrays, now = snapshot.current(), time.time()
    row = budgets.places(arrays)[ScopeKind.RACK].start
    known = Outlook.none(len(budgets.keys(arrays)))
    known.claims.from_[row], known.claims.upto[row] = now - 60.0, now + 600.0
    forecasts.keep(arrays, replace(known, at=now))
    lowered = {ScopeKind.RACK: np.array([1_000.0, np.inf])}
    limits = replace(Limits.none(arrays), budget_w=lowered)
    monkeypatch.setattr(current, "limits", lambda _now: limits)
    tasks.score_forecasts()
    assert outlook_of(fleet).claims.came_true[row] == 1


def test_old_scores_are_forgotten(fleet: SmallFleet) -> None:
    start = 60.0 * (time.time() // 60 - 10)
    for minute in range(6):
        a_minute(fleet, start + 60 * minute, 400.0)
    forecasts.prune(start + 29 * 86_400)
    assert ForecastScore.objects.exists()
    forecasts.prune(start + 32 * 86_400)
    assert not ForecastScore.objects.exists()


def test_the_api_shows_how_far_off_they_are(fleet: SmallFleet) -> None:
    start = 60.0 * (time.time() // 60 - 5)
    for minute in range(6):
        a_minute(fleet, start + 60 * minute, 400.0)
    answer = api_client().get("/api/v1/forecast-scores?hours=2").json()
    assert answer["hours"] == 2
    by_kind = {row["kind"]: row for row in answer["results"] if row["horizon_s"] == 300}
    assert by_kind["site"]["count"] == 1
    assert by_kind["site"]["p50_w"] <= 10.0
    assert by_kind["site"]["shown_share"] == 0.0
    assert by_kind["site"]["coverage"] is None
    assert {"kind": "site", "made": 0, "came_true": 0, "prevented": 0} in answer["claims"]
    refused = api_client().get("/api/v1/forecast-scores?hours=many")
    assert refused.status_code == 400
