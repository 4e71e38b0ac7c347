"""YAML into plain values, in one pass over its events: without recursion, and never larger.

Anchors, aliases, merge keys, tags, duplicate keys and keys that are no text are refused: a
specification needs none of them, and each can surprise (aliases make small files large). Dates
stay the text that they are; infinities and NaN are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

__all__ = ["MOST_DEPTH", "MOST_NODES", "Place", "YamlError", "read"]

MOST_DEPTH = 20
MOST_NODES = 100_000

#: Line and column, from 1.
Place: TypeAlias = tuple[int, int]

#: libyaml's where PyYAML has it: it is ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PREFIX = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null"}


class YamlError(ValueError):
    """The text is no YAML that is taken here."""

    def __init__(self, message: str, place: Place, *, path: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.place = place
        self.path = path
        self.hint = hint


@dataclass
class _Open:
    """A mapping or a sequence that has begun and has not ended."""

    value: dict[str, Any] | list[Any]
    path: str
    #: of a mapping, the key whose value comes next
    key: str | None = None

    @property
    def wants_key(self) -> bool:
        return isinstance(self.value, dict) and self.key is None

    def next_path(self) -> str:
        if isinstance(self.value, list):
            return f"{self.path}[{len(self.value)}]"
        return f"{self.path}.{self.key}" if self.path else f"{self.key}"

    def add(self, value: Any) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.key is not None:
            self.value[self.key] = value
            self.key = None


@dataclass
class _Reader:
    loader: Any = field(default_factory=lambda: _LOADER(""))
    open: list[_Open] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    root: Any = None
    documents: int = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise self._error("there is more than one document", event, "send one at a time")
        elif isinstance(event, yaml.NodeEvent):
            self._node(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            self._put(self.open.pop().value)

    def _node(self, event: yaml.NodeEvent) -> None:
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise self._error("anchors (&) and aliases (*) cannot be used", event, "write it out")
        if len(self.places) > MOST_NODES:
            raise self._error(f"it has more than {MOST_NODES} values", event, "send less")
        inside = self.open[-1] if self.open else None
        if inside is not None and inside.wants_key:
            inside.key = self._key(event, inside)
            return
        path = inside.next_path() if inside is not None else ""
        self.places[path] = _place(event)
        if isinstance(event, yaml.ScalarEvent):
            self._put(self._scalar(event, path))
        else:
            self._begin(event, path)

    def _begin(self, event: yaml.NodeEvent, path: str) -> None:
        if getattr(event, "tag", None) is not None:
            raise self._error("tags (!) cannot be used", event, "leave the tag out", path)
        if len(self.open) >= MOST_DEPTH:
            message = f"it is nested deeper than {MOST_DEPTH} levels"
            raise self._error(message, event, "no field needs that", path)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.open.append(_Open({} if is_mapping else [], path))

    def _key(self, event: yaml.NodeEvent, inside: _Open) -> str:
        if not isinstance(event, yaml.ScalarEvent) or self._kind(event) != "str":
            raise self._error("a key has to be a text", event, "put it in quotes", inside.path)
        if event.value in inside.value:
            message = f"{event.value!r} is given twice"
            raise self._error(message, event, "keep one of them", inside.path)
        return str(event.value)

    def _scalar(self, event: yaml.ScalarEvent, path: str) -> Any:
        kind = self._kind(event)
        if kind == "timestamp":
            return event.value
        if kind not in _SCALARS:
            raise self._error(f"a {kind} cannot be used", event, "put it in quotes", path)
        try:
            value = self.loader.construct_object(yaml.ScalarNode(_PREFIX + kind, event.value))
        except ValueError as error:
            raise self._error(f"{event.value!r:.60} is no {kind}", event, "", path) from error
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error("a number has to be finite", event, "write a number", path)
        return value

    def _kind(self, event: yaml.ScalarEvent) -> str:
        if event.tag is not None:
            raise self._error("tags (!) cannot be used", event, "leave the tag out")
        tag: str = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        return tag.removeprefix(_PREFIX)

    def _put(self, value: Any) -> None:
        if self.open:
            self.open[-1].add(value)
        else:
            self.root = value

    def _error(self, message: str, event: yaml.Event, hint: str, path: str = "") -> YamlError:
        return YamlError(message, _place(event), path=path, hint=hint)


def read(text: str) -> tuple[Any, dict[str, Place]]:
    """Return the values of the one document in ``text``, and the place of each by its path.

    Raises :class:`YamlError`. An empty document is None.
    """
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = error.problem or "this is not YAML"
        raise YamlError(message, place, hint="check indentation and quotes") from error
    except yaml.YAMLError as error:  # a character that no document may have
        raise YamlError(str(error).splitlines()[0], (1, 1)) from error
    return reader.root, reader.places


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
