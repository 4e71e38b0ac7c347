"""One-line ``key=value`` logs on stderr, from the standard library's logging."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime

__all__ = ["KeyValueFormatter", "set_up"]

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_BARE = re.compile(r"[\w.:/@+\-]+")


class KeyValueFormatter(logging.Formatter):
    """Format a record as one line; values passed as ``extra`` follow the message."""

    def format(self, record: logging.LogRecord) -> str:
        pairs: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        pairs |= {k: v for k, v in record.__dict__.items() if k not in _STANDARD}
        if record.exc_info:
            pairs["exception"] = self.formatException(record.exc_info)
        return " ".join(f"{key}={_quoted(value)}" for key, value in pairs.items())


def _quoted(value: object) -> str:
    """Leave plain words bare; write the rest as JSON strings, so that a line stays a line."""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def set_up(level: int = logging.INFO) -> None:
    """Send the logs of this process to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # It logs each request at INFO, and a bridge makes several a second.
    logging.getLogger("httpx2").setLevel(max(level, logging.WARNING))
