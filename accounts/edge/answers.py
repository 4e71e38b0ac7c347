"""Answers of other servers, read within bounds of size and time."""

from __future__ import annotations

import time

import requests

__all__ = ["BadAnswer", "read_within"]


class BadAnswer(Exception):
    """An answer is too large, or takes too long. The message says which."""


def read_within(answer: requests.Response, most_bytes: int, within_s: float) -> bytes:
    """Return the body of an answer that was asked for with ``stream``.

    Its time is bounded as a whole, since one may send a byte a second. Raises
    :class:`BadAnswer`, and requests.RequestException.
    """
    body, end = b"", time.monotonic() + within_s
    for part in answer.iter_content(65_536):
        body += part
        if len(body) > most_bytes:
            raise BadAnswer(f"the answer is larger than {most_bytes} bytes")
        if time.monotonic() > end:
            raise BadAnswer("the answer takes too long")
    return body
