"""The policy loop on a real database: from a reading to a restriction, an incident, and back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection, transaction

from policies import loop
from policies.documents import life
from policies.headroom import live
from policies.incidents.models import Incident
from policies.restrictions.models import Restriction
from policies.rules.actions import RULES
from policies.rules.models import RuleEpisode, RuleFault, RuleProgress, RuleVersion
from tests.builders.fleet import SmallFleet

pytestmark = pytest.mark.django_db

RULE = """
name: rack-hot
scope: rack
severity: warning
summary: "Rack {name} has a GPU at {hottest_c}"
when: hottest_c > 80.0
for: 4s
clear: hottest_c < 75.0
clear_for: 4s
effects:
  - restrict: {kind: no_new_launches, lease: 60s}
  - restrict: {kind: power_cap_w, value: "650.0 - hottest_c * 5.0"}
  - incident: {}
"""
HOT = "oslo/A01"


def activate(text: str = RULE, to: str = "active", **more: Any) -> RuleVersion:
    return life.promote(RULES, "reviewer", life.draft(RULES, "author", text), to, **more)


class Clock:
    """Rounds of the loop, two seconds apart."""

    def __init__(self, fleet: SmallFleet) -> None:
        self.fleet = fleet
        self.now = time.time() - 100.0

    def round(
        self, temp_c: float = 60.0, *, rack: str = HOT, rounds: int = 1, every_s: float = 2.0
    ) -> loop.Round:
        """Have all report, the nodes of ``rack`` at ``temp_c``, and do rounds."""
        hot = self.fleet.nodes_of(rack)
        for _ in range(rounds):
            self.now += every_s
            self.fleet.report(at=self.now, temp_c=lambda n, _: temp_c if n in hot else 60.0)
            done = loop.evaluate_once(self.now)
        assert done is not None
        assert done.failed == ()
        return done


@pytest.fixture
def clock(fleet: SmallFleet) -> Clock:
    return Clock(fleet)


def in_force() -> set[tuple[str, str, float | None]]:
    rows = Restriction.objects.filter(state=Restriction.State.IN_FORCE)
    return set(rows.values_list("kind", "scope_name", "value"))


def test_a_rule_restricts_opens_an_incident_and_takes_it_back(clock: Clock) -> None:
    activate()
    clock.round(85.0, rounds=2)
    assert not in_force()
    assert clock.round(85.0).firing == 1
    assert in_force() == {("no_new_launches", HOT, None), ("power_cap_w", HOT, 225.0)}
    restriction = Restriction.objects.filter(kind="power_cap_w").get()
    assert restriction.owner == "rule:rack-hot"
    assert restriction.reason == f"Rack {HOT} has a GPU at 85 °C"
    (incident,) = Incident.objects.all()
    assert incident.rule == "rack-hot"
    (episode,) = RuleEpisode.objects.all()
    assert episode.values["hottest_c"] == 85.0
    assert episode.told_fired

    clock.round(70.0, rounds=2)
    assert in_force()
    clock.round(70.0)
    assert not in_force()
    episode.refresh_from_db()
    assert episode.cleared_at is not None
    assert episode.told_cleared
    assert RuleProgress.objects.get().scopes == {}
    assert Incident.objects.get().quiet_since is not None


def test_leases_are_renewed_while_the_rule_fires(clock: Clock) -> None:
    activate()
    clock.round(85.0, rounds=3)
    first = Restriction.objects.get(kind="no_new_launches").expires_at
    clock.round(85.0, rounds=2, every_s=10)
    assert Restriction.objects.get(kind="no_new_launches").expires_at == first
    clock.round(85.0, rounds=2, every_s=10)
    assert Restriction.objects.get(kind="no_new_launches").expires_at > first
    assert Restriction.objects.count() == 2
    assert RuleEpisode.objects.count() == 1
    assert Incident.objects.count() == 1


def test_a_restarted_worker_goes_on_where_it_was(clock: Clock) -> None:
    activate()
    clock.round(85.0, rounds=2)
    assert RuleProgress.objects.get().scopes[HOT][0] == 1
    live.invalidate()
    assert clock.round(85.0).firing == 1


@pytest.mark.django_db(transaction=True)
def test_two_loops_at_once_do_no_harm(clock: Clock) -> None:
    activate()
    clock.round(85.0, rounds=3)
    with loop.only_one() as held:
        assert held
        found: list[Any] = []

        def other() -> None:
            found.append(loop.evaluate_once(clock.now))
            connection.close()

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert found == [None]


def test_a_shadow_version_records_and_does_nothing(clock: Clock) -> None:
    activate(to="shadow")
    clock.round(85.0, rounds=4)
    assert not Restriction.objects.exists()
    assert not Incident.objects.exists()
    (episode,) = RuleEpisode.objects.all()
    assert (episode.mode, episode.scope_name) == ("shadow", HOT)
    assert [each["kind"] for each in episode.restricts] == ["no_new_launches", "power_cap_w"]
    clock.round(60.0, rounds=4)
    episode.refresh_from_db()
    assert episode.cleared_at is not None


def test_a_new_active_version_takes_over_without_a_gap(clock: Clock) -> None:
    activate()
    clock.round(85.0, rounds=3)
    newer = activate(RULE.replace("lease: 60s", "lease: 90s").replace("5.0", "4.0"))
    assert newer.number == 2
    assert RuleVersion.objects.get(number=1).state == "retired"
    clock.round(85.0)
    assert in_force() == {("no_new_launches", HOT, None), ("power_cap_w", HOT, 310.0)}
    assert Incident.objects.count() == 1
    assert RuleEpisode.objects.filter(cleared_at=None).get().version_id == newer.pk
    assert not Incident.objects.filter(quiet_since__isnull=False).exists()
    clock.round(60.0, rounds=4)
    assert not in_force()


def test_a_retired_rule_gives_back_what_it_restricts(clock: Clock) -> None:
    version = activate()
    clock.round(85.0, rounds=3)
    life.retire(RULES, "operator", version, why="too strict")
    clock.round(85.0)
    assert not in_force()
    assert Incident.objects.get().quiet_since is not None


def test_the_rack_of_a_canary_goes_from_version_to_version(clock: Clock) -> None:
    activate()
    clock.round(85.0, rounds=3)
    canary = activate(RULE.replace("5.0", "4.0"), to="canary", share=0.999)
    clock.round(85.0)
    assert RuleEpisode.objects.filter(cleared_at=None).get().version_id == canary.pk
    assert len(in_force()) == 2
    life.retire(RULES, "operator", canary, why="no better")
    clock.round(85.0)
    assert RuleEpisode.objects.filter(cleared_at=None).get().version.number == 1
    assert len(in_force()) == 2
    assert Incident.objects.count() == 1


@pytest.mark.parametrize("place", ["follow_rules", "restrict", "tell"])
@pytest.mark.parametrize("after", [pytest.param(False, marks=pytest.mark.slow), True])
def test_whatever_breaks_off_a_round_the_next_one_makes_good(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, place: str, after: bool
) -> None:
    activate()
    clock.round(85.0, rounds=2)
    real: Callable[..., Any] = getattr(loop, place)

    def dies(*args: Any) -> Any:
        if after:
            real(*args)
        raise SystemExit  # as when the process is told to end; no handler of ours takes it

    def one_that_dies(temp_c: float) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(loop, place, dies)
            clock.now += 2.0
            hot = clock.fleet.nodes_of(HOT)
            clock.fleet.report(at=clock.now, temp_c=lambda n, _: temp_c if n in hot else 60.0)
            with pytest.raises(SystemExit):
                loop.evaluate_once(clock.now)

    one_that_dies(85.0)
    clock.round(85.0)
    assert len(in_force()) == 2
    assert Incident.objects.count() == 1
    clock.round(60.0, rounds=2)
    one_that_dies(60.0)
    clock.round(60.0)
    assert not in_force()
    assert RuleEpisode.objects.get().told_cleared
    assert Incident.objects.get().quiet_since is not None


def test_a_part_that_fails_holds_up_no_other(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    activate()
    clock.round(85.0, rounds=2)

    def fails(_: datetime) -> None:
        raise RuntimeError("incidents are broken")

    with monkeypatch.context() as patched:
        patched.setattr(loop, "tell", fails)
        clock.now += 2.0
        hot = clock.fleet.nodes_of(HOT)
        clock.fleet.report(at=clock.now, temp_c=lambda n, _: 85.0 if n in hot else 60.0)
        done = loop.evaluate_once(clock.now)
    assert done is not None
    assert done.failed == ("incidents",)
    assert len(in_force()) == 2
    clock.round(85.0)
    assert Incident.objects.count() == 1


def test_what_came_and_went_before_anybody_was_told_is_told_as_both(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    activate()
    clock.round(85.0, rounds=2)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "tell", lambda _: None)
        clock.round(85.0)
        clock.round(60.0, rounds=3)
    clock.round(60.0)
    assert Incident.objects.get().quiet_since is not None


def test_a_fault_is_kept_while_it_lasts(clock: Clock) -> None:
    text = RULE.replace("hottest_c > 80.0", "hottest_c / throttling > 80.0")
    text = text.replace("clear: hottest_c", "clear: hottest_c / throttling")
    version = activate(text)
    clock.round(60.0)
    fault = RuleFault.objects.get()
    assert (fault.version_id, fault.status) == (version.pk, "divided_by_zero")
    assert fault.count == len(clock.fleet.racks)
    clock.fleet.report(at=clock.now + 2, throttle=0x20)
    clock.now += 2
    loop.evaluate_once(clock.now)
    assert not RuleFault.objects.exists()


def test_versions_cannot_be_changed_in_the_database() -> None:
    version = life.draft(RULES, "author", RULE)
    with pytest.raises(Exception, match="never changes"), transaction.atomic():
        RuleVersion.objects.filter(pk=version.pk).update(text="name: other")
    assert version.created_at <= datetime.now(UTC)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_after_any_order_of_faults_nothing_is_left_behind(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Every effect is undone when its cause ends, also after crashes (invariant 7)."""
    activate()
    chance = random.Random(seed)
    hot = clock.fleet.nodes_of(HOT)
    temp_c = 60.0
    for _ in range(25):
        temp_c = chance.choice([60.0, 78.0, 85.0, temp_c])
        clock.now += chance.choice([2.0, 2.0, 5.0, 40.0])
        clock.fleet.report(
            at=clock.now,
            temp_c=lambda n, _, t=temp_c: t if n in hot else 60.0,  # type: ignore[misc]
        )
        place = chance.choice(["", "", "follow_rules", "restrict", "tell"])
        with monkeypatch.context() as patched:
            if place:
                real, after = getattr(loop, place), chance.random() < 0.5
                patched.setattr(loop, place, _breaking(real, after=after))
            try:
                loop.evaluate_once(clock.now)
            except SystemExit:
                assert place
        if chance.random() < 0.1:
            activate(RULE.replace("5.0", f"{chance.uniform(3, 5):.2f}"))
        if chance.random() < 0.2:
            live.invalidate()
    clock.round(60.0, rounds=6)
    assert not Restriction.objects.live().exists()
    assert not RuleEpisode.objects.filter(cleared_at=None).exists()
    assert not RuleEpisode.objects.filter(told_cleared=False).exists()
    assert not Incident.objects.filter(quiet_since=None).exists()


def _breaking(real: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
    def breaks(*args: Any) -> Any:
        if after:
            real(*args)
        raise SystemExit

    return breaks
