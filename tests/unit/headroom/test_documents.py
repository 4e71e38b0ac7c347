"""The one reader of documents: values, and the place of each in the text."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from headroom import documents
from headroom.documents import DocumentError, told

TEXT = """\
name: one
steps:
  - id: first
    when: |
      power_use > 0.9
      && stale
  - {id: second, when: "a <  b"}
"""


def test_values_and_keys_have_places() -> None:
    found = documents.read(TEXT)
    assert found.value["steps"][1] == {"id": "second", "when": "a <  b"}
    assert found.place("steps[1].id") == (7, 10)
    assert found.keys["steps[1].when"] == (7, 18)
    assert found.place("steps[0].when") == (4, 11)
    assert found.place("") == (1, 1)


def test_what_is_not_there_is_where_its_parent_is() -> None:
    found = documents.read(TEXT)
    assert found.place("steps[0].else[2]") == found.place("steps[0]") == (3, 5)
    assert found.place("nothing.at.all") == (1, 1)


@pytest.mark.parametrize(
    ("path", "word", "place"),
    [
        ("steps[0].when", "power_use", (5, 7)),
        ("steps[0].when", "stale", (6, 10)),
        ("steps[1].when", "b", (7, 30)),
        ("name", "one", (1, 7)),
    ],
)
def test_a_character_of_a_text_has_a_place(path: str, word: str, place: tuple[int, int]) -> None:
    found = documents.read(TEXT)
    value: Any = {
        "steps[0].when": found.value["steps"][0]["when"],
        "steps[1].when": found.value["steps"][1]["when"],
        "name": found.value["name"],
    }[path]
    assert found.place_inside(path, value, value.index(word)) == place


class _Thing(Struct, forbid_unknown_fields=True):
    name: str
    count: int = 0


@pytest.mark.parametrize(
    ("text", "field", "place", "hint"),
    [
        ("name: a\ncoutn: 1\n", "coutn", (2, 1), "do you mean count?"),
        ("name: a\nx: 1\n", "x", (2, 1), "see the reference"),
        ("name: a\nx`: 1\n", "x", (1, 1), "see the reference"),
        ("name: a\ncount: b\n", "count", (2, 8), "see the reference"),
        ("count: 1\n", "name", (1, 1), "see the reference"),
        ("", "", (1, 1), "see the reference"),
        ("[a]", "", (1, 1), "see the reference"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(
    text: str, field: str, place: tuple[int, int], hint: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        documents.read(text).converted(_Thing, "the reference")
    (problem,) = caught.value.problems
    assert (problem.field, (problem.line, problem.column)) == (field, place)
    assert problem.hint == hint
    assert told(problem).startswith(f"line {place[0]}, column {place[1]}: ")


def test_a_text_that_is_too_long_is_not_read() -> None:
    with pytest.raises(DocumentError, match="at most 10 are taken"):
        documents.read("[" * 11, most_characters=10)


_plain = st.recursive(
    st.integers(-99, 99) | st.text("abcxyz ", min_size=1, max_size=9) | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc", min_size=1, max_size=4), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(_plain)
def test_what_is_written_is_read_and_all_of_it_has_a_place(value: Any) -> None:
    found = documents.read(yaml.safe_dump(value))
    assert found.value == value
    assert set(found.places) == set(_paths(value))


def _paths(value: Any, path: str = "") -> list[str]:
    found = [path]
    if isinstance(value, dict):
        for key, each in value.items():
            found += _paths(each, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, each in enumerate(value):
            found += _paths(each, f"{path}[{place}]")
    return found
