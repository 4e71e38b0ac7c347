"""Jobs that come with a token take the fast path; everything else the long one."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from accounts.models import ApiToken, User
from admission.jobs.models import Job
from config.metrics import HTTP_REQUESTS
from tests.integration.admission.jobs.conftest import client_as
from tests.unit.headroom.jobs.specs import make_spec

pytestmark = pytest.mark.django_db
URL = "/api/v1/jobs"
#: What only the middleware for pages put into a request.
OF_PAGES = {"session", "htmx"}


def post(client: Client, **given: Any) -> Any:
    return client.post(URL, make_spec(), content_type="application/json", **given)


def of_pages(answer: Any) -> set[str]:
    return set(answer.wsgi_request.__dict__) & OF_PAGES


def test_a_job_with_a_token_meets_no_session(ada: User) -> None:
    counter = HTTP_REQUESTS.labels("job-list", "POST", "201")
    before = counter._value.get()
    answer = post(client_as(ada))
    assert answer.status_code == 201, answer.content
    assert not of_pages(answer)
    assert answer.wsgi_request.user == ada
    assert answer["Content-Length"] == str(len(answer.content))
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Content-Security-Policy"] == "default-src 'none'"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert counter._value.get() == before + 1


def test_what_else_may_be_known_by_its_session_takes_the_long_way(ada: User) -> None:
    browser = Client()
    browser.force_login(ada)
    for answer in (
        post(browser),
        post(browser, headers={"Authorization": "Bearer hra_of-an-agent"}),
        client_as(ada).get(URL),
    ):
        assert answer.status_code in (200, 201), answer.content
        assert of_pages(answer) == OF_PAGES


def test_a_browser_needs_its_csrf_token_still(ada: User) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(ada)
    assert post(browser).status_code == 403
    assert not Job.objects.exists()


def test_errors_are_as_on_the_long_way(ada: User) -> None:
    client = client_as(ada)
    assert post(Client(headers={"Authorization": "Bearer hru_unknown"})).status_code == 401
    assert post(client, headers={"Host": "elsewhere.example"}).status_code == 400
    wrong = client.post(URL, {}, content_type="application/json")
    assert (wrong.status_code, wrong.json()["error"]["hint"] != "") == (400, True)
    assert client.post(URL, "a: 1", content_type="text/html").status_code == 415
    assert not Job.objects.exists()


def test_a_token_that_was_revoked_opens_nothing_more(ada: User) -> None:
    client = client_as(ada)
    assert post(client).status_code == 201
    ApiToken.objects.update(revoked_at=ada.date_joined)
    assert post(client).status_code == 401


def test_nor_does_one_of_somebody_who_is_not_active(ada: User) -> None:
    client = client_as(ada)
    ada.is_active = False
    ada.save()
    assert post(client).status_code == 401


def test_what_holds_for_all_requests_comes_before_the_fast_path() -> None:
    order = settings.MIDDLEWARE
    fast_path = order.index("admission.jobs.api.posts.SubmissionMiddleware")
    for before in (
        "config.metrics.RequestMetricsMiddleware",
        "config.requests.RequestLogMiddleware",
        "django.middleware.security.SecurityMiddleware",
    ):
        assert order.index(before) < fast_path
