from __future__ import annotations

import pytest

from dashboard import ranges

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


@pytest.mark.parametrize(
    "params", [{"range": "soon"}, {"from": "2", "to": "1"}, {"to": "2026-11-20"}]
)
def test_what_is_wrong_is_said_and_the_default_shown(params: dict[str, str]) -> None:
    picker = ranges.read(params, NOW)
    assert picker.error
    assert picker.field
    assert picker.span.range == "1h"
