"""Replays over recorded telemetry: the same columns as live, and what would have happened."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from django.db import connection

from fleet.models import Gpu
from policies.documents import life
from policies.restrictions import store
from policies.restrictions.kinds import RestrictionKind, Wanted
from policies.rules import actions, document, replays, under_way
from policies.rules.actions import RULES
from policies.rules.models import RuleReplay
from policies.rules.recorded import not_recorded
from policies.scopes import Scope, ScopeKind
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
    version = life.draft(RULES, "author", RULE)
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
    life.promote(RULES, "reviewer", life.draft(RULES, "author", RULE), "active")
    draft = life.draft(RULES, "author", RULE.replace("80.0", "90.0"))
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
    outcome = replays.result(life.draft(RULES, "author", RULE), start, start + 600)["version"]
    assert outcome["delayed_jobs"] == 1
    assert outcome["delayed_s"] == pytest.approx(390 - 210, abs=11)


def test_a_replay_is_run_once_and_kept(start: float) -> None:
    version = life.draft(RULES, "author", RULE)
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
    version = life.draft(RULES, "author", RULE)
    row = actions.ask_for_replay("author", version, start, start + 600)

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the cold tier is away")

    monkeypatch.setattr(replays, "outcomes", fails)
    replays.run(row.pk)
    row.refresh_from_db()
    assert (row.state, row.error) == ("failed", "OSError: the cold tier is away")
    assert row.finished_at is not None


def test_how_far_it_is_is_kept_after_each_piece(
    start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "_CELLS", 1)  # pieces of 60 steps
    row = actions.ask_for_replay("author", life.draft(RULES, "author", RULE), start - 900, start)
    noted: list[float] = []
    note = under_way.note

    def noting(replay_id: int, done_s: float) -> None:
        note(replay_id, done_s)
        shown = RuleReplay.objects.get(pk=replay_id)
        assert (shown.state, shown.whole_s) == ("running", 900.0)
        noted.append(shown.done_s)

    monkeypatch.setattr(under_way, "note", noting)
    replays.run(row.pk)
    assert noted == [600.0, 900.0]
    row.refresh_from_db()
    assert (row.state, row.done_s) == ("done", row.whole_s)


def test_one_whose_worker_has_ended_is_given_up(start: float) -> None:
    row = actions.ask_for_replay("author", life.draft(RULES, "author", RULE), start, start + 600)
    RuleReplay.objects.update(state="running", done_s=240.0)
    assert under_way.give_up_dead() == 1
    row.refresh_from_db()
    assert (row.state, row.error) == ("failed", under_way.WORKER_ENDED)
    assert (row.done_s, row.finished_at is None) == (240.0, False)
    assert under_way.give_up_dead() == 0


@pytest.mark.parametrize("state", ["waiting", "done"])
def test_one_that_does_not_run_is_not_given_up(start: float, state: str) -> None:
    actions.ask_for_replay("author", life.draft(RULES, "author", RULE), start, start + 600)
    RuleReplay.objects.update(state=state)
    assert under_way.give_up_dead() == 0
    assert RuleReplay.objects.get().state == state


@pytest.mark.django_db(transaction=True)
def test_one_that_another_process_runs_goes_on_and_is_begun_once() -> None:
    version = life.draft(RULES, "author", RULE)
    row = actions.ask_for_replay("author", version, 0.0, 600.0)
    other = psycopg.connect(**connection.get_connection_params())
    other.execute("SELECT pg_advisory_lock(%s, %s)", [under_way._LOCK_CLASS, row.pk])
    replays.run(row.pk)
    assert RuleReplay.objects.get().state == "waiting"
    RuleReplay.objects.update(state="running")
    assert under_way.give_up_dead() == 0
    end_session(other)
    assert under_way.give_up_dead() == 1


def end_session(other: psycopg.Connection[Any]) -> None:
    """End a session of the database, as that of a worker that is killed, and wait for that."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [other.info.backend_pid])
        assert cursor.fetchone() == (True,)
    other.close()


