"""From firings to incidents, in the database."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import IntegrityError, InternalError, ProgrammingError, connections, transaction

from accounts.roles import Role
from fleet import snapshot
from policies.firings import Firing, Severity
from policies.incidents import actions, follow
from policies.incidents.models import Incident, IncidentMember, TimelineEntry
from tests.builders.accounts import make_user
from tests.builders.firings import NOW, make_firing
from tests.builders.fleet import SmallFleet, small_fleet

pytestmark = pytest.mark.django_db

LOST = make_firing(
    "power_domain oslo/feed-a1", "feed-loss", severity=Severity.CRITICAL, values={"power_use": 0.0}
)


def rack(number: int = 1, site: str = "oslo", **given: Any) -> Firing:
    return make_firing(f"rack {site}/A{number:02}", **given)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def kinds(incident: Incident) -> list[str]:
    return list(incident.timeline.values_list("kind", flat=True))


@pytest.mark.usefixtures("fleet")
class TestFiring:
    def test_a_firing_opens_an_incident_with_all_there_is_to_say(self) -> None:
        fired = rack(values={"thermal_margin_c": 3.5, "exhausted": float("inf"), "x": float("nan")})
        (incident,) = follow.fired([fired], now=NOW)
        incident.refresh_from_db()
        assert incident.state == "open"
        assert incident.title == "rack-heat: rack s1/A01 is too hot".replace("s1", "oslo")
        assert (incident.rule, incident.site, incident.severity) == ("rack-heat", "oslo", "warning")
        assert incident.scope == fired.scope
        assert incident.opened_at == NOW
        assert incident.notify_at == later(10)
        member = incident.members.get()
        assert member.key == fired.key
        assert member.values == {"thermal_margin_c": 3.5, "exhausted": "Infinity", "x": None}
        entry = incident.timeline.get()
        assert entry.kind == "opened"
        assert entry.data["firings"][0]["values"]["exhausted"] == "Infinity"

    def test_the_same_round_again_changes_nothing(self, django_assert_max_num_queries: Any) -> None:
        firings = [rack(1), rack(2), LOST]
        follow.fired(firings, now=NOW)
        before = list(TimelineEntry.objects.values())
        for seconds in (2, 4, 6):
            with django_assert_max_num_queries(12):
                assert follow.fired(firings, now=later(seconds)) == []
        assert list(TimelineEntry.objects.values()) == before
        assert Incident.objects.count() == 1

    def test_more_of_a_group_join(self) -> None:
        (incident,) = follow.fired([rack(1)], now=NOW)
        assert follow.fired([rack(2), rack(3)], now=later(60)) == []
        incident.refresh_from_db()
        assert incident.members.count() == 3
        assert incident.title == "rack-heat: 3 firings"
        assert kinds(incident) == ["opened", "joined"]
        # What was to be told at 10 s is told then.
        assert incident.notify_at == later(10)

    def test_other_sites_and_rules_are_other_incidents(self) -> None:
        opened = follow.fired([rack(), rack(site="bergen"), rack(rule="inlet")], now=NOW)
        assert len(opened) == 3

    def test_it_gets_worse(self) -> None:
        (incident,) = follow.fired([rack(1)], now=NOW)
        worse = replace(rack(1), severity=Severity.CRITICAL, version=2)
        follow.fired([worse], now=later(60))
        incident.refresh_from_db()
        assert incident.severity == "critical"
        assert kinds(incident) == ["opened", "severity"]
        assert incident.members.get().version == 2
        follow.fired([rack(1, version=2)], now=later(70))
        incident.refresh_from_db()
        assert incident.severity == "critical"  # the worst that it was

    def test_many_take_few_queries(self, django_assert_max_num_queries: Any) -> None:
        firings = [rack(number, rule=f"rule-{rule}") for number in range(500) for rule in range(4)]
        snapshot.current()
        with django_assert_max_num_queries(25):
            assert len(follow.fired(firings, now=NOW)) == 4
        assert IncidentMember.objects.count() == 2000
        with django_assert_max_num_queries(25):
            follow.cleared(firings, now=later(10))


@pytest.mark.usefixtures("fleet")
class TestClearing:
    def test_an_incident_resolves_after_a_quiet_time(self) -> None:
        (incident,) = follow.fired([rack(1), rack(2)], now=NOW)
        assert follow.cleared([rack(1)], now=later(60)) == []
        assert follow.cleared([rack(2)], now=later(90)) == []
        incident.refresh_from_db()
        assert (incident.state, incident.quiet_since) == ("open", later(90))
        assert not follow.has_quiet(now=later(209))
        assert follow.settle(now=later(209)) == []
        assert follow.has_quiet(now=later(210))
        assert follow.settle(now=later(210)) == [incident]
        incident.refresh_from_db()
        assert (incident.state, incident.resolved_at) == ("resolved", later(210))
        assert incident.notify_at == later(210)
        assert kinds(incident) == ["opened", "cleared", "cleared", "resolved"]

    def test_one_that_fires_again_before_stays_open(self) -> None:
        (incident,) = follow.fired([rack()], now=NOW)
        follow.cleared([rack()], now=later(60))
        again = replace(rack(), since=later(100), at=later(110))
        # Nothing fired in it, so whoever runs playbooks hears of it again.
        assert follow.fired([again], now=later(110)) == [incident]
        assert follow.settle(now=later(300)) == []
        member = incident.members.get()
        assert (member.times, member.since, member.cleared_at) == (2, later(100), None)
        incident.refresh_from_db()
        assert incident.quiet_since is None
        assert kinds(incident) == ["opened", "cleared", "fired_again"]

    def test_flapping_opens_the_same_one_again(self) -> None:
        (incident,) = follow.fired([rack()], now=NOW)
        actions.acknowledge(make_user(Role.RESPONDER), incident, now=later(5))
        follow.cleared([rack()], now=later(60))
        follow.settle(now=later(200))
        assert follow.fired([rack(2)], now=later(400)) == [incident]
        incident.refresh_from_db()
        assert (incident.state, incident.reopened_count) == ("open", 1)
        assert incident.resolved_at is None
        assert incident.acknowledged_by == ""
        assert Incident.objects.count() == 1
        assert kinds(incident)[-1] == "reopened"

    def test_after_that_time_it_is_a_new_one(self) -> None:
        (first,) = follow.fired([rack()], now=NOW)
        follow.cleared([rack()], now=later(60))
        follow.settle(now=later(200))
        (second,) = follow.fired([rack()], now=later(200 + 30 * 60 + 1))
        assert second != first
        assert second.number == f"INC-{second.pk}"

    def test_what_never_fired_cannot_clear(self) -> None:
        assert follow.cleared([rack()], now=NOW) == []
        assert not TimelineEntry.objects.exists()

    def test_clearing_twice_is_clearing_once(self) -> None:
        (incident,) = follow.fired([rack()], now=NOW)
        follow.cleared([rack()], now=later(60))
        follow.cleared([rack()], now=later(62))
        incident.refresh_from_db()
        assert incident.quiet_since == later(60)
        assert kinds(incident) == ["opened", "cleared"]


@pytest.mark.usefixtures("fleet")
class TestInhibition:
    def test_a_feed_loss_silences_its_racks(self) -> None:
        racks = [rack(number, values={"power_use": 0.0}) for number in (1, 2)]
        (incident,) = follow.fired([*racks, LOST], now=NOW)
        assert incident.rule == "feed-loss"
        assert incident.members.filter(inhibited_by=LOST.key).count() == 2
        assert Incident.objects.count() == 1
        assert "inhibited" in kinds(incident)

    def test_only_what_nothing_explains_is_handed_over_and_only_once(self) -> None:
        begun = follow.take([rack(1), rack(site="bergen"), LOST], now=NOW).begun
        assert {(f.key, i.rule) for f, i in begun} == {
            (LOST.key, "feed-loss"),
            (rack(site="bergen").key, "rack-heat"),
        }
        assert follow.take([rack(1), LOST], now=later(2)).begun == []

    def test_what_goes_on_after_the_feed_is_back_opens_its_own(self) -> None:
        (lost,) = follow.fired([rack(1), rack(2), LOST], now=NOW)
        follow.cleared([LOST, rack(2)], now=later(60))
        followed = follow.take([rack(1)], now=later(60))
        (own,) = followed.opened
        assert own.rule == "rack-heat"
        assert [firing.key for firing, _ in followed.begun] == [rack(1).key]
        lost.refresh_from_db()
        assert lost.quiet_since == later(60)
        assert kinds(lost)[-1] == "released"
        assert follow.take([rack(1)], now=later(62)) == follow.Followed([], [])

    def test_what_others_bring_to_light_waits_for_the_loop(self) -> None:
        follow.take([rack(1), LOST], now=NOW)
        follow.cleared([LOST], now=later(60))
        assert follow.take([], now=later(60), hand_over=False).begun == []
        (begun,) = follow.take([], now=later(62)).begun
        assert begun[0].key == rack(1).key
        assert begun[0].scope == rack(1).scope

    def test_racks_that_fired_before_are_hidden_in_their_own_incident(self) -> None:
        (own,) = follow.fired([rack(1)], now=NOW)
        follow.fired([rack(1), LOST], now=later(10))
        assert own.members.get().inhibited_by == LOST.key
        follow.cleared([LOST], now=later(20))
        follow.fired([rack(1)], now=later(20))
        own.refresh_from_db()
        assert own.members.get().inhibited_by == ""
        assert kinds(own) == ["opened", "inhibited", "uninhibited"]


@pytest.mark.usefixtures("fleet")
class TestClosing:
    def test_what_fires_on_stays_closed_until_it_has_cleared(self) -> None:
        actor = make_user(Role.RESPONDER)
        (incident,) = follow.fired([rack()], now=NOW)
        actions.close(actor, incident, "known, part is ordered", now=later(60))
        assert follow.fired([rack()], now=later(62)) == []
        incident.refresh_from_db()
        assert (incident.state, incident.resolved_by) == ("closed", actor.username)
        follow.cleared([rack()], now=later(100))
        again = replace(rack(), since=later(200))
        assert follow.fired([again], now=later(200)) == [incident]
        incident.refresh_from_db()
        assert incident.reopened_count == 1

    def test_a_resolved_one_cannot_be_closed(self) -> None:
        actor = make_user(Role.RESPONDER)
        (incident,) = follow.fired([rack()], now=NOW)
        actions.close(actor, incident, "x", now=later(60))
        for what in (actions.acknowledge,):
            with pytest.raises(actions.WrongState):
                what(actor, incident, now=later(61))


@pytest.mark.usefixtures("fleet")
class TestWhatNeverHappens:
    def test_a_timeline_is_not_rewritten(self) -> None:
        (incident,) = follow.fired([rack()], now=NOW)
        for change in (
            lambda: TimelineEntry.objects.update(text="nothing happened"),
            lambda: TimelineEntry.objects.all().delete(),
        ):
            with pytest.raises((InternalError, ProgrammingError)), transaction.atomic():
                change()
        assert kinds(incident) == ["opened"]

    def test_a_group_has_one_incident_that_is_not_resolved(self) -> None:
        (incident,) = follow.fired([rack()], now=NOW)
        incident.pk = None
        incident._state.adding = True
        with pytest.raises(IntegrityError, match="incident_one_per_group"):
            incident.save()


@pytest.mark.django_db(transaction=True)
def test_two_processes_that_see_the_same_open_one() -> None:
    small_fleet(racks_per_row=1, nodes_per_rack=1, gpus_per_node=1)
    firings = [rack(1), rack(1, site="bergen"), LOST]
    start = threading.Barrier(4)
    opened: list[list[Incident]] = []
    failed: list[Exception] = []

    def one() -> None:
        try:
            start.wait(60)
            opened.append(follow.fired(firings, now=NOW))
        except Exception as error:
            failed.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failed
    assert sorted(map(len, opened)) == [0, 0, 0, 2]
    assert Incident.objects.count() == 2
    assert IncidentMember.objects.count() == 3
    assert TimelineEntry.objects.filter(kind="opened").count() == 2


def test_nothing_of_a_round_is_left_when_it_fails_half_way(
    fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as broken:
        broken.setattr(TimelineEntry.objects, "bulk_create", fail)
        with pytest.raises(RuntimeError, match="killed"), transaction.atomic():
            follow.fired([rack()], now=NOW)
    assert not Incident.objects.exists()
    assert len(follow.fired([rack()], now=later(2))) == 1
