"""The pages of service levels and their live panels."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from accounts.roles import Role
from admission.slos import builtin, measuring
from admission.slos.actions import SLOS
from admission.slos.models import Slo
from policies.documents import life
from tests.builders.accounts import client_of, make_user
from tests.builders.jobs import make_job, make_project
from tests.builders.slos import make_judged, make_sampled, make_slo
from tests.html import html_of
from tests.integration.dashboard.test_throttle_page import text_of


@pytest.fixture
def slo(db: None) -> Slo:
    return make_slo()


def judge(slo: Slo, *, good: int = 0, bad: int = 0, project: str = "vision") -> None:
    """Have events been judged just now, each of a job that is there."""
    for name in make_judged(slo, good=good, bad=bad, project=project):
        make_job(name, project=project)


def opened(client: Client, path: str = "/slos/") -> str:
    response = client.get(path)
    assert response.status_code == 200
    return html_of(response)


def test_nobody_sees_it_without_logging_in(client: Client, slo: Slo) -> None:
    for path in ("/slos/", "/slos/training-begins/", "/live/slos", "/live/slos/training-begins"):
        assert client.get(path).status_code == 302


def test_without_objectives_it_says_how_to_get_some(viewer: Client, db: None) -> None:
    html = opened(viewer)
    assert "No objectives yet" in html
    assert "manage.py prepare" in html


def test_what_was_never_measured_is_not_called_met(viewer: Client, slo: Slo) -> None:
    assert "1 objective, not measured yet" in text_of(opened(viewer))
    measuring.step(time.time())
    assert "1 objective, and no event to judge yet" in text_of(opened(viewer))


def test_the_answer_names_what_is_in_danger(viewer: Client, slo: Slo) -> None:
    judge(slo, good=17, bad=3)
    judge(make_slo("fine"), good=40, bad=1)
    text = text_of(opened(viewer))
    assert "1 of 2 objectives in danger · training-begins is missed: 85 % of 90 %" in text
    assert text.index("training-begins") < text.index("fine")


def test_the_answer_names_the_tightest_where_all_is_well(viewer: Client, slo: Slo) -> None:
    judge(slo, good=39, bad=1)
    make_slo("untested")
    text = text_of(opened(viewer))
    assert "2 objectives, none in danger · tightest: training-begins, 75 % of its budget" in text


def test_a_share_is_never_rounded_up_to_its_target(viewer: Client, slo: Slo) -> None:
    make_judged(slo, good=899, bad=101)
    text = text_of(opened(viewer, "/slos/training-begins/"))
    assert "missed : 89.9 % of 1,000 events in time, 90 % promised" in text


def test_the_panel_is_not_sent_again_while_nothing_changed(viewer: Client, slo: Slo) -> None:
    judge(slo, good=3)
    for live in ("/live/slos", "/live/slos/training-begins"):
        found = re.search(r'hx-get="([^"]+)"', opened(viewer, live))
        assert found is not None
        url = found[1].replace("&amp;", "&")
        assert viewer.get(url).status_code == 204
        judge(slo, bad=1)
        assert viewer.get(url).status_code == 200


def test_one_objective_shows_promise_budget_and_events(viewer: Client, slo: Slo) -> None:
    judge(slo, good=17, bad=3)
    html = opened(viewer, "/slos/training-begins/")
    text = text_of(html)
    assert "90 % of jobs begin within 10 min while power_headroom &gt; 0.2." in text
    assert "3 of 20 events" in text
    assert "3 of 20 events late" in html  # the bar of this hour
    assert len(re.findall(r"<td[^>]*>10 min</td>", html)) >= 20
    late = opened(viewer, "/slos/training-begins/?show=bad")
    found = re.findall(r'id="event-\d+" href="/jobs/([^"]+)/"', late)
    assert found == [f"training-begins-{number}" for number in (19, 18, 17)]
    assert text_of(late).count("in time") < text.count("in time")


def test_what_would_be_lost_elsewhere_is_shown_as_work_at_stake(viewer: Client, db: None) -> None:
    builtin.load()
    name = "checkpoints-elsewhere"
    promise = (
        "90 % of the time while uplink_use &lt;= 0.5, jobs would lose at most one checkpoint "
        "interval by a resume at another site."
    )
    assert promise in text_of(opened(viewer))
    text = text_of(opened(viewer, f"/slos/{name}/"))
    assert "no event of the last 7 d was under its condition, of a job that is told of" in text
    judge(Slo.objects.get(name=name), good=17, bad=3)
    text = text_of(opened(viewer, f"/slos/{name}/"))
    assert "at stake" in text
    assert "its clock" not in text


def test_where_its_condition_held_is_shown(viewer: Client, slo: Slo) -> None:
    make_sampled(10, oslo=0.5)
    make_sampled(5, bergen=0.5, tromso=0.1)
    text = text_of(opened(viewer, "/slos/training-begins/"))
    assert "oslo 100 %" in text
    # Half of the ten minutes, or less by what has begun of this one.
    assert re.search(r"bergen (4\d|50) %", text)
    assert "tromso 0 %" in text


def test_jobs_of_other_projects_count_and_are_not_named(slo: Slo) -> None:
    judge(slo, good=2, project="vision")
    judge(slo, bad=1, project="speech")
    user = make_user(Role.ML_USER)
    make_project("speech").members.add(user)
    client = Client()
    client.force_login(user)
    html = opened(client, "/slos/training-begins/")
    assert "of 3 events in time" in text_of(html)
    assert "training-begins-2" in html
    assert "training-begins-0" not in html


def test_its_versions_are_shown_to_all_and_written_by_operators(viewer: Client, slo: Slo) -> None:
    assert "/documents/slos/training-begins/" in opened(viewer, "/slos/training-begins/")
    url = "/documents/slos/training-begins/"
    assert "v1 is active, by anna" in text_of(opened(viewer, url))
    assert "edit-document" not in opened(viewer, url)
    assert "edit-document" in opened(client_of(Role.OPERATOR), url)
    assert viewer.get(f"{url}edit/").status_code == 403


def test_a_retired_objective_has_no_page(viewer: Client, slo: Slo) -> None:
    life.retire(SLOS, "anna", slo, why="no use")
    for path in ("/slos/training-begins/", "/live/slos/training-begins", "/slos/none/"):
        assert viewer.get(path).status_code == 404
