from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from dashboard import ranges
from dashboard.ranges import Choice
from telemetry.spans import Span

NOW = 1_800_000_000.0


def test_a_preset_is_marked_and_stays_a_preset_in_links() -> None:
    picker = ranges.read({"range": "6h"}, NOW)
    assert [value for value, _, chosen in picker.presets if chosen] == ["6h"]
    assert picker.query == "range=6h"
    assert not picker.is_custom


def test_another_length_is_kept_though_no_preset_has_it() -> None:
    picker = ranges.read({"range": "30m"}, NOW)
    assert picker.query == "range=30m"
    assert picker.is_custom


def test_a_span_of_the_past_keeps_both_ends() -> None:
    picker = ranges.read({"from": "2026-11-20T08:00", "to": "2026-11-20T09:00"}, NOW)
    assert ranges.as_params(picker) == {
        "from": "2026-11-20T08:00:00",
        "to": "2026-11-20T09:00:00",
    }
    assert (picker.from_value, picker.to_value) == ("2026-11-20T08:00:00", "2026-11-20T09:00:00")


def test_a_span_without_an_end_stays_live() -> None:
    picker = ranges.read({"from": str(NOW - 60)}, NOW)
    assert picker.span.live
    assert set(ranges.as_params(picker)) == {"from"}


def test_a_form_that_was_left_empty_asks_for_the_default() -> None:
    picker = ranges.read({"from": "", "to": "", "range": ""}, NOW)
    assert (picker.span.range, picker.error) == ("1h", "")


def chosen(choices: list[Choice]) -> list[tuple[str, str]]:
    return [(each.words, each.href) for each in choices if each.chosen]


def test_links_keep_zone_comparison_and_what_else_the_page_shows() -> None:
    params = {"range": "6h", "zone": "local", "compare": "before", "metric": "heat", "x": "y"}
    picker = ranges.read(params, NOW, keep=("metric",))
    assert chosen(picker.ranges) == [("6 h", "?range=6h&metric=heat&zone=local&compare=before")]
    assert [each.href for each in picker.zones] == [
        "?range=6h&metric=heat&compare=before",
        "?range=6h&metric=heat&zone=local&compare=before",
    ]
    assert picker.comparisons[0] == Choice(
        "?range=6h&metric=heat&zone=local", "the range before", chosen=True
    )
    assert [(each.words, each.href, each.chosen) for each in picker.comparisons[1:]] == [
        ("24 h earlier", "?range=6h&metric=heat&zone=local&compare=24h", False),
        ("7 d earlier", "?range=6h&metric=heat&zone=local&compare=7d", False),
    ]
    assert picker.hidden == {"metric": "heat", "zone": "local", "compare": "before"}


def test_an_earlier_range_that_is_none_is_told_with_its_field() -> None:
    picker = ranges.read({"compare": "yesterday"}, NOW)
    assert (picker.field, picker.compared) == ("compare", "")
    assert picker.error == "give one of before, 24h, 7d, or leave it out"


def test_the_script_of_the_chart_has_the_same_words() -> None:
    script = Path("static/js/timeline.js").read_text(encoding="utf-8")
    earlier = re.findall(r'"(\w+)": \[(\d+), "([^"]+)"\]', script)
    assert [(value, words) for value, _, words in earlier] == list(ranges.COMPARISONS[1:])
    assert [int(back_s) for _, back_s, _ in earlier] == [24 * 3600, 7 * 24 * 3600]


def test_a_live_span_is_fixed_at_its_ends_and_a_fixed_one_goes_live_at_its_length() -> None:
    live, fixed = ranges.read({"range": "1h"}, NOW).modes
    assert (live.chosen, fixed.chosen) == (True, False)
    then = dict(parse_qsl(fixed.href.removeprefix("?")))
    assert ranges.read(then, NOW + 500.0).span == Span(NOW - 3600.0, NOW)
    live, fixed = ranges.read(then, NOW).modes
    assert (live.href, live.chosen, fixed.chosen) == ("?range=3600s", False, True)


def test_of_what_has_ended_all_is_shown_and_ranges_end_with_it() -> None:
    life = Span(1000.0, 9000.0)
    picker = ranges.read({}, NOW, life=life)
    assert (picker.span, picker.query, picker.modes) == (life, "", [])
    assert chosen(picker.ranges) == [("all", "?")]
    picker = ranges.read({"range": "15m"}, NOW, life=life)
    assert (picker.span.start, picker.span.end, picker.span.live) == (8100.0, 9000.0, False)


@pytest.mark.parametrize(
    "params",
    [
        {"range": "soon"}, {"from": "2", "to": "1"}, {"to": "2026-11-20"}, {"zone": "mars"},
        {"compare": "after"},
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_the_default_shown(params: dict[str, str]) -> None:
    picker = ranges.read(params, NOW)
    assert picker.error
    assert picker.field
    assert picker.span.range == "1h"
