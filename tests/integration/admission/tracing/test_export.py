"""Jobs that are over go to a collector as traces, each at most once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from admission.jobs.models import Job
from admission.tracing import export
from admission.tracing.models import TracedUntil
from fleet import locks
from tests.builders.jobs import make_attempt, make_job
from tests.integration.admission.tracing.collector import Collector, collecting

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def at(s: float) -> datetime:
    return NOW + timedelta(seconds=s)


@pytest.fixture
def collector(settings: Settings) -> Iterator[Collector]:
    with collecting() as made:
        settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = made.url
        settings.OTEL_EXPORTER_OTLP_TRACES_TIMEOUT = 5000
        settings.OTEL_EXPORTER_OTLP_TRACES_HEADERS = {"x-tenant": "ml"}
        export.step(NOW)
        yield made


def ended_job(name: str, ended_s: float, *, state: str = "succeeded") -> Job:
    """Have a job have been queued for 10 s, run, failed, queued again, and run to its end."""
    job = make_job(name, gpus=2, state="running")
    phase = job.phases.get()
    job.phases.update(
        queued_at=at(10.0), started_at=at(20.0), ended_at=at(ended_s), state=state, restarts=1
    )
    make_attempt(
        phase, {"n1": [0, 1]}, state="ended", outcome="failed", why="n1: exit code 1",
        dispatched_at=at(20.0), started_at=at(25.0), ended_at=at(60.0),
    )  # fmt: skip
    make_attempt(
        phase, {"n1": [0, 1]}, state="ended", outcome="succeeded",
        dispatched_at=at(70.0), started_at=at(72.0), ended_at=at(ended_s),
    )  # fmt: skip
    Job.objects.filter(pk=job.pk).update(submitted_at=at(5.0), ended_at=at(ended_s), state=state)
    return job


def test_a_job_is_a_trace_from_its_submission_to_its_end(collector: Collector) -> None:
    ended_job("llama", 100.0)
    assert export.step(at(200.0)) is False
    spans = collector.spans
    names = {span.span_id: span.name for span in spans}
    told = [
        (span.name, names.get(span.parent_span_id, ""), *(
            moment / 1e9 - NOW.timestamp()
            for moment in (span.start_time_unix_nano, span.end_time_unix_nano)
        ))
        for span in spans
    ]  # fmt: skip
    assert told == [
        ("job llama", "", 5.0, 100.0),
        ("phase train", "job llama", 10.0, 100.0),
        ("queue", "phase train", 10.0, 20.0),
        ("queue", "phase train", 60.0, 70.0),
        ("attempt 1", "phase train", 20.0, 60.0),
        ("start", "attempt 1", 20.0, 25.0),
        ("run", "attempt 1", 25.0, 60.0),
        ("attempt 2", "phase train", 70.0, 100.0),
        ("start", "attempt 2", 70.0, 72.0),
        ("run", "attempt 2", 72.0, 100.0),
    ]
    assert len({span.trace_id for span in spans}) == 1
    assert {len(span.trace_id) for span in spans} == {16}
    failed = [span for span in spans if span.status.code == span.status.STATUS_CODE_ERROR]
    assert [(span.name, span.status.message) for span in failed] == [
        ("attempt 1", "n1: exit code 1")
    ]
    root = {each.key: each.value for each in spans[0].attributes}
    assert root["headroom.job.project"].string_value == "vision"
    resource = collector.requests[0].resource_spans[0].resource.attributes
    assert [(each.key, each.value.string_value) for each in resource] == [
        ("service.name", "headroom")
    ]
    assert collector.headers[-1]["x-tenant"] == "ml"


def test_a_job_is_sent_once_and_the_next_ones_follow(collector: Collector) -> None:
    ended_job("first", 100.0)
    export.step(at(200.0))
    export.step(at(210.0))
    ended_job("second", 205.0)
    export.step(at(220.0))
    roots = [span.name for span in collector.spans if not span.parent_span_id]
    assert roots == ["job first", "job second"]


@pytest.mark.parametrize("status", [400, 429, 500, 503, 302])
def test_what_the_collector_does_not_take_is_lost_and_counted(
    collector: Collector, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    ended_job("llama", 100.0)
    before = export.TRACED.labels("lost")._value.get()
    collector.status = status
    export.step(at(200.0))
    collector.status = 200
    export.step(at(300.0))
    assert len(collector.requests) == 1
    assert export.TRACED.labels("lost")._value.get() == before + 1
    assert f"it was answered with {status}" in caplog.text


def test_a_collector_that_is_away_holds_up_nothing(
    collector: Collector, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = "http://127.0.0.1:9/v1/traces"
    ended_job("llama", 100.0)
    assert export.step(at(200.0)) is False
    assert "sending failed: ConnectionError" in caplog.text
    settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = collector.url
    export.step(at(300.0))
    assert collector.requests == []


def test_whoever_dies_while_it_sends_has_sent_it_at_most_once(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_job("llama", 100.0)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(export, "send", die)
        with pytest.raises(KeyboardInterrupt):
            export.step(at(200.0))
    export.step(at(300.0))
    assert collector.requests == []


def test_two_processes_do_not_send_the_same(collector: Collector) -> None:
    ended_job("llama", 100.0)
    export.step(at(105.0))
    assert collector.requests == []  # it has just ended: others may end before it is written down
    with locks.only_one(export._LOCK):
        pass
    export.step(at(111.0))
    export.step(at(111.0))
    assert len(collector.requests) == 1


def test_many_jobs_go_in_requests_of_fifty(collector: Collector) -> None:
    for number in range(51):
        job = make_job(f"job-{number}", gpus=1)
        Job.objects.filter(pk=job.pk).update(ended_at=at(50.0), state="cancelled")
    assert export.step(at(200.0)) is True
    assert export.step(at(200.0)) is False
    roots = [span.name for span in collector.spans if not span.parent_span_id]
    assert len(roots) == len(set(roots)) == 51


def test_without_a_collector_nothing_is_looked_at(db: None, settings: Settings) -> None:
    settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = ""
    ended_job("llama", 100.0)
    assert export.step(at(200.0)) is False
    assert not TracedUntil.objects.exists()


def test_jobs_that_ended_before_a_collector_was_set_are_not_sent(
    db: None, settings: Settings
) -> None:
    ended_job("llama", 100.0)
    with collecting() as made:
        settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = made.url
        export.step(at(200.0))
        export.step(at(300.0))
        assert made.requests == []


def test_headers_are_not_sent_in_the_clear_to_another_machine(
    collector: Collector, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = "http://collector.example.com/v1/traces"
    settings.OTEL_EXPORTER_OTLP_TRACES_HEADERS = {"authorization": "Bearer secret-token"}
    ended_job("llama", 100.0)
    export.step(at(200.0))
    said = caplog.text
    assert "headers are not sent there" in said
    assert "secret-token" not in said


def test_spans_that_are_rejected_are_told(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.rejected = 3
    ended_job("llama", 100.0)
    export.step(at(200.0))
    assert "3 spans were rejected" in caplog.text


def test_nothing_of_what_a_job_runs_is_in_its_trace(collector: Collector) -> None:
    job = ended_job("llama", 100.0)
    Job.objects.filter(pk=job.pk).update(
        spec=json.loads('{"phases": [{"command": ["secret"], "env": {"TOKEN": "secret"}}]}')
    )
    export.step(at(200.0))
    assert b"secret" not in collector.requests[0].SerializeToString()
