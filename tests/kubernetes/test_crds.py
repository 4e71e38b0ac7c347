"""What is stated of Kueue's kinds agrees with what Kueue publishes, where its files are at hand.

They are ``config/components/crd/bases`` of Kueue's repository at the release that is named.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes import crds

Document = dict[str, Any]

#: What holds for a value. All else in a schema is a description, or what lies below.
_LIMITS = (
    "type",
    "format",
    "enum",
    "default",
    "pattern",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minimum",
    "maxProperties",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)


@pytest.fixture(scope="module")
def published() -> dict[str, Document]:
    folder = os.environ.get(crds.PUBLISHED, "")
    if not folder:
        pytest.skip(f"{crds.PUBLISHED} names no folder with the CRDs of Kueue {crds.RELEASE}")
    return {_kind(definition): definition for definition in crds.published(Path(folder))}


def _kind(definition: Document) -> str:
    return str(definition["spec"]["names"]["kind"])


def _schema(definition: Document) -> Document:
    (found,) = (v for v in definition["spec"]["versions"] if v["name"] == crds.VERSION)
    schema: Document = found["schema"]["openAPIV3Schema"]
    return schema


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> Iterator[str]:
    """Find where ours says something else of a place than theirs. Ours may lack places."""
    if ours.get("x-kubernetes-preserve-unknown-fields"):
        return
    for name in _LIMITS:
        if ours.get(name) != theirs.get(name):
            yield f"{path}: {name} is {ours.get(name)!r}, not {theirs.get(name)!r}"
    if sorted(ours.get("required", ())) != sorted(theirs.get("required", ())):
        yield f"{path}: {ours.get('required')} are required, not {theirs.get('required')}"
    yield from _rule_differences(ours, theirs, path)
    for name, schema in ours.get("properties", {}).items():
        if name not in theirs.get("properties", {}):
            yield f"{path}.{name} is not there"
        else:
            yield from differences(schema, theirs["properties"][name], f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(ours.get(name), dict):
            yield from differences(ours[name], theirs.get(name, {}), f"{path}[]")


def _rule_differences(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str
) -> Iterator[str]:
    known = {_rule(rule) for rule in theirs.get("x-kubernetes-validations", ())}
    for rule in ours.get("x-kubernetes-validations", ()):
        if _rule(rule) not in known:
            yield f"{path}: no such rule: {rule['rule']}"


def _rule(rule: Mapping[str, str]) -> tuple[str, str]:
    return " ".join(rule["rule"].split()), rule.get("message", "")


@pytest.mark.parametrize("definition", crds.ours(), ids=_kind)
def test_what_is_stated_is_what_is_published(
    definition: Document, published: dict[str, Document]
) -> None:
    theirs = published[_kind(definition)]
    assert definition["spec"]["scope"] == theirs["spec"]["scope"]
    for name, value in definition["spec"]["names"].items():
        assert theirs["spec"]["names"][name] == value
    assert not list(differences(_schema(definition), _schema(theirs), ""))


def test_a_limit_that_differs_is_found() -> None:
    ours = {"type": "array", "items": {"type": "string", "maxLength": 5}}
    theirs = {"type": "array", "items": {"type": "string", "maxLength": 6}}
    assert list(differences(ours, theirs, "x")) == ["x[]: maxLength is 5, not 6"]
