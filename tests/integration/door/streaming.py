"""An application behind the door that answers with streams, for ``test_streams``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from config.wsgi import application as headroom

# isort: split
from config.door.application import Door

closed: list[str] = []


class Lines:
    """What Django returns for a stream: an iterable that says so, and wants to be closed."""

    streaming = True

    def __init__(self, query: str) -> None:
        count, pause_s = query.split(",")
        self._query = query
        self._count = int(count)
        self._pause_s = float(pause_s)

    def __iter__(self) -> Iterator[bytes]:
        for number in range(self._count):
            yield b"%07d%s\n" % (number, b"," * 8192)
            time.sleep(self._pause_s)

    def close(self) -> None:
        closed.append(self._query)


def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
    match environ["PATH_INFO"]:
        case "/stream":
            start_response("200 OK", [("Content-Type", "text/csv")])
            return Lines(environ["QUERY_STRING"])
        case "/closed":
            start_response("200 OK", [])
            return [b"%d" % closed.count(environ["QUERY_STRING"])]
        case "/forwarded":
            start_response("200 OK", [])
            return [environ.get("HTTP_X_FORWARDED_FOR", "").encode()]
        case "/fails":
            raise RuntimeError("on purpose")
        case "/empty":
            start_response("204 No Content", [])
            return [b""]
    return headroom(environ, start_response)


application = Door(answer)
