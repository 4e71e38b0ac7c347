"""Phases as a graph."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.svg.graph import Box, clipped, graph, layout


def make_box(name: str, *needs: str, chosen: bool = False) -> Box:
    title = f"phase {name}: queued"
    return Box(name, needs, f"?phase={name}", "…", "queued", ("queued", "8 GPUs"), title, chosen)


def test_a_chain_goes_from_left_to_right() -> None:
    found = layout({"load": [], "train": ["load"], "ship": ["train"]})
    assert found.places == {"load": (0, 0), "train": (1, 0), "ship": (2, 0)}
    assert found.routes == [[(0, 0), (1, 0)], [(1, 0), (2, 0)]]


def test_a_phase_stands_right_of_all_that_it_waits_for() -> None:
    found = layout({"ship": ["train", "test"], "train": [], "test": ["train"]})
    assert {name: place[0] for name, place in found.places.items()} == {
        "train": 0,
        "test": 1,
        "ship": 2,
    }


def test_a_line_over_a_column_has_a_place_there() -> None:
    found = layout({"a": [], "b": ["a"], "c": ["a", "b"]})
    assert found.columns == [[True], [True, False], [True]]
    (long,) = [route for route in found.routes if len(route) == 3]
    assert long[0] == found.places["a"]
    assert long[-1] == found.places["c"]
    assert long[1] not in found.places.values()


def test_what_is_needed_twice_or_is_not_there_is_one_line_or_none() -> None:
    assert layout({"a": [], "b": ["a", "a", "gone"]}).routes == [[(0, 0), (1, 0)]]


def test_a_circle_is_refused() -> None:
    with pytest.raises(ValueError, match="circle"):
        layout({"a": ["b"], "b": ["a"]})


@st.composite
def _graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    names = [f"p{number}" for number in range(draw(st.integers(1, 9)))]
    needs = {
        name: draw(st.lists(st.sampled_from(names[:place]), unique=True)) if place else []
        for place, name in enumerate(names)
    }
    return {name: needs[name] for name in draw(st.permutations(names))}


@given(_graphs())
@settings(max_examples=60, deadline=None)
def test_every_line_is_drawn_once_in_steps_of_one_column_and_nothing_shares_a_place(
    needs: dict[str, list[str]],
) -> None:
    found = layout(needs)
    ends = [(route[0], route[-1]) for route in found.routes]
    wanted = [(found.places[b], found.places[name]) for name in needs for b in needs[name]]
    assert sorted(ends) == sorted(wanted)
    for route in found.routes:
        assert all(after[0] == before[0] + 1 for before, after in pairwise(route))
    inner = [place for route in found.routes for place in route[1:-1]]
    taken = [*found.places.values(), *inner]
    assert len(set(taken)) == len(taken) == sum(map(len, found.columns))


def test_boxes_are_links_that_say_their_state_in_words_and_mark_the_chosen_one() -> None:
    svg = graph([make_box("load"), make_box("train", "load", chosen=True)], "2 phases")
    assert re.findall(r'<a id="(phase-\w+)" class="phase phase-queued"', svg) == [
        "phase-load",
        "phase-train",
    ]
    assert svg.count('aria-current="true"') == 1
    assert 'aria-label="phase load: queued"' in svg
    assert svg.count("phase-line") == 1


def test_names_are_escaped_and_clipped() -> None:
    name = "<script>" + "n" * 60
    svg = graph([make_box(name)], name)
    assert "<script>" not in svg
    assert "… &lt;script&gt;nnnnnnnnnnn…<" in svg
    assert clipped("short", 5) == "short"
