"""From a rule that fires to its run, to the next one, and to the end of the incident."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import pytest

from accounts.roles import Role
from policies.incidents import actions, follow
from policies.incidents.models import Delivery, Incident, IncidentMember, NotificationChannel
from policies.playbooks import runs
from policies.playbooks.models import PlaybookRun
from policies.playbooks.run_context import Conditions
from policies.restrictions.models import Restriction
from tests.builders.accounts import api_client, client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.policies import make_playbook
from tests.integration.policies.rules.test_loop import RULE, Clock, activate

pytestmark = pytest.mark.django_db

WITH_PLAYBOOK = RULE.replace("incident: {}", "incident: {playbook: cool-down}")
HOLDS = "- {id: away, restrict: {kind: prefer_away, until: cause}}"
FAILS = (
    "- {id: away, restrict: {kind: prefer_away, until: cause}}\n"
    "- {id: cap, restrict: {kind: power_cap_w, value: 20}}"
)


class Story(Clock):
    """Rounds of the loop, and of whoever moves runs on."""

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.now, UTC)

    def goes_on(self, temp_c: float, *, rounds: int = 1, every_s: float = 2.0) -> None:
        for _ in range(rounds):
            self.round(temp_c, every_s=every_s)
            for run_id in runs.due_runs(self.at):
                runs.advance(run_id, self.at, Conditions(self.at))
            follow.settle(now=self.at)
            follow.settle_closed(now=self.at)

    def run(self) -> PlaybookRun:
        found = PlaybookRun.objects.order_by("-pk").first()
        assert found is not None
        return found


@pytest.fixture
def story(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)
    activate(WITH_PLAYBOOK)
    return Story(fleet)


def held_by_runs() -> int:
    return Restriction.objects.live().filter(owner__startswith="playbook:").count()


def test_a_run_succeeds_when_its_rule_is_clear_and_only_then_is_its_incident_resolved(
    story: Story,
) -> None:
    make_playbook(HOLDS)
    story.goes_on(85.0, rounds=4)
    assert (story.run().state, story.run().rule, held_by_runs()) == ("verifying", "rack-hot", 1)
    PlaybookRun.objects.update(attempt=2)  # so it holds for 15 more minutes
    story.goes_on(70.0, rounds=4)
    assert (story.run().state, held_by_runs()) == ("verifying", 1)
    story.goes_on(70.0, rounds=7, every_s=20.0)
    incident = Incident.objects.get()
    assert incident.quiet_since is not None
    assert (story.at - incident.quiet_since).total_seconds() > 130.0
    assert incident.state == "open"
    story.goes_on(70.0, rounds=40, every_s=20.0)
    assert (story.run().state, story.run().why) == ("succeeded", "its rule is clear")
    assert held_by_runs() == 0
    assert Incident.objects.get().state == "resolved"
    assert PlaybookRun.objects.count() == 1


def test_one_that_mends_nothing_says_so_and_is_followed_by_another(story: Story) -> None:
    make_playbook(FAILS)
    NotificationChannel.objects.create(name="hook", kind="webhook", target="https://a.example")
    story.goes_on(85.0, rounds=4)
    first = story.run()
    assert (first.state, first.attempt, held_by_runs()) == ("failed", 1, 0)
    told = Incident.objects.get().timeline.get(kind="playbook_given_up")
    assert told.text.startswith("Given up while rule rack-hot fires (attempt 1): step cap:")
    (delivery,) = Delivery.objects.filter(key=first.key("given-up"))
    assert "rack oslo/A01: Given up while rule rack-hot fires" in delivery.subject
    story.goes_on(85.0, rounds=2, every_s=20.0)
    assert story.run().pk == first.pk
    story.goes_on(85.0, rounds=2, every_s=20.0)
    assert (story.run().attempt, PlaybookRun.objects.count()) == (2, 2)
    story.goes_on(85.0, rounds=6, every_s=20.0)
    assert (story.run().attempt, PlaybookRun.objects.count()) == (3, 3)


def test_what_a_person_ended_starts_again_only_when_it_fires_anew(story: Story) -> None:
    make_playbook(HOLDS)
    story.goes_on(85.0, rounds=4)
    ada = make_user(Role.OPERATOR)
    runs.abort(story.run().pk, user=ada, why="I do it", now=story.at)
    story.goes_on(85.0, rounds=10, every_s=20.0)
    assert PlaybookRun.objects.count() == 1
    assert Incident.objects.get().timeline.filter(kind="playbook_given_up").exists()
    story.goes_on(70.0, rounds=4)
    story.goes_on(85.0, rounds=4)
    assert (story.run().attempt, story.run().state) == (2, "verifying")


def test_an_incident_that_is_closed_while_it_fires_is_not_resolved_and_its_run_ends(
    story: Story,
) -> None:
    make_playbook(HOLDS)
    story.goes_on(85.0, rounds=4)
    ada = make_user(Role.OPERATOR)
    closed = actions.close(ada, Incident.objects.get(), "known", now=story.at)
    assert closed.state == "closed"
    story.goes_on(85.0, rounds=3)
    run = story.run()
    assert (run.state, run.ended_by, held_by_runs()) == ("aborted", ada.username, 0)
    assert Incident.objects.get().state == "closed"
    story.goes_on(70.0, rounds=4)
    assert Incident.objects.get().state == "resolved"
    assert not IncidentMember.objects.filter(cleared_at=None).exists()


def test_a_playbook_that_comes_late_starts_for_what_fires_already(story: Story) -> None:
    story.goes_on(85.0, rounds=4)
    assert not PlaybookRun.objects.exists()
    notes = Incident.objects.get().timeline.filter(kind="playbook")
    assert [each.text for each in notes] == [
        "Playbook cool-down could not be started: there is no active playbook 'cool-down'."
    ]
    make_playbook(HOLDS)
    story.goes_on(85.0, rounds=2)
    assert story.run().state == "verifying"


def test_page_and_api_tell_the_same_story_at_each_moment(story: Story) -> None:
    make_playbook(HOLDS)
    reader = client_of(Role.VIEWER)
    api = api_client(Role.VIEWER)

    def told() -> tuple[str, str]:
        incident = Incident.objects.get()
        shown = api.get(f"/api/v1/incidents/{incident.number}").json()
        html = reader.get(f"/incidents/{incident.pk}/").content.decode()
        page = " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())
        assert shown["now"] in page
        (answer,) = shown["answers"]
        assert answer["token"] == "cleared" or answer["text"] in page
        return shown["now"], answer["token"]

    story.goes_on(85.0, rounds=4)
    assert told()[1] == "active"
    run = story.run()
    assert re.search(rf"\(run {run.pk} verifying, \d restrictions in force\)$", told()[0])
    runs.abort(run.pk, user=make_user(Role.OPERATOR), why="I do it", now=story.at)
    assert told()[1] == "given_up"
    story.goes_on(70.0, rounds=4)
    assert told()[0].startswith("clear since ")
    story.goes_on(70.0, rounds=8, every_s=20.0)
    assert told()[0].startswith("resolved ")
