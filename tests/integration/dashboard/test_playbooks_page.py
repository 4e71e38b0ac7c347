"""The pages of playbooks: what each is for, a dry run, versions and runs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from admission.allocation import open_attempts
from dashboard import moments
from policies.documents import life
from policies.headroom import live
from policies.playbooks import builtin
from policies.playbooks.models import PlaybookRun, PlaybookVersion
from policies.playbooks.versions import PLAYBOOKS
from policies.restrictions.models import Restriction
from tests.builders.accounts import client_of, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_attempt, make_job
from tests.builders.policies import ASKS, make_playbook, make_run, open_incident
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of

URL = "/playbooks/"
REVIEW = "/documents/playbooks/"


@pytest.fixture(autouse=True)
def fleet(small: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> SmallFleet:
    monkeypatch.setattr("celery.current_app.send_task", lambda *_args, **_options: None)
    live.invalidate()
    small.report()
    return small


def opened(client: Client, path: str = URL, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return text_of(html_of(response))


def followed(client: Client, path: str, **given: Any) -> str:
    response = client.post(path, given, follow=True)
    assert response.status_code == 200
    return text_of(html_of(response))


class TestList:
    def test_nobody_sees_it_without_logging_in(self, client: Client) -> None:
        run = make_run(make_playbook())
        for path in (URL, f"{URL}cool-down/", f"/runs/{run.pk}/", f"/live/runs/{run.pk}"):
            assert client.get(path).status_code == 302

    def test_without_any_it_says_what_brings_them(self, viewer: Client) -> None:
        text = opened(viewer)
        assert "No playbooks yet" in text
        assert "python manage.py prepare" in text

    def test_each_says_what_it_is_for(self, viewer: Client) -> None:
        make_playbook()
        make_playbook(name="other", to="draft")
        text = opened(viewer)
        assert "1 playbook ready to run · none runs now · 1 draft to be reviewed" in text
        assert "Constraint Heat that the rack gives off" in text
        assert "Fails first GPUs slow down" in text
        assert "Costs to change later Minutes of every job" in text

    def test_runs_under_way_say_what_they_wait_for(self, viewer: Client) -> None:
        incident = open_incident()
        make_run(make_playbook(), incident)
        text = opened(viewer)
        assert "1 run under way · 1 waits for a person" in text
        assert f"2 of 3 asks: may-drain {incident.number}" in text

    def test_all_that_come_with_headroom_are_shown(
        self, viewer: Client, django_assert_max_num_queries: Any
    ) -> None:
        names = builtin.load()
        with django_assert_max_num_queries(15):
            text = opened(viewer)
        assert f"{len(names)} playbooks ready to run" in text
        for name in names:
            assert "Dry run on today's state" in opened(viewer, f"{URL}{name}/")


class TestOne:
    def test_one_that_is_not_there_is_not_found(self, viewer: Client) -> None:
        opened(viewer, f"{URL}nothing/", 404)
        make_playbook()
        opened(viewer, f"{URL}cool-down/?version=7", 404)

    def test_its_steps_are_listed(self, viewer: Client) -> None:
        make_playbook()
        text = opened(viewer, f"{URL}cool-down/")
        assert "1 stop restrict no_new_launches, until the run ends" in text
        assert "2 may-drain approve Drain [name]?" in text

    def test_a_dry_run_says_what_each_step_would_do_and_writes_nothing(
        self, viewer: Client
    ) -> None:
        make_playbook()
        text = opened(viewer, f"{URL}cool-down/?kind=rack&scope=oslo/A01")
        assert "on rack oslo/A01 it would take 3 steps" in text
        assert "no_new_launches on rack oslo/A01, which has 8 GPUs" in text
        assert "within 15m: Drain oslo/A01?" in text
        assert "the restriction is released" in text
        assert not PlaybookRun.objects.exists()
        assert not Restriction.objects.exists()

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("kind=rack&scope=oslo/none", "there is no rack 'oslo/none'"),
            ("kind=site&scope=oslo", "this playbook is not for a site: it is for: rack"),
            ("kind=moon&scope=oslo", "there is no kind &#x27;moon&#x27;"),
            ("kind=rack&scope=%3Cscript%3E%7F", "&lt;script&gt;"),
        ],
    )
    def test_a_scope_that_cannot_be_is_told(self, viewer: Client, query: str, said: str) -> None:
        make_playbook()
        text = opened(viewer, f"{URL}cool-down/?{query}", 400)
        assert said.replace("'", "&#x27;") in text

    def test_inputs_are_checked(self, viewer: Client) -> None:
        builtin.load()
        path = f"{URL}thermal-throttle/?kind=rack&scope=oslo/A01&input-cap_share="
        assert "is no number" in opened(viewer, f"{path}much", 400)
        assert "inputs.cap_share" in opened(viewer, f"{path}7", 400)
        assert "hold-launches" in opened(viewer, f"{path}0.7")

    def test_a_viewer_has_no_buttons_and_no_way_around_them(self, viewer: Client) -> None:
        make_playbook()
        make_playbook(to="draft")
        html = html_of(viewer.get(f"{URL}cool-down/?kind=rack&scope=oslo/A01"))
        assert 'method="post"' not in html[html.index("<main") : html.index("</main>")]
        scope = {"kind": "rack", "scope": "oslo/A01"}
        assert viewer.post(f"{URL}cool-down/start", scope).status_code == 403
        assert viewer.post(f"{REVIEW}cool-down/2/promote", {"to": "active"}).status_code == 403
        responder = client_of(Role.RESPONDER)
        assert responder.post(f"{REVIEW}cool-down/2/promote", {"to": "active"}).status_code == 403
        assert PlaybookVersion.objects.get(number=2).state == "draft"

    def test_a_responder_starts_it(self) -> None:
        make_playbook()
        client = client_of(Role.RESPONDER)
        said = followed(client, f"{URL}cool-down/start", kind="rack", scope="oslo/A01")
        assert "Run" in said
        assert PlaybookRun.objects.get().scope_name == "oslo/A01"
        assert AuditEntry.objects.filter(action="playbook.start").count() == 1
        wrong = followed(client, f"{URL}cool-down/start", kind="rack", scope="oslo/none")
        assert "there is no rack" in wrong

    def test_somebody_else_activates_a_draft(self) -> None:
        author = make_user(Role.OPERATOR)
        text = make_playbook(to="draft").text
        life.draft(PLAYBOOKS, author, text)
        client = Client()
        client.force_login(author)
        assert "you wrote it: somebody else has to let it" in opened(client, f"{URL}cool-down/")
        said = followed(client, f"{REVIEW}cool-down/2/promote", to="active")
        assert "somebody else has to let it count" in said
        said = followed(client_of(Role.OPERATOR), f"{REVIEW}cool-down/2/promote", to="active")
        assert "cool-down v2 is active" in said
        assert "has no state" in followed(client, f"{REVIEW}cool-down/2/promote", to="shadow")
        assert "is retired" in followed(client, f"{REVIEW}cool-down/2/retire", why="no use")

    def test_names_that_are_long_do_no_harm(self, viewer: Client) -> None:
        make_playbook(ASKS.replace("Drain {name}?", "Drain <b>" + "n" * 180 + "?"))
        html = html_of(viewer.get(f"{URL}cool-down/"))
        assert "<b>nnn" not in html


DRAINS = """\
- {id: all, restrict: {kind: drain}}
- {id: look, manual: {instruction: Look}, timeout: 1h}
"""


class TestTruth:
    def test_a_step_that_is_held_back_is_approved_on_its_page(self) -> None:
        responder = client_of(Role.RESPONDER)
        run = make_run(make_playbook(DRAINS.replace("drain}", "drain, scope: site}")))
        restriction = Restriction.objects.get()
        text = opened(responder, f"/runs/{run.pk}/")
        assert "waits for an answer to all" in text
        assert f"restriction {restriction.pk}" in text
        path = f"/runs/{run.pk}/approve"
        text = followed(responder, f"{path}?version={restriction.version + 1}", step="all")
        assert "it has changed since you looked" in text
        followed(responder, f"{path}?version={restriction.version}", step="all")
        restriction.refresh_from_db()
        assert restriction.state == "in_force"

    def test_a_drain_says_who_is_still_there_and_why(self, fleet: SmallFleet) -> None:
        responder = client_of(Role.RESPONDER)
        run = make_run(make_playbook(DRAINS))
        text = opened(responder, f"/runs/{run.pk}/")
        assert "oslo-a01-n1, oslo-a01-n2 are at work, for no job of Headroom" in text
        fleet.report(power_w=70.0, util=0.0)
        forget()
        assert "nothing runs there any more" in opened(responder, f"/runs/{run.pk}/")
        node = sorted(fleet.nodes_of("oslo/A01"))[0]
        for name, asks in (("stays", {}), ("leaves", {"preemptible": True})):
            job = make_job(name, state="running", asks=asks)
            make_attempt(job.phases.get(), {node: [0]}, racks=["oslo/A01"])
        forget()
        text = opened(responder, f"/runs/{run.pk}/")
        assert "2 jobs still there" in text
        assert "stays/train of vision may not be stopped, and runs to its end" in text
        assert "leaves/train of vision may be stopped, and has not been told yet" in text


def forget() -> None:
    """Have pages look anew at what they keep for some seconds."""
    moments.invalidate()
    open_attempts.invalidate()
