"""Label and field selectors: which objects a list or a watch is about."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.server.errors import ApiError, bad_request
from tests.kubernetes.server.schemas import Resource

Document = dict[str, Any]
_Test = Callable[[Mapping[str, str]], bool]

#: Fields that can be selected by, besides the name and the namespace, by plural and group.
_SELECTABLE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("pods", ""): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    ("nodes", ""): ("spec.unschedulable",),
    ("namespaces", ""): ("status.phase",),
    ("secrets", ""): ("type",),
    ("jobs", "batch"): ("status.successful",),
    ("events", ""): (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
_TERM = re.compile(
    r"\s*(?:(?P<key>[\w./-]+)\s+(?P<verb>in|notin)\s*\((?P<values>[^)]*)\)"
    r"|(?P<left>[\w./-]+)\s*(?P<sign>==|=|!=)\s*(?P<right>[\w.-]*)"
    r"|(?P<absent>!?)\s*(?P<present>[\w./-]+))\s*(?:,|$)"
)


@dataclass(frozen=True)
class Selection:
    """Objects of one namespace ("" is all of them) with these labels and fields."""

    namespace: str
    labels: tuple[_Test, ...] = ()
    fields: tuple[tuple[str, bool, str], ...] = ()

    def holds(self, document: Document) -> bool:
        metadata = document["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        labels = metadata.get("labels", {})
        return all(test(labels) for test in self.labels) and all(
            (_text_at(document, path) == value) is equal for path, equal, value in self.fields
        )


def selection(resource: Resource, namespace: str, labels: str, fields: str) -> Selection:
    """Read selectors as they stand in an address.

    Raises:
        ApiError: 400, where one cannot be read or names a field that cannot be selected by.
    """
    return Selection(namespace, _label_tests(labels), _field_terms(resource, fields))


def _label_tests(text: str) -> tuple[_Test, ...]:
    tests = []
    at = 0
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise _unreadable(text)
        tests.append(_label_test(found))
        at = found.end()
    return tuple(tests)


def _label_test(found: re.Match[str]) -> _Test:
    if found["key"]:
        key, within = found["key"], found["verb"] == "in"
        values = {value.strip() for value in found["values"].split(",")}
        if within:
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found["left"]:
        key, value = found["left"], found["right"]
        if found["sign"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    key, absent = found["present"], bool(found["absent"])
    return lambda labels: (key in labels) is not absent


def _unreadable(text: str) -> ApiError:
    return bad_request(f'unable to parse requirement: found "{text}"')


def _field_terms(resource: Resource, text: str) -> tuple[tuple[str, bool, str], ...]:
    known = (
        "metadata.name",
        "metadata.namespace",
        *_SELECTABLE.get((resource.plural, resource.group), ()),
    )
    terms = []
    for part in filter(None, text.split(",")):
        found = re.fullmatch(r"([^=!]+)(==|=|!=)(.*)", part)
        if found is None:
            raise bad_request(f'invalid selector: "{text}"; can\'t understand "{part}"')
        if found[1] not in known:
            raise bad_request(f"field label not supported: {found[1]}")
        terms.append((found[1], found[2] != "!=", found[3]))
    return tuple(terms)


def _text_at(document: Document, path: str) -> str:
    at: Any = document
    for part in path.split("."):
        at = at.get(part, {}) if isinstance(at, dict) else {}
    if isinstance(at, bool):
        return str(at).lower()
    return "" if at == {} and not isinstance(at, str) else str(at)
