"""Reading JSON bodies: bounded in length, in depth, and in the characters of texts."""

from __future__ import annotations

import json
from typing import Any, NoReturn

__all__ = ["MAX_BYTES", "MAX_DEPTH", "BadBody", "read_json"]

#: The longest body that is read, bytes.
MAX_BYTES = 4 * 1024 * 1024
#: The most mappings and lists in each other.
MAX_DEPTH = 32


class BadBody(ValueError):
    """A body is not valid JSON, or over a limit. ``field`` says where, if that is known."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def read_json(body: bytes) -> Any:
    """Return the value in ``body``. Raises :class:`BadBody`."""
    try:
        value = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadBody("The body is not UTF-8.") from error
    except RecursionError as error:
        raise BadBody(_TOO_DEEP) from error
    except ValueError as error:
        raise BadBody(f"JSON parse error - {error}") from error
    _check(value, b"\\" in body)
    return value


_TOO_DEEP = f"The body is nested deeper than {MAX_DEPTH} levels."


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _check(value: Any, has_escapes: bool) -> None:
    """Refuse values that are too deep, and texts that no database takes. Without recursion.

    NUL and half of a pair of surrogates can only come in as escapes.
    """
    level = [("", value)]
    for _ in range(MAX_DEPTH + 1):
        below: list[tuple[str, Any]] = []
        for path, each in level:
            if isinstance(each, dict):
                if has_escapes:
                    _check_texts(path, each)
                below += [(f"{path}.{name}" if path else name, v) for name, v in each.items()]
            elif isinstance(each, list):
                below += [(f"{path}[{place}]", v) for place, v in enumerate(each)]
            elif has_escapes and isinstance(each, str):
                _check_text(path, each)
        if not below:
            return
        level = below
    raise BadBody(_TOO_DEEP)


def _check_texts(path: str, names: dict[str, Any]) -> None:
    for name in names:
        _check_text(path, name)


def _check_text(path: str, text: str) -> None:
    if "\0" in text:
        raise BadBody("NUL is no character of any value here.", path)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadBody("Half of a pair of surrogates is no character.", path) from None
