"""The pages of incidents, their live panels, and what people do on them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import AuditEntry
from accounts.roles import Role
from policies.firings import Severity
from policies.incidents import actions, follow
from policies.incidents.models import Incident, Silence
from policies.playbooks.models import PlaybookRun
from policies.restrictions.models import Restriction
from tests.builders.accounts import client_of, make_user
from tests.builders.firings import make_firing
from tests.builders.fleet import SmallFleet
from tests.builders.policies import make_playbook, make_rule, make_run, open_incident
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/incidents/"
HOSTILE = '<script>alert("x")</script>' + "n" * 173


@pytest.fixture(autouse=True)
def fleet(small: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> SmallFleet:
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)
    return small


@pytest.fixture
def responder() -> Client:
    return client_of(Role.RESPONDER)


def opened(client: Client, path: str = URL, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return html_of(response)


def page_of(incident: Incident) -> str:
    return f"{URL}{incident.pk}/"


def do(client: Client, incident: Incident, verb: str, **given: Any) -> str:
    """Do something with an incident, and return the text of the page that follows."""
    response = client.post(f"{page_of(incident)}{verb}", given, follow=True)
    return text_of(html_of(response))


def numbers_of(html: str) -> list[str]:
    return re.findall(r'id="incident-\d+" href="/incidents/\d+/">(INC-\d+)', html)


class TestList:
    def test_nobody_sees_it_without_logging_in(self, client: Client) -> None:
        incident = open_incident()
        for path in (URL, "/live/incidents", page_of(incident), f"/live/incidents/{incident.pk}"):
            assert client.get(path).status_code == 302
        assert client.post(f"{page_of(incident)}acknowledge").status_code == 302

    def test_without_any_it_says_what_would_open_one(self, viewer: Client) -> None:
        text = text_of(opened(viewer))
        assert "No incident is under way" in text
        assert "python manage.py prepare" in text
        assert "None in force" in text

    def test_the_answer_counts_and_names_the_first(self, viewer: Client) -> None:
        open_incident("rack oslo/A01", rule="mild", severity=Severity.INFO)
        worst = open_incident("rack oslo/A02", rule="bad", severity=Severity.CRITICAL)
        text = text_of(opened(viewer))
        assert "2 incidents under way: 2 open, 0 acknowledged · 1 critical, 1 info" in text
        assert "2 taken by nobody" in text
        assert f"first: {worst.number} bad: rack oslo/A02 is too hot, critical" in text

    def test_open_ones_come_first_the_worst_on_top(self, viewer: Client) -> None:
        user = make_user(Role.OPERATOR)
        now = timezone.now()
        closed = open_incident(rule="closed", severity=Severity.CRITICAL)
        actions.close(user, closed, "seen to", now=now)
        taken = open_incident(rule="taken", severity=Severity.CRITICAL)
        actions.acknowledge(user, taken, now=now)
        mild = open_incident(rule="mild", severity=Severity.INFO)
        bad = open_incident(rule="bad", severity=Severity.CRITICAL)
        wanted = [bad.number, mild.number, taken.number, closed.number]
        assert numbers_of(opened(viewer)) == wanted

    def test_filters_are_in_the_url(self, viewer: Client) -> None:
        oslo = open_incident("rack oslo/A01", "rack oslo/A02", rule="hot")
        bergen = open_incident("rack bergen/A01", rule="hot", severity=Severity.CRITICAL)
        found = {
            "?site=oslo": [oslo],
            "?severity=critical": [bergen],
            "?rule=hot&scope=oslo/A02": [oslo],
            "?state=resolved": [],
            "?assignee=nobody-at-all": [],
        }
        for query, wanted in found.items():
            assert numbers_of(opened(viewer, URL + query)) == [each.number for each in wanted]
        assert "No incident passes these filters" in text_of(opened(viewer, f"{URL}?rule=other"))

    def test_a_filter_that_is_none_is_told_and_left_out(self, viewer: Client) -> None:
        open_incident()
        html = opened(viewer, f"{URL}?state=happy&severity=zzz", 400)
        assert "there is no state &#x27;happy&#x27;, there is no severity &#x27;zzz&#x27;" in html
        assert len(numbers_of(html)) == 1

    def test_a_poll_brings_the_answer_along_and_then_nothing(self, viewer: Client) -> None:
        incident = open_incident()
        html = opened(viewer, "/live/incidents?site=oslo")
        assert 'id="incidents-answer" hx-swap-oob="true"' in html
        (path,) = re.findall(r'hx-get="(/live/incidents[^"]+)"', html)
        path = path.replace("&amp;", "&")
        assert "site=oslo" in path
        assert viewer.get(path).status_code == 204
        actions.acknowledge(make_user(Role.OPERATOR), incident, now=timezone.now())
        assert viewer.get(path).status_code == 200

    def test_a_list_of_many_costs_the_same(
        self, viewer: Client, django_assert_max_num_queries: Any
    ) -> None:
        for number in range(60):
            open_incident(f"rack oslo/A0{number % 3 + 1}", rule=f"rule-{number}")
        with django_assert_max_num_queries(20):
            html = opened(viewer)
        assert len(numbers_of(html)) == 50
        assert "page=2" in html

    def test_names_are_escaped_and_clipped(self, responder: Client) -> None:
        incident = open_incident("rack oslo/A01", rule=HOSTILE, summary=HOSTILE)
        for path in (URL, page_of(incident)):
            html = opened(responder, path)
            assert "<script>alert" not in html
            assert "&lt;script&gt;alert" in html


class TestOne:
    def test_one_that_is_not_there_is_not_found(self, viewer: Client) -> None:
        opened(viewer, f"{URL}1/", 404)
        opened(viewer, f"{URL}{2**70}/", 404)

    def test_it_is_found_by_either_way_of_writing_its_number(self, viewer: Client) -> None:
        incident = open_incident()
        assert incident.number in opened(viewer, f"{URL}{incident.number}/")
        # As notifications have it.
        answer = viewer.get(f"{URL}{incident.number}", follow=True)
        assert incident.number in html_of(answer)

    def test_the_answer_says_all_of_the_first_line(self, viewer: Client) -> None:
        make_rule()
        incident = open_incident("rack oslo/A01", "rack oslo/A02", severity=Severity.CRITICAL)
        make_run(make_playbook(), incident)
        text = text_of(opened(viewer, page_of(incident)))
        assert f"{incident.number} rack-hot" in text
        assert "critical · opened" in text
        assert "5 min ago · 2 of 2 firing · owner: nobody" in text
        assert "playbook cool-down waiting, step 2 of 3" in text
        assert 'href="/rules/rack-hot/"' in opened(viewer, page_of(incident))

    def test_a_firing_shows_what_its_condition_saw_and_leads_there(
        self, viewer: Client, fleet: SmallFleet
    ) -> None:
        values = {"thermal_margin_c": 3.5, "throttle_in_s": float("inf"), "power_load_w": 41_200.0}
        incident = open_incident("rack oslo/A01", values=values)
        html = opened(viewer, page_of(incident))
        assert f'href="/racks/{fleet.racks["oslo/A01"].pk}/"' in html
        text = text_of(html)
        assert "power_load_w 41.2 kW" in text
        assert "thermal_margin_c 3.5 °C" in text
        assert "throttle_in_s never" in text

    def test_its_chart_asks_for_its_figure(self, viewer: Client) -> None:
        incident = open_incident()
        html = opened(viewer, f"{page_of(incident)}?range=15m")
        assert f'data-figure="/api/v1/incidents/{incident.number}/figure"' in html
        assert 'data-query="range=15m"' in html

    def test_a_scope_that_has_gone_from_the_inventory_is_shown(self, viewer: Client) -> None:
        incident = open_incident("rack oslo/A01")
        incident.members.update(scope_name="oslo/gone")
        assert "rack oslo/gone" in opened(viewer, page_of(incident))

    def test_a_site_loss_shows_the_first_and_says_so(
        self, viewer: Client, django_assert_max_num_queries: Any
    ) -> None:
        now = timezone.now()
        prints = [{"fingerprint": str(number)} for number in range(300)]
        firings = [make_firing("rack oslo/A01", since=now, at=now, labels=p) for p in prints]
        (incident,) = follow.fired(firings, now=now)
        with django_assert_max_num_queries(40):
            text = text_of(opened(viewer, page_of(incident)))
        assert "300 of 300 firing" in text
        assert "the first 50" in text
        assert "288 more firings not drawn" in text

    def test_a_poll_brings_what_changed_and_then_nothing(self, viewer: Client) -> None:
        incident = open_incident()
        actions.close(make_user(Role.OPERATOR), incident, "seen to", now=timezone.now())
        Incident.objects.update(resolved_at=timezone.now() - timedelta(hours=1))
        html = opened(viewer, f"/live/incidents/{incident.pk}")
        assert 'id="incident-answer" hx-swap-oob="true"' in html
        (path,) = re.findall(r'hx-get="(/live/incidents/[^"]+)"', html)
        assert viewer.get(path).status_code == 204
        actions.comment(make_user(Role.OPERATOR), incident, "again?", now=timezone.now())
        assert "again?" in html_of(viewer.get(path))

    def test_a_resolved_one_says_how_it_ended(self, responder: Client) -> None:
        incident = open_incident()
        text = do(responder, incident, "close", close_reason="fans replaced")
        assert "closed" in text
        assert "fans replaced" in text
        assert "Acknowledge" not in text


class TestDoing:
    def test_a_viewer_has_no_buttons_and_no_way_around_them(self, viewer: Client) -> None:
        incident = open_incident()
        make_run(make_playbook(), incident)
        html = opened(viewer, page_of(incident))
        # But those of the chart, which ask for nothing but readings.
        main = html[html.index("<main") : html.index("</main>")]
        words = re.findall(r"<button[^>]*>\s*(.*?)\s*</button>", main)
        assert words == ["Show", "PNG"]
        for verb in ("acknowledge", "take", "assign", "comment", "close", "mute", "silence"):
            answer = viewer.post(f"{page_of(incident)}{verb}", {"text": "x", "close_reason": "x"})
            assert answer.status_code == 403
        incident.refresh_from_db()
        assert incident.state == "open"
        assert not Silence.objects.exists()

    def test_another_site_cannot_do_it(self, responder: Client) -> None:
        responder.handler.enforce_csrf_checks = True
        incident = open_incident()
        assert responder.post(f"{page_of(incident)}acknowledge").status_code == 403

    def test_acknowledging_takes_it_and_is_audited(self, responder: Client) -> None:
        incident = open_incident()
        assert "owner: you" in do(responder, incident, "acknowledge")
        incident.refresh_from_db()
        assert incident.state == "acknowledged"
        assert AuditEntry.objects.filter(action="incident.acknowledged").count() == 1

    def test_it_is_assigned_to_others_and_to_nobody(self, responder: Client) -> None:
        other = make_user(Role.OPERATOR)
        incident = open_incident()
        assert f"owner: {other.username}" in do(
            responder, incident, "assign", assignee=other.username
        )
        assert "owner: nobody" in do(responder, incident, "assign", assignee="")
        assert "there is no active user" in do(responder, incident, "assign", assignee="zoe")
        assert "owner: you" in do(responder, incident, "take")

    def test_comments_are_kept_and_empty_ones_refused(self, responder: Client) -> None:
        incident = open_incident()
        assert "Fan 3 is dead" in do(responder, incident, "comment", text="Fan 3 is dead")
        assert "the comment is empty" in do(responder, incident, "comment", text="  ")

    def test_one_firing_is_silenced_and_heard_again(self, responder: Client) -> None:
        incident = open_incident("rack oslo/A01", "rack oslo/A02")
        first, second = incident.members.order_by("pk")
        given = {f"mute_hours-{first.pk}": "1.5", f"mute_reason-{first.pk}": "known"}
        assert ": known" in do(responder, incident, "mute", member=first.pk, **given)
        first.refresh_from_db()
        second.refresh_from_db()
        assert first.muted_until is not None
        assert second.muted_until is None
        assert "is heard again" in do(responder, incident, "hear", member=first.pk)

    @pytest.mark.parametrize("hours", ["", "0", "-1", "nan", "1e9", "soon"])
    def test_a_silence_needs_a_time_that_is_one(self, responder: Client, hours: str) -> None:
        incident = open_incident()
        given = {"matchers": 'rule="rack-hot"', "hours": hours, "reason": "maintenance"}
        text = do(responder, incident, "silence", **given)
        assert "Give hours from now" in text
        assert "Nothing has been done" in text
        assert not Silence.objects.exists()

    def test_a_silence_by_matchers_begins_and_is_ended(self, responder: Client) -> None:
        incident = open_incident()
        page = responder.get(page_of(incident)).content.decode()
        assert "rule=&quot;rack-hot&quot;\nsite=&quot;oslo&quot;" in page
        given = {"matchers": 'rule="rack-hot"\r\n\r\nsite="oslo"', "hours": "2", "reason": "work"}
        assert "keeps what matches quiet until" in do(responder, incident, "silence", **given)
        silence = Silence.objects.get()
        assert silence.matchers == ['rule="rack-hot"', 'site="oslo"']
        assert "1 silence in force" in text_of(opened(responder))
        responder.post(f"/silences/{silence.pk}/end")
        assert "0 silences in force" in text_of(opened(responder))

    def test_a_wrong_matcher_is_told_and_what_was_written_stays(self, responder: Client) -> None:
        incident = open_incident()
        given = {"matchers": "colour=red", "hours": "3", "reason": "work"}
        response = responder.post(f"{page_of(incident)}silence", given)
        assert response.status_code == 400
        html = html_of(response)
        assert "is no field of a firing" in html
        assert "colour=red</textarea>" in html

    def test_what_does_not_fit_its_state_is_said(self, responder: Client) -> None:
        incident = open_incident()
        do(responder, incident, "close", close_reason="seen to")
        assert "is closed: it opens again by itself" in do(responder, incident, "acknowledge")

    def test_what_cannot_be_done_is_not_found(self, responder: Client) -> None:
        incident = open_incident()
        assert responder.post(f"{page_of(incident)}explode").status_code == 404
        assert responder.post(f"{page_of(incident)}mute", {"member": "1"}).status_code == 404
        assert responder.get(f"{page_of(incident)}acknowledge").status_code == 405


class TestRuns:
    @pytest.fixture
    def run(self) -> PlaybookRun:
        return make_run(make_playbook(), open_incident())

    def answer(self, client: Client, run: PlaybookRun, verb: str, **given: Any) -> str:
        response = client.post(f"/runs/{run.pk}/{verb}", given, follow=True)
        assert response.status_code == 200
        return text_of(html_of(response))

    def test_its_steps_say_where_it_is_and_until_when(
        self, viewer: Client, run: PlaybookRun
    ) -> None:
        html = opened(viewer, f"{URL}{run.incident_id}/")
        text = text_of(html)
        assert "✓ stop restrict done no_new_launches, until the run ends" in text
        assert "▶ may-drain approve waiting Drain oslo/A01?" in text
        assert "To be answered by: admin, operator" in text
        assert re.search(r'data-until="\d{10}"', html)

    def test_only_the_roles_of_the_step_may_answer(
        self, responder: Client, run: PlaybookRun
    ) -> None:
        assert "Approve" not in opened(responder, f"{URL}{run.incident_id}/")
        refused = responder.post(f"/runs/{run.pk}/approve", {"step": "may-drain"})
        assert refused.status_code == 403
        assert run.steps.get(step="may-drain").state == "waiting"

    def test_a_viewer_may_do_nothing(self, viewer: Client, run: PlaybookRun) -> None:
        for verb in ("approve", "refuse", "confirm", "pause", "resume", "abort", "undo"):
            assert viewer.post(f"/runs/{run.pk}/{verb}", {"step": "may-drain"}).status_code == 403

    def test_an_operator_approves_and_the_first_answer_counts(self, run: PlaybookRun) -> None:
        operator = client_of(Role.OPERATOR)
        note = {f"note-{run.pk}": "fans are on order"}
        said = self.answer(operator, run, "approve", step="may-drain", **note)
        assert "You have approved step may-drain" in said
        assert "fans are on order" in said
        again = self.answer(operator, run, "refuse", step="may-drain")
        assert "does not wait for anybody now" in again
        assert AuditEntry.objects.filter(action="playbook.approve").count() == 1

    def test_a_run_is_paused_resumed_and_undone(self, responder: Client, run: PlaybookRun) -> None:
        assert "The run is paused" in self.answer(responder, run, "pause")
        assert "The run goes on" in self.answer(responder, run, "resume")
        assert "Say why you undo the run" in self.answer(responder, run, "undo")
        said = self.answer(responder, run, "undo", **{f"why-{run.pk}": "false alarm"})
        assert "is taken back" in said
        run.refresh_from_db()
        assert run.state == "undoing"

    def test_an_abort_gives_back_what_is_held(self, responder: Client, run: PlaybookRun) -> None:
        assert Restriction.objects.in_force(timezone.now()).count() == 1
        said = self.answer(responder, run, "abort", **{f"why-{run.pk}": "false alarm"})
        assert "aborted" in said
        assert Restriction.objects.in_force(timezone.now()).count() == 0

    def test_a_run_has_a_page_of_its_own(self, viewer: Client, run: PlaybookRun) -> None:
        html = opened(viewer, f"/runs/{run.pk}/")
        assert "waits for an answer to may-drain" in text_of(html)
        (path,) = re.findall(r'hx-get="(/live/runs/[^"]+)"', html)
        assert viewer.get(path).status_code == 204
        opened(viewer, "/runs/1/", 404) if run.pk != 1 else None
