"""Structured logs: one line an event, for people (console) or for machines (json).

Everything comes through here: our own events, Django's, Celery's and the web server's. Each line
carries the request's id and user where there is one, and no secret gets past :func:`scrub`.
"""

from __future__ import annotations

import logging.config
import math
import os
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, Processor, WrappedLogger

FORMATS = ("console", "json")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")

SCRUBBED = "[scrubbed]"

#: Names under which nothing is ever written down.
_SECRET_NAME = re.compile(
    r"passw|secret|token$|^token|authorization|cookie|csrf|session_?key|api_?key|private_?key", re.I
)
#: Secrets inside of text: our tokens, Authorization headers, URLs with passwords, form fields.
_SECRET_TEXT = (
    (re.compile(r"\b(hr[ua]_)[A-Za-z0-9_-]{8,}"), rf"\1{SCRUBBED}"),
    (re.compile(r"\b(Bearer|Basic|Token)\s+[A-Za-z0-9._~+/=-]{8,}", re.I), rf"\1 {SCRUBBED}"),
    (re.compile(r"(\w://[^\s/:@]*):[^\s/@]+@"), rf"\1:{SCRUBBED}@"),
    (
        re.compile(
            r"""(["']?\b\w*(?:password|passwd|secret|token|sessionid|api_?key)\w*["']?\s*[=:]\s*)"""
            r"""(?!\[scrubbed\])("[^"]*"|'[^']*'|[^\s&,;"')}\]]+)""",
            re.I,
        ),
        rf"\1{SCRUBBED}",
    ),
)

#: Two or three lines for each task, of which beat sends one every 2 s.
_CHATTY = ("celery.beat", "celery.worker.strategy")


def scrub(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Blot out secrets in every value of ``event``, however deep."""
    return {key: _scrub_item(key, value) for key, value in event.items()}


def _scrub_item(key: object, value: Any) -> Any:
    if isinstance(key, str) and _SECRET_NAME.search(key) and value not in (None, ""):
        return SCRUBBED
    return _scrub_value(value)


def _scrub_value(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, replacement in _SECRET_TEXT:
            value = pattern.sub(replacement, value)
        return value
    if isinstance(value, dict):
        return {key: _scrub_item(key, inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_scrub_value(inner) for inner in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return _scrub_value(value.decode(errors="replace") if isinstance(value, bytes) else str(value))


_SHARED: tuple[Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def _renderer(log_format: str, *, color: bool) -> Processor:
    if log_format == "json":
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(
        colors=color, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )


def _processors(log_format: str, *, color: bool) -> Sequence[Processor]:
    return (
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.StackInfoRenderer(),
        # Tracebacks become text before the scrubbing, since they may quote a secret.
        structlog.processors.format_exc_info,
        scrub,
        _renderer(log_format, color=color),
    )


def terminal_colors() -> bool:
    """Say whether the place where the lines go shows colors."""
    return sys.stderr.isatty() and "NO_COLOR" not in os.environ


class Refusals(logging.Filter):
    """Leaves out the traceback of a request that is refused: strangers could fill logs with them.

    The reason is in the line itself.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith("django.security"):
            record.exc_info = None
        return True


class Storms(logging.Filter):
    """Lets one line a second through of those that tell of the same failure.

    While a disk is full or a store is away every request and task fails alike: their lines would
    fill what room there is. The next line says how many were left out (``left_out``).
    """

    def __init__(self) -> None:
        super().__init__()
        #: When a line of each failure was let through last, and how many were left out since.
        self._last: dict[tuple[str, int, str], tuple[float, int]] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        told = record.msg if isinstance(record.msg, dict) else {}
        event = told.get("event", record.msg)
        if not (record.exc_info or told.get("exc_info") or event in _OF_STORES):
            return True
        key = record.name, record.levelno, str(event)[:200]
        with self._lock:
            at, left_out = self._last.get(key, (-math.inf, 0))
            if record.created - at < _STORM_S and record.created >= at:
                self._last[key] = at, left_out + 1
                return False
            if len(self._last) > _MOST_STORMS:
                self._last.clear()
            self._last[key] = record.created, 0
        if left_out and told:
            record.msg = {**told, "left_out": left_out}
        return True


#: How far apart lines of one failure are, s.
_STORM_S = 1.0
#: So many failures are told apart.
_MOST_STORMS = 1_000
#: Failures that carry no traceback.
_OF_STORES = frozenset(
    ("store_away", "telemetry_store_unavailable", "refusal_not_noted", "clock_not_noted")
)


def logging_config(*, level: str, log_format: str, color: bool) -> dict[str, Any]:
    """Return Django's ``LOGGING``."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "processors": _processors(log_format, color=color),
                "foreign_pre_chain": [*_SHARED, structlog.stdlib.ExtraAdder()],
            }
        },
        "filters": {"refusals": {"()": Refusals}, "storms": {"()": Storms}},
        "handlers": {
            "stderr": {
                "class": "logging.StreamHandler",
                "formatter": "structured",
                "filters": ["refusals", "storms"],
            }
        },
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # They bring handlers of their own, which would print a line twice or in another form.
            **{
                name: {"handlers": [], "level": "NOTSET", "propagate": True}
                for name in ("django", "django.server", "_granian", "granian.access", "celery")
            },
            # Tracebacks. The rest is in the request's own line.
            "django.request": {"level": "ERROR"},
            # The audit log says more.
            "axes": {"level": "ERROR"},
            **({} if level == "DEBUG" else {name: {"level": "WARNING"} for name in _CHATTY}),
            # django_structlog logs what a task raised.
            "celery.app.trace": {"level": "CRITICAL"},
        },
    }


def configure_structlog() -> None:
    """Send structlog's events through the standard library, where all the others are."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def configure_celery(**_: object) -> None:
    """Receiver of Celery's ``setup_logging``: with one connected, it leaves logging to us."""
    # Settings are made with the help of this module.
    from django.conf import settings

    logging.config.dictConfig(settings.LOGGING)
    configure_structlog()
