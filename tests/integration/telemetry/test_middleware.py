"""Batches take the fast path; everything else the long one."""

from __future__ import annotations

from django.conf import settings

from headroom.layouts import layout_of
from tests.builders.batches import make_batch
from tests.integration.telemetry.conftest import Source
from tests.integration.telemetry.test_layouts import agree


def test_a_batch_meets_no_session(source: Source) -> None:
    answer = source.push(make_batch("agent-1", "n1"))
    assert answer.status_code == 202
    assert "Cookie" not in answer.headers.get("Vary", "")
    assert not answer.wsgi_request.__dict__.keys() & {"session", "user"}


def test_a_layout_meets_no_session(source: Source) -> None:
    layout = layout_of(make_batch("agent-1", "n1"))
    assert layout is not None
    answer = agree(source, layout)
    assert answer.status_code == 200
    assert not answer.wsgi_request.__dict__.keys() & {"session", "user"}


def test_what_holds_for_all_requests_comes_before_the_fast_path() -> None:
    order = settings.MIDDLEWARE
    fast_path = order.index("telemetry.middleware.IngestMiddleware")
    for before in (
        "config.metrics.RequestMetricsMiddleware",
        "config.requests.RequestLogMiddleware",
        "django.middleware.security.SecurityMiddleware",
    ):
        assert order.index(before) < fast_path


def test_a_batch_is_counted_under_its_view(source: Source) -> None:
    from config.metrics import HTTP_REQUESTS

    counter = HTTP_REQUESTS.labels("telemetry", "POST", "202")
    before = counter._value.get()
    source.push(make_batch("agent-1", "n1"))
    assert counter._value.get() == before + 1


def test_the_position_takes_the_long_way(source: Source) -> None:
    answer = source.client.get(
        "/api/v1/telemetry/position?boot_id=b", headers={"Authorization": f"Bearer {source.token}"}
    )
    assert answer.status_code == 200
    assert "session" in answer.wsgi_request.__dict__


def test_an_answer_says_how_long_it_is(source: Source) -> None:
    for answer in (source.push(make_batch("agent-1", "n1")), source.push(make_batch("else", "n1"))):
        assert answer["Content-Length"] == str(len(answer.content))
