"""The one reader of documents: YAML into plain values, with the place of each in the text.

One pass over the events, without recursion, and never larger than the text. Anchors, aliases, merge
keys, tags, duplicate keys and keys that are no text are refused: no document needs them, and each
can surprise (aliases make small files large). Dates stay the text that they are; infinities and NaN
are refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import msgspec
import yaml

from headroom.contracts import FieldError
from headroom.documents.faults import DocumentError, closest, fault, field_names, refusal

__all__ = ["MOST_CHARACTERS", "MOST_DEPTH", "MOST_NODES", "Document", "Place", "read"]

T = TypeVar("T")

#: A document that is larger is refused unread, where its kind has no bound of its own.
MOST_CHARACTERS = 65_536
MOST_DEPTH = 20
MOST_NODES = 100_000

#: Line and column, from 1.
Place: TypeAlias = tuple[int, int]

#: libyaml's where PyYAML has it: it is ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
#: What patterns ask for, in words.
_IN_WORDS = {
    r"^[a-z][a-z0-9-]{0,99}$": "small letters, digits and '-', a letter first",
    r"^[a-z][a-z0-9-]{0,59}$": "small letters, digits and '-', a letter first",
}
_PREFIX = "tag:yaml.org,2002:"
_SCALARS = {"str", "int", "float", "bool", "null"}


@dataclass(frozen=True, eq=False)
class Document:
    """A text, its values, and where each of them stands, by paths such as ``effects[0].kind``."""

    text: str
    value: Any
    places: Mapping[str, Place]
    #: where the keys of mappings stand, by the paths of their values
    keys: Mapping[str, Place]
    #: how texts are written that are quoted or in blocks: ', ", | or >
    styles: Mapping[str, str]

    def place(self, path: str) -> Place:
        """Return where the value at ``path`` stands; if there is none, where its parent does."""
        return self.places.get(self._nearest(path), (1, 1))

    def place_inside(self, path: str, text: str, offset: int) -> Place:
        """Return the place of the character at ``offset`` of ``text``, which stands at ``path``.

        Whatever YAML has done to its line breaks: characters that are not blank are counted.
        """
        wanted = len("".join(text[:offset].split()))
        at = self._content_start(self._nearest(path))
        while at < len(self.text) - 1 and (wanted or self.text[at].isspace()):
            wanted -= not self.text[at].isspace()
            at += 1
        before = self.text[:at]
        return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1

    def fault(self, path: str, message: str, hint: str = "") -> FieldError:
        """Return an error of the value at ``path``, with its place."""
        return fault(message, *self.place(path), field=path, hint=hint)

    def placed(self, problem: FieldError) -> FieldError:
        """Return a problem with the place of its field, if it has none yet."""
        if problem.line:
            return problem
        line, column = self.place(problem.field)
        return msgspec.structs.replace(problem, line=line, column=column)

    def faults_inside(
        self, path: str, expression: str, faults: list[FieldError]
    ) -> list[FieldError]:
        """Return faults of the expression at ``path`` with their places in the document."""
        lines = expression.split("\n")
        found = []
        for each in faults:
            before = sum(len(line) + 1 for line in lines[: max(each.line, 1) - 1])
            offset = min(before + max(each.column, 1) - 1, max(len(expression) - 1, 0))
            line, column = self.place_inside(path, expression, offset)
            found.append(msgspec.structs.replace(each, line=line, column=column, field=path))
        return found

    def converted(
        self,
        kind: type[T],
        see: str,
        *,
        in_words: Mapping[str, str] = _IN_WORDS,
        dec_hook: Callable[[type, Any], Any] | None = None,
    ) -> T:
        """Return the values as ``kind``. Raises :class:`DocumentError`.

        ``see``: what to read where they are none; ``in_words``: what patterns ask for.
        """
        try:
            return msgspec.convert(self.value, kind, dec_hook=dec_hook)
        except msgspec.ValidationError as error:
            found = refusal(error, in_words)
            close = closest(found.unknown, field_names(sys.modules[kind.__module__]))
            is_typo = found.unknown and close not in ("", found.unknown)
            hint = f"do you mean {close}?" if is_typo else f"see {see}"
            path = found.path.replace("[...]", "")
            # Of a key with a backtick in it the decoder does not tell where it ends.
            place = self.keys.get(path) if found.unknown else None
            place = place or self.place(path)
            problem = fault(found.message, *place, field=path, hint=hint)
            raise DocumentError([problem]) from error

    def _nearest(self, path: str) -> str:
        while path and path not in self.places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return path

    def _content_start(self, path: str) -> int:
        line, column = self.places.get(path, (1, 1))
        lines = self.text.splitlines(keepends=True)[: line - 1]
        at = sum(map(len, lines)) + column - 1
        style = self.styles.get(path, "")
        if style in ("|", ">"):
            return self.text.find("\n", at) + 1
        return at + 1 if style else at


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
    keys: dict[str, Place] = field(default_factory=dict)
    styles: dict[str, str] = field(default_factory=dict)
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
            self.keys[inside.next_path()] = _place(event)
            return
        path = inside.next_path() if inside is not None else ""
        self.places[path] = _place(event)
        if not isinstance(event, yaml.ScalarEvent):
            self._begin(event, path)
            return
        if event.style:
            self.styles[path] = event.style
        self._put(self._scalar(event, path))

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

    def _error(self, message: str, event: yaml.Event, hint: str, path: str = "") -> DocumentError:
        return DocumentError([fault(message, *_place(event), field=path, hint=hint)])


def read(text: str, *, most_characters: int = MOST_CHARACTERS) -> Document:
    """Return the one document in ``text``. Raises :class:`DocumentError`.

    The value of an empty one is None.
    """
    if len(text) > most_characters:
        message = f"{len(text)} characters; at most {most_characters} are taken"
        raise DocumentError([fault(message, 1, 1, hint="write less, or in several documents")])
    reader = _Reader()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        message = error.problem or "this is not YAML"
        problem = fault(message, *place, hint="check indentation and quotes")
        raise DocumentError([problem]) from error
    except yaml.YAMLError as error:  # a character that no document may have
        raise DocumentError([fault(str(error).splitlines()[0], 1, 1)]) from error
    return Document(text, reader.root, reader.places, reader.keys, reader.styles)


def _place(event: yaml.Event) -> Place:
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
