"""YAML into plain values, with the place of each in the text.

Anchors, merge keys, tags, duplicate keys, dates and binaries are refused: none of them is needed,
and each can surprise (``<<`` and ``*`` also make small files large).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import yaml

from policies.rules.errors import CelError, Problem, RuleError

T = TypeVar("T")

#: A document that is larger is refused unread, characters.
MOST_CHARACTERS = 65_536
#: The most mappings and lists in each other.
MOST_DEPTH = 20

#: libyaml's where PyYAML has it: it is ten times as fast.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null")}
_UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`")
_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|^([^.\[\]]+)")


@dataclass(frozen=True, eq=False)
class Marked:
    """A document: its text, its values, and the nodes that know their places."""

    text: str
    value: Any
    root: yaml.Node

    def place(self, path: str) -> tuple[int, int]:
        """Return line and column, from 1, of what stands at ``path``, such as ``effects[0].kind``.

        What is not there is placed where its parent begins.
        """
        return _place(self._find(path)[-1].start_mark)

    def place_of_key(self, path: str, key: str) -> tuple[int, int]:
        """Return the place of a key of the mapping at ``path``."""
        node = self._find(path)[-1]
        if isinstance(node, yaml.MappingNode):
            for found, _ in node.value:
                if found.value == key:
                    return _place(found.start_mark)
        return _place(node.start_mark)

    def place_inside(self, path: str, offset: int) -> tuple[int, int]:
        """Return the place of the character at ``offset`` of the text that stands at ``path``.

        Whatever YAML has done to its line breaks: characters that are not blank are counted.
        """
        node = self._find(path)[-1]
        if not isinstance(node, yaml.ScalarNode):
            return _place(node.start_mark)
        wanted = len("".join(node.value[:offset].split()))
        at = _content_start(self.text, node)
        while at < len(self.text) - 1 and (wanted or self.text[at].isspace()):
            wanted -= not self.text[at].isspace()
            at += 1
        before = self.text[:at]
        return before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1

    def problems_of(self, path: str, expression: str, error: CelError) -> list[Problem]:
        """Return what is wrong with the expression at ``path``, with its places in the text."""
        lines = expression.split("\n")
        found = []
        for problem in error.problems:
            offset = sum(len(each) + 1 for each in lines[: problem.line - 1]) + problem.column - 1
            place = self.place_inside(path, offset)
            found.append(Problem(problem.message, *place, path, problem.hint))
        return found

    def converted(self, kind: type[T], hint: str) -> T:
        """Return the values as ``kind``. Raises RuleError, with ``hint`` as the way out."""
        try:
            return msgspec.convert(self.value, kind)
        except msgspec.ValidationError as error:
            message, _, rest = str(error).partition(" - at `$")
            path = rest.rstrip("`").lstrip(".").replace("[...]", "")
            unknown = _UNKNOWN_FIELD.search(message)
            place = self.place_of_key(path, unknown[1]) if unknown else self.place(path)
            raise RuleError([Problem(message, *place, field=path, hint=hint)]) from error

    def _find(self, path: str) -> list[yaml.Node]:
        """Return the nodes on the way to ``path``, as far as they are there."""
        found = [self.root]
        for match in _PART.finditer(path):
            name, index = match[1] or match[3], match[2]
            inner = _child(found[-1], name, index)
            if inner is None:
                break
            found.append(inner)
        return found


def _child(node: yaml.Node, name: str | None, index: str | None) -> yaml.Node | None:
    if index is not None and isinstance(node, yaml.SequenceNode):
        return node.value[int(index)] if int(index) < len(node.value) else None
    if name is not None and isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == name), None)
    return None


def _content_start(text: str, node: yaml.ScalarNode) -> int:
    mark = node.start_mark
    # By line and column: libyaml counts its index in another unit than Python.
    at = sum(len(line) for line in text.splitlines(keepends=True)[: mark.line]) + mark.column
    if node.style in ("|", ">"):
        return text.find("\n", at) + 1
    return at + 1 if node.style in ("'", '"') else at


def _place(mark: Any) -> tuple[int, int]:
    return mark.line + 1, mark.column + 1


def parse(text: str) -> Marked:
    """Read one document. Raises :class:`RuleError` with the place of what cannot be read."""
    if len(text) > MOST_CHARACTERS:
        message = f"{len(text)} characters; at most {MOST_CHARACTERS} are taken"
        raise RuleError([Problem(message, 1, 1)])
    try:
        _check_events(text)
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _place(mark) if mark else (1, 1)
        message = error.problem or "this is not YAML"
        raise RuleError([Problem(message, *place, hint="check indentation and quotes")]) from error
    except yaml.YAMLError as error:  # a character that no document may have
        raise RuleError([Problem(str(error).splitlines()[0], 1, 1)]) from error
    if root is None:
        raise RuleError([Problem("the document is empty", 1, 1, hint="see docs/reference")])
    return Marked(text, _value(root), root)


def _check_events(text: str) -> None:
    """Refuse what may be small in the text and large, or deep, as a value. Without recursion."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MOST_DEPTH:
            message = f"it is nested deeper than {MOST_DEPTH} levels"
            raise RuleError([Problem(message, *_place(event.start_mark))])
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            place = _place(event.start_mark)
            raise RuleError(
                [Problem("anchors (&) and aliases (*) cannot be used", *place, hint="write it out")]
            )


def _value(node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(each) for each in node.value]
    if node.tag not in _PLAIN_TAGS:
        kind = node.tag.rpartition(":")[2]
        raise RuleError(
            [Problem(f"a {kind} cannot be used", *_place(node.start_mark), hint="put it in quotes")]
        )
    try:
        return _LOADER("").construct_object(node)
    except ValueError as error:  # such as a number of thousands of digits
        message = f"{str(node.value)[:20]!r} is no {node.tag.rpartition(':')[2]} that can be read"
        raise RuleError([Problem(message, *_place(node.start_mark))]) from error


def _mapping(node: yaml.MappingNode) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        place = _place(key.start_mark)
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise RuleError([Problem("a key has to be a text", *place, hint="put it in quotes")])
        if key.value in found:
            raise RuleError([Problem(f"{key.value} is given twice", *place)])
        found[key.value] = _value(value)
    return found
