"""Parser from YAML text to plain values, by way of its events.

A value is a mapping, a list, a text or null. Numbers stay texts: the document's types say what is a
number, so that a rack may be called ``01``, a pool ``no`` and a capacity ``3.2e12``, whatever YAML
1.1 makes of these. Aliases, tags and deep nesting are refused: a small text never becomes a big
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from fleet.inventory.exceptions import MAX_PROBLEMS, InventoryError, Path, Problem

#: The longest text that is taken.
MAX_BYTES = 64 * 1024 * 1024
#: The most keys and values of all mappings and lists together.
MAX_VALUES = 5_000_000
_MAX_DEPTH = 12
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


def decode(data: bytes, source: str = "inventory") -> str:
    """Return the text of a file, or raise InventoryError where it is too long or not UTF-8."""
    if len(data) > MAX_BYTES:
        limit = f"longer than {MAX_BYTES // 1024**2} MiB"
        raise InventoryError([Problem((), limit)], source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InventoryError([Problem((), "not UTF-8", line)], source) from None


def read(text: str, source: str = "inventory") -> Any:
    """Return the values in ``text``, or raise InventoryError."""
    reading = _Reading()
    try:
        for event in _events(text):
            reading.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = None if mark is None else mark.line + 1
        reading.problems.append(Problem((), error.problem or "not YAML", line))
    except yaml.YAMLError as error:
        reading.problems.append(Problem((), f"not YAML: {error}"))
    except _RefusedError as refusal:
        reading.problems.append(refusal.problem)
    if reading.problems:
        raise InventoryError(reading.problems, source)
    return reading.root.value.get("")


def locate(text: str, paths: Iterable[Path]) -> dict[Path, int]:
    """Return the line (from 1) of each of ``paths``, or of the nearest one above it.

    ``text`` is one that :func:`read` takes.
    """
    wanted = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    reading = _Reading(wanted)
    for event in _events(text):
        reading.take(event)
    for path in sorted(wanted, key=len):
        if path not in reading.found:
            reading.found[path] = reading.found.get(path[:-1], 1)
    return reading.found


class _RefusedError(Exception):
    def __init__(self, message: str, event: yaml.Event) -> None:
        self.problem = Problem((), message, _line(event))


@dataclass
class _Frame:
    """A mapping or a list that is still open."""

    value: Any
    #: the key whose value comes next, and its line; None: a key comes next
    key: str | None = None
    line: int = 0
    #: what the value is called in the frame around it
    name: str | int = ""


@dataclass
class _Reading:
    wanted: set[Path] = field(default_factory=set)
    found: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    # The document is the value of a mapping that is not there.
    root: _Frame = field(default_factory=lambda: _Frame({}, key=""))
    _stack: list[_Frame] = field(default_factory=list)
    _count: int = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._stack.pop()
        elif isinstance(event, yaml.AliasEvent):
            raise _RefusedError("aliases (*) are not taken: write the value out", event)
        elif isinstance(event, yaml.DocumentStartEvent) and self.root.value:
            raise _RefusedError("a second document (---): one is taken", event)

    def _top(self) -> _Frame:
        return self._stack[-1] if self._stack else self.root

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        if event.tag is not None:
            raise _RefusedError(f"tags ({event.tag}) are not taken", event)
        top, text = self._top(), event.value
        if "\0" in text:
            raise _RefusedError("a text with a null character", event)
        if top.key is None and type(top.value) is dict:
            self._key(top, text, event)
        else:
            self._put(top, None if event.implicit[0] and text in _NULLS else text, event)

    def _key(self, top: _Frame, key: str, event: yaml.Event) -> None:
        top.key, top.line = key, _line(event)
        if key in top.value and len(self.problems) < MAX_PROBLEMS:
            path = (*self._path(), key)
            self.problems.append(Problem(path, "given twice", top.line))

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag is not None:
            raise _RefusedError(f"tags ({event.tag}) are not taken", event)
        if len(self._stack) >= _MAX_DEPTH:
            raise _RefusedError("nested too deep", event)
        top = self._top()
        if top.key is None and type(top.value) is dict:
            raise _RefusedError("a key is a text, not a mapping or a list", event)
        value: Any = {} if type(event) is yaml.MappingStartEvent else []
        name = self._put(top, value, event)
        self._stack.append(_Frame(value, name=name))

    def _put(self, top: _Frame, value: Any, event: yaml.Event) -> str | int:
        """Add ``value`` to ``top`` and return its key or index there."""
        self._count += 1
        if self._count > MAX_VALUES:
            raise _RefusedError(f"more than {MAX_VALUES} values", event)
        name: str | int
        if type(top.value) is list:
            name, line = len(top.value), _line(event)
            top.value.append(value)
        else:
            name, line = top.key or "", top.line
            top.value[name] = value
            top.key = None
        if self.wanted:
            path = (*self._path(), name)
            if path in self.wanted:
                self.found[path] = line
        return name

    def _path(self) -> Path:
        # The outermost frame is the document itself.
        return tuple(frame.name for frame in self._stack[1:])


def _line(event: yaml.Event) -> int:
    """Return where ``event`` starts; libyaml always says."""
    return cast("yaml.Mark", event.start_mark).line + 1


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield the events of ``text``. libyaml keeps its state on the heap: depth is ours to bound."""
    loader = yaml.CSafeLoader(text)
    try:
        while loader.check_event():
            yield cast("yaml.Event", loader.get_event())
    finally:
        loader.dispose()
