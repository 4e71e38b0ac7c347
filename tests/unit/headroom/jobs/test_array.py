from __future__ import annotations

import json

import pytest

from headroom.jobs import array, reading
from headroom.jobs.array import ArrayError
from headroom.jobs.reading import SpecError
from tests.unit.headroom.jobs.specs import make_phase, make_spec


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("0-3", (0, 1, 2, 3), None),
        ("7", (7,), None),
        ("0-9:4", (0, 4, 8), None),
        ("9,1-3,2", (1, 2, 3, 9), None),
        ("0-3%2", (0, 1, 2, 3), 2),
    ],
)
def test_it_is_read_as_slurm_writes_it(
    text: str, indices: tuple[int, ...], limit: int | None
) -> None:
    found = array.read(text)
    assert (found.indices, found.limit) == (indices, limit)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no indices"),
        ("a-b", "names no indices"),
        ("1,,2", "names no indices"),
        ("5-3", "ends before it begins"),
        ("0-9:0", "goes on by 0"),
        ("0-9%0", "cannot run at once"),
        ("0-9%", "cannot run at once"),
        ("0-9%2%3", "cannot run at once"),
        ("1000000", "too large an index"),
        ("0-10000", "more than 10,000 elements"),
        ("\N{ARABIC-INDIC DIGIT ONE}", "names no indices"),
    ],
)
def test_what_is_none_says_why_and_what_to_write(text: str, says: str) -> None:
    with pytest.raises(ArrayError, match=says) as caught:
        array.read(text)
    assert caught.value.hint


def test_ten_thousand_elements_are_taken() -> None:
    assert len(array.read("0-9999")) == 10_000


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("train", "4-2", "array"),
        ("train.3", "0-4", "phases[0].name"),
        ("t" * 51, "0-4", "phases[0].name"),
        ("train", "0-4\n", "array"),
    ],
)
def test_a_specification_whose_array_is_none_is_refused(name: str, given: str, field: str) -> None:
    with pytest.raises(SpecError) as caught:
        reading.read(json.dumps(make_spec(make_phase(name), array=given)).encode())
    assert caught.value.problems[0].field == field