def test_a_worker_that_is_told_to_end_leaves_no_lock_behind(
    start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = actions.ask_for_replay("author", life.draft(RULES, "author", RULE), start, start + 600)

    def ends(*_: Any, **__: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(replays, "result", ends)
    with pytest.raises(SystemExit):
        replays.run(row.pk)
    assert under_way.give_up_dead() == 1


@pytest.mark.parametrize(
    ("start", "end"), [(100.0, 50.0), (0.0, 1e10), (0.0, 40 * 86_400.0), (50.0, 50.0)]
)
def test_a_span_that_cannot_be_is_refused(start: float, end: float) -> None:
    version = life.draft(RULES, "author", RULE)
    with pytest.raises(life.Refused):
        actions.ask_for_replay("author", version, start, end)


def test_what_is_not_recorded_is_told() -> None:
    rule = document.read(RULE.replace("hottest_c > 80.0", "hottest_c > 80.0 && lemon_gpus > 3.0"))
    assert not_recorded(rule.fields, step_s=10.0) == ["lemon_gpus"]


def test_long_spans_are_replayed_by_coarser_steps() -> None:
    assert replays._tier(3_600.0) == (Tier.RAW, 10.0)
    assert replays._tier(5 * 86_400.0) == (Tier.MINUTE, 60.0)
    assert replays._tier(30 * 86_400.0) == (Tier.HOUR, 3_600.0)


RISING = """
name: rising
scope: rack
severity: warning
summary: "Rack {name} draws {power_load_w}"
when: power_slope_w_per_s > 0.5 && power_exhausted_in_s > 0.0
for: 20s
clear: power_slope_w_per_s < 0.2
clear_for: 20s
effects:
  - incident: {}
"""


@pytest.fixture
def rise(fleet: SmallFleet) -> float:
    """Ten minutes of readings: after a minute, GPUs draw 1 W more each second for four minutes.

    They are read for five minutes before that, too: what is not read counts at its rating.
    """
    start = float(int(time.time() - 700.0))
    times = [start + STEP_S * step + 1 for step in range(-30, 60)]
    power_w = [100.0 + min(max(at - start - 60.0, 0.0), 240.0) for at in times]
    for gpu in Gpu.objects.all():
        write_samples(samples.GPU, gpu.pk, times, power_w=power_w, temp_c=60.0, throttle=0)
    return start


def test_what_a_load_has_done_is_known_in_a_replay(rise: float) -> None:
    found = replays.outcomes({"it": document.read(RISING)}, rise, rise + 600)["it"]
    assert {each["scope"] for each in found["episodes"]} == {"oslo/A01", "oslo/A02"}
    # The slope is of the last four minutes, so it lags behind.
    for each in found["episodes"]:
        assert rise + 80 < each["fired_at"] < rise + 240
        assert rise + 300 < each["cleared_at"] < rise + 560
    assert found["not_recorded"] == []
    assert found["without_reservations"] == ["power_exhausted_in_s"]


@pytest.mark.parametrize("text", [RULE, RISING], ids=["hot", "rising"])
def test_a_span_in_pieces_gives_what_it_gives_whole(
    rise: float, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = text.replace("hottest_c > 80.0", "hottest_c > 50.0").replace("< 75.0", "< 45.0")
    start, rule = rise, document.read(warm)
    whole = replays.outcomes({"it": rule}, start, start + 600)
    assert whole["it"]["firings"] > 0

    def in_pieces(*_: Any) -> list[Window]:
        before = Window(start - 3_600.0, start)
        return [before, *(Window(start + at, start + at + 200.0) for at in (0.0, 200.0, 400.0))]

    monkeypatch.setattr(replays, "_windows", in_pieces)
    assert replays.outcomes({"it": rule}, start, start + 600) == whole


def test_what_was_heard_before_the_span_is_silent_within_it(fleet: SmallFleet) -> None:
    start = float(int(time.time() - 700.0))
    for gpu in Gpu.objects.all():
        write_samples(samples.GPU, gpu.pk, [start - 1_800.0], power_w=400.0, temp_c=60.0)
    text = RULE.replace("hottest_c > 80.0", "stale_nodes > 1.0")
    rule = document.read(text.replace("hottest_c < 75.0", "stale_nodes < 1.0"))
    found = replays.outcomes({"it": rule}, start, start + 60)["it"]
    assert {each["scope"] for each in found["episodes"]} == {"oslo/A01", "oslo/A02"}


def test_a_cap_that_was_in_force_counts_in_a_replay(fleet: SmallFleet, start: float) -> None:
    cap = Wanted(
        kind=RestrictionKind.POWER_CAP_W, scope=Scope(ScopeKind.RACK, HOT), value=500.0,
        reason="it is hot", owner="user:ada", cause="heat",
        expires_at=datetime.fromtimestamp(start + 300, UTC),
    )  # fmt: skip
    store.apply([cap], now=datetime.fromtimestamp(start + 100, UTC))
    text = RISING.replace("scope: rack", "scope: gpu").replace(
        "power_slope_w_per_s < 0.2", "power_use < 0.7"
    )
    rule = document.read(re.sub("when: .*", "when: power_use > 0.75", text))
    found = replays.outcomes({"it": rule}, start, start + 600)["it"]
    assert {each["scope"].rpartition("/")[0] for each in found["episodes"]} == set(
        fleet.nodes_of(HOT)
    )
    for each in found["episodes"]:
        assert each["fired_at"] - start == pytest.approx(120)
        assert each["cleared_at"] - start == pytest.approx(320)
