"""Critical incidents are told of on every page."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from accounts.roles import Role
from dashboard import context
from policies.firings import Severity
from policies.incidents.models import Incident
from tests.builders.accounts import client_of
from tests.html import html_of

PATHS = ["/", "/queue/", "/incidents/", "/account/"]


def opened(severity: Severity = Severity.CRITICAL, scope: str = "rack oslo/A01") -> Incident:
    kind, _, name = scope.partition(" ")
    now = timezone.now()
    made = Incident.objects.create(
        title="feed-loss on oslo", group_key=f"{severity} {scope} {now}", rule="feed-loss",
        severity=severity, site="oslo", scope_kind=kind, scope_name=name, opened_at=now,
    )  # fmt: skip
    context.invalidate()
    return made


def badge(client: Client, path: str) -> str:
    """Return the badge of a page; empty where it is hidden."""
    html = html_of(client.get(path))
    tag, _, rest = html.partition('id="criticals"')[2].partition(">")
    return "" if "hidden" in tag else rest.partition("</a>")[0]


@pytest.mark.parametrize("path", PATHS)
def test_open_criticals_are_counted_on_every_page_and_others_are_not(path: str) -> None:
    client = client_of(Role.VIEWER)
    opened(Severity.WARNING)
    assert badge(client, path) == ""
    opened()
    closed = opened()
    assert '<b id="criticals-count">2</b> critical' in badge(client, path)
    Incident.objects.filter(pk=closed.pk).update(
        state=Incident.State.RESOLVED, resolved_at=timezone.now()
    )
    context.invalidate()
    assert '<b id="criticals-count">1</b> critical' in badge(client, path)


def test_the_pulse_of_open_pages_brings_the_count_up_to_date(viewer: Client) -> None:
    assert viewer.get("/live/pulse").json()["criticals"] == 0
    opened()
    assert viewer.get("/live/pulse").json()["criticals"] == 1


def test_an_incident_about_a_job_of_others_is_not_counted_for_who_may_not_see_it() -> None:
    opened(scope="job secret")
    assert badge(client_of(Role.OPERATOR), "/queue/")
    assert badge(client_of(Role.ML_USER), "/queue/") == ""


def test_who_is_not_signed_in_is_told_nothing() -> None:
    opened()
    assert "criticals" not in html_of(Client().get("/login/"))
