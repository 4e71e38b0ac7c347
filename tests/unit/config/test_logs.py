from __future__ import annotations

import io
import json
import logging
import logging.config
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from django.conf import settings

from config import logs

TOKEN = "hru_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG"


class Capture:
    """The lines of one format, as the handler writes them."""

    def __init__(self, log_format: str) -> None:
        self.stream = io.StringIO()
        config = logs.logging_config(level="INFO", log_format=log_format, color=False)
        config["handlers"]["stderr"]["stream"] = self.stream
        logging.config.dictConfig(config)

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    @property
    def last(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.text.splitlines()[-1])
        return found


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    kept = logging.root.handlers[:]
    yield
    logging.config.dictConfig(settings.LOGGING)
    logging.root.handlers[:] = kept
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def lines() -> Capture:
    return Capture("json")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"token {TOKEN} was used", TOKEN),
        ("agent hra_0123456789abcdefghijklmno", "0123456789abcdefghijklmno"),
        ("Authorization: Bearer 0123456789abcdef", "0123456789abcdef"),
        ("connect to postgresql://user:hunter2@db:5432/x failed", "hunter2"),
        ("redis://:s3cr3t@host:1/0", "s3cr3t"),
        ("POST /login?password=hunter2&next=/", "hunter2"),
        ('{"password": "hunter2"}', "hunter2"),
        ("{'new_password1': 'hunter two'}", "hunter two"),
        ("SECRET_KEY=abcdef123", "abcdef123"),
    ],
)
def test_secrets_in_text_are_blotted_out(lines: Capture, text: str, secret: str) -> None:
    structlog.get_logger("t").info(text, detail=text, nested={"deep": [text]})
    logging.getLogger("t").warning("said: %s", text)
    assert secret not in lines.text
    assert logs.SCRUBBED in lines.text


@pytest.mark.parametrize(
    "name", ["password", "new_password1", "Authorization", "cookie", "api_key", "SECRET_KEY"]
)
def test_secrets_by_name_are_blotted_out(lines: Capture, name: str) -> None:
    structlog.get_logger("t").info("x", **{name: "v4lue", "inner": {name: ["v4lue"]}})
    assert "v4lue" not in lines.text


def test_a_secret_in_a_traceback_is_blotted_out(lines: Capture) -> None:
    try:
        raise ValueError(f"bad token {TOKEN}")
    except ValueError:
        structlog.get_logger("t").exception("failed")
        logging.getLogger("t").exception("failed")
    assert TOKEN not in lines.text
    assert "ValueError" in lines.text


def test_what_is_no_secret_stays(lines: Capture) -> None:
    structlog.get_logger("t").info("drained", rows=128, url="http://host:8000/racks/1", node="n1")
    assert lines.last["rows"] == 128
    assert lines.last["url"] == "http://host:8000/racks/1"
    assert lines.last["level"] == "info"
    assert lines.last["logger"] == "t"


def test_both_kinds_of_loggers_carry_the_request_id(lines: Capture) -> None:
    structlog.contextvars.bind_contextvars(request_id="r-1", user_id=7)
    structlog.get_logger("t").info("ours")
    assert (lines.last["request_id"], lines.last["user_id"]) == ("r-1", 7)
    logging.getLogger("other").info("theirs")
    assert (lines.last["request_id"], lines.last["user_id"]) == ("r-1", 7)


@pytest.mark.parametrize("name", ["django.security", "celery.worker", "_granian", "granian.access"])
def test_other_programs_lines_come_once_and_in_our_form(lines: Capture, name: str) -> None:
    logging.getLogger(name).warning("something")
    assert len(lines.text.splitlines()) == 1
    assert lines.last["event"] == "something"


def test_the_console_form_is_for_people() -> None:
    lines = Capture("console")
    structlog.get_logger("t").info("drained", rows=128)
    assert "drained" in lines.text
    assert "rows=128" in lines.text
    assert "\x1b[" not in lines.text


def test_the_celery_hook_takes_our_configuration() -> None:
    logs.configure_celery(loglevel=10, logfile=None)
    assert logging.getLogger("celery").propagate
    assert not logging.getLogger("celery").handlers


def test_a_failure_that_comes_a_thousand_times_a_second_is_a_line_a_second(
    lines: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = structlog.get_logger("telemetry.tasks")
    now = iter(1_800_000_000 + i / 1000 for i in range(100_000))
    monkeypatch.setattr("logging.time.time", lambda: next(now))
    monkeypatch.setattr("logging.time.time_ns", lambda: int(next(now) * 1e9), raising=False)
    for _ in range(3000):
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            log.exception("writer_round_failed", shard=0)
    told = [json.loads(line) for line in lines.text.splitlines()]
    assert 2 <= len(told) <= 7
    assert told[1]["left_out"] >= 400
    assert "No space left" in told[0]["exception"]


def test_failures_that_differ_are_all_told(lines: Capture) -> None:
    log = structlog.get_logger("telemetry.views")
    for event in ("store_away", "telemetry_store_unavailable"):
        log.warning(event)
    for seq in range(3):
        log.warning("batch_too_far_ahead", seq=seq)
    assert len(lines.text.splitlines()) == 5
