"""A table of a page read as data."""

from __future__ import annotations

from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.tables import as_cards, mark, read, slug, titles
from dashboard.units import DASH

HEAD = """<table class="data"><thead><tr>
  <th scope="col">job</th><th scope="col" class="num">draw, kW</th><th>since, UTC</th>
</tr></thead><tbody>{}</tbody></table>"""


def row(*cells: str, number: str = "num") -> str:
    inner = "".join(
        f'<td class="{number if at == 1 else ""}">{cell}</td>' for at, cell in enumerate(cells)
    )
    return f"<tr>{inner}</tr>"


def test_numbers_are_raw_moments_in_utc_and_dashes_nothing() -> None:
    moment = '<time datetime="2026-03-01T13:00:00+01:00">03-01 12:00</time>'
    table = read(HEAD.format(row("a", mark(41.234, "kW", "41.2"), moment) + row("b", DASH, DASH)))
    assert [each.name for each in table.columns] == ["job", "draw_kw", "since_utc"]
    assert table.rows == [["a", 41.234, "2026-03-01T12:00:00Z"], ["b", None, None]]


def test_a_column_of_numbers_has_its_unit_in_its_name() -> None:
    html = """<table><thead><tr><th>waits for</th><th data-unit="kWh">all</th></tr></thead>
    <tbody><tr><td>{}</td><td class="num">1,234.5</td></tr></tbody></table>"""
    table = read(html.format(mark(90.0, "s", "90 s")))
    assert [each.name for each in table.columns] == ["waits_for_s", "all_kwh"]
    assert table.rows == [[90.0, 1234.5]]


def test_numbers_beside_words_stay_words() -> None:
    table = read(HEAD.format(row("a", mark(1.5, "kW", "1.5") + " of 3", "")))
    assert table.rows == [["a", "1.5 of 3", None]]


def test_columns_of_several_units_stay_words() -> None:
    both = row("a", mark(1.0, "W", "1 W"), "") + row("b", mark(2.0, "°C", "2 °C"), "")
    assert [each[1] for each in read(HEAD.format(both)).rows] == ["1 W", "2 °C"]


@pytest.mark.parametrize(
    "cell",
    [
        '<span aria-hidden="true">●</span>run',
        "run<svg><text>no</text></svg>",
        "run<form><button>stop</button><input></form>",
        'run<a class="row-acts" href="#">stop</a>',
        "run<span hidden>no</span>",
    ],
)
def test_pictures_controls_and_what_is_hidden_are_no_part_of_a_cell(cell: str) -> None:
    assert read(HEAD.format(row(cell, "1", ""))).rows == [["run", 1, None]]


def test_a_term_stands_in_a_title_without_its_meaning() -> None:
    html = """<table><thead><tr><th><button class="term" popovertarget="a">committed</button>
    <span popover id="a">what counts as drawn</span>, kW</th></tr></thead></table>"""
    assert titles(html) == ["committed , kW"]
    assert [each.name for each in read(html).columns] == ["committed_kw"]


def test_columns_of_controls_and_hidden_ones_are_left_out() -> None:
    html = HEAD.format(row("a", "1", "<button>stop</button>"))
    assert [each.title for each in read(html).columns] == ["job", "draw, kW"]
    assert [each.title for each in read(html, hidden=[0]).columns] == ["draw, kW"]


def test_a_row_that_is_one_sentence_is_no_row() -> None:
    html = HEAD.format('<tr><td colspan="3">None is left.</td></tr>' + row("a", "1", "x"))
    assert read(html).rows == [["a", 1, "x"]]


def test_columns_of_one_title_have_names_of_their_own() -> None:
    html = "<table><thead><tr><th>a</th><th>a</th></tr></thead></table>"
    assert [each.name for each in read(html).columns] == ["a", "a_2"]
    assert titles(html) == ["a", "a"]


def test_cells_of_cards_have_the_titles_of_their_columns_and_all_parts_their_roles() -> None:
    html = HEAD.format("<tr><th>a &amp; b</th><td>1</td><td>x</td></tr>")
    assert as_cards(html, ["job", 'draw, "kW"', ""]) == (
        """<table class="cards data" role="table"><thead role="rowgroup"><tr role="row">
  <th scope="col" role="columnheader">job</th>"""
        """<th scope="col" class="num" role="columnheader">draw, kW</th>"""
        """<th role="columnheader">since, UTC</th>
</tr></thead><tbody role="rowgroup"><tr role="row">"""
        """<th role="rowheader" data-label="job">a &amp; b</th>"""
        """<td role="cell" data-label="draw, &quot;kW&quot;">1</td>"""
        """<td role="cell">x</td></tr></tbody></table>"""
    )


def test_a_cell_over_several_columns_has_no_title_of_one() -> None:
    html = HEAD.format('<tr><td colspan="3">None is left.</td></tr>')
    assert "data-label" not in as_cards(html, titles(html))


@pytest.mark.parametrize(
    ("cell", "is_blank"),
    [("", True), (" \n", True), (f" {DASH} ", True), ("-1", False), ("0", False)],
)
def test_cells_that_hold_nothing_are_marked(cell: str, is_blank: bool) -> None:
    html = HEAD.format(f'<tr><th>a</th><td class="num">{cell}</td><td>x</td></tr>')
    assert as_cards(html, titles(html)).count("data-blank") == is_blank


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=3, max_size=3))
def test_cards_say_what_their_table_says(cells: list[str]) -> None:
    html = HEAD.format(row(*(escape(each) for each in cells)))
    assert read(as_cards(html, titles(html))) == read(html)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("cap, W/GPU", "cap_w_per_gpu"),
        ("use, %", "use_percent"),
        ("to limit, °C", "to_limit_c"),
        ("", ""),
    ],
)
def test_titles_as_names(title: str, name: str) -> None:
    assert slug(title) == name


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_is_found_again_to_its_last_digit(value: float) -> None:
    assert read(HEAD.format(row("a", mark(value, "", "about so much"), ""))).rows[0][1] == value
