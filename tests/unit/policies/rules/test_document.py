"""A rule's document: what is taken, and what is refused with its place."""

from __future__ import annotations

import pytest

from headroom.contracts import FieldError
from headroom.documents import DocumentError
from policies.documents import diff
from policies.restrictions.kinds import RestrictionKind
from policies.rules import builtin, document, durations, words
from policies.rules.cel import Quantity
from policies.rules.document import Notify, OpenIncident, Related, Restrict
from policies.scopes import ScopeKind

GOOD = """\
name: rack-power
scope: rack
severity: warning
summary: "Rack {name} draws {power_load_w} ({power_use:%})"
when: |
  power_use > 0.95
  && !stale
for: 30s
clear: power_use < 0.9
clear_for: 2m
effects:
  - restrict: {kind: no_new_launches, lease: 5m}
  - restrict: {kind: power_cap_w, value: "power_budget_w / gpus", scope: zone}
  - incident: {playbook: power-cap}
  - notify: {channels: [ops, night]}
annotations:
  fix: Lower the load by {power_headroom_w}
"""


def problems(text: str) -> list[FieldError]:
    with pytest.raises(DocumentError) as refused:
        document.read(text)
    return refused.value.problems


def test_a_rule_is_read() -> None:
    rule = document.read(GOOD)
    assert (rule.name, rule.scope, rule.for_s, rule.clear_for_s) == (
        "rack-power", ScopeKind.RACK, 30.0, 120.0,
    )  # fmt: skip
    launches, cap, incident, notify = rule.effects
    assert isinstance(launches, Restrict)
    assert (launches.kind, launches.lease_s) == (RestrictionKind.NO_NEW_LAUNCHES, 300.0)
    assert isinstance(cap, Restrict)
    assert isinstance(cap.value, Quantity)
    assert cap.scope is Related.ZONE
    assert incident == OpenIncident("power-cap")
    assert notify == Notify(("ops", "night"))
    assert rule.fields == {"power_use", "stale", "power_budget_w", "gpus"}
    assert "power_headroom_w" in rule.shown


@pytest.mark.parametrize(
    ("old", "new", "place", "message"),
    [
        ("power_use > 0.95", "power_use > 1", (6, 13), "no matching overload"),
        ("&& !stale", "&& !stael", (7, 7), "undeclared reference"),
        ("for: 30s", "for: soon", (8, 6), "no length of time"),
        ("for: 30s", "for: 90d", (8, 6), "is not from"),
        ("for: 30s", "for: -5", (8, 6), "is not from"),
        ("for: 30s", "four: 30s", (8, 1), "unknown field"),
        ("{power_load_w}", "{power_w}", (4, 29), "no field 'power_w'"),
        ("({power_use:%})", "({power_use:x})", (4, 45), "no field"),
        ("({power_use:%})", "({power_use", (4, 45), "no field"),
        ("kind: no_new_launches", "kind: nothing", (12, 22), "Invalid enum value"),
        ("kind: no_new_launches", "kind: link_share", (12, 15), "cannot be on a rack"),
        ("kind: no_new_launches", "kind: no_new_launches, value: 3", (12, 46), "takes no value"),
        ("scope: zone", "scope: node", (13, 74), "has no node"),
        ('"power_budget_w / gpus"', '"power_budget_w / gpu"', (13, 60), "undeclared"),
        ('"power_budget_w / gpus"', "-5", (13, 42), "out of bounds"),
        ('value: "power_budget_w / gpus", ', "", (13, 15), "needs a value"),
        ("- incident:", "- incidents:", (14, 5), "unknown field"),
        ("lease: 5m", "lease: 5s", (12, 46), "is not from"),
        ("power_use < 0.9", "power_use < 0.99", (9, 8), "both hold"),
        ("severity: warning", "severity: bad", (3, 11), "Invalid enum value"),
        ("name: rack-power", "name: Rack Power", (1, 7), "small letters"),
        ("scope: rack\n", "scope: rack\nselect: {kinds: [feed]}\n", (3, 18), "of kind 'feed'"),
        ("scope: rack\n", "scope: rack\nscope: rack\n", (3, 1), "given twice"),
        ("severity: warning", "severity: &x warning", (3, 11), "anchors"),
        ("severity: warning", "severity: !!python/name:os warning", (3, 11), "cannot be used"),
        ("severity: warning", "severity: 2026-01-01", (3, 11), "2026-01-01"),
        ("name: rack-power", "? [a]\n: b\nname: rack-power", (1, 3), "a key has to be"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    old: str, new: str, place: tuple[int, int], message: str
) -> None:
    assert old in GOOD
    found = problems(GOOD.replace(old, new, 1))[0]
    assert message in found.message
    assert (found.line, found.column) == place


def test_an_effect_does_one_thing() -> None:
    found = problems(GOOD.replace("- incident:", "  incident:", 1))
    assert "one of restrict" in found[0].message


def test_all_faults_are_told_at_once() -> None:
    text = GOOD.replace("0.95", "1").replace("for: 30s", "for: soon").replace("{name}", "{nam}")
    assert [found.field for found in problems(text)] == ["when", "for", "summary"]


@pytest.mark.parametrize(
    ("when", "clear"),
    [
        ("power_use > 0.95", "power_use <= 0.95"),
        ("power_use > 0.95", "!(power_use > 0.95)"),
        ("stale", "!stale"),
        ("power_use > 0.95 && stale", "power_use < 0.9 || !stale"),
        ("power_use > power_confidence", "power_use < 0.5 * power_confidence"),
    ],
)
def test_a_rule_without_hysteresis_is_refused(when: str, clear: str) -> None:
    text = GOOD.replace("|\n  power_use > 0.95\n  && !stale", when)
    text = text.replace("power_use < 0.9\nclear_for: 2m", f'"{clear}"')
    assert "between firing and clearing" in problems(text)[0].message
    assert document.read(text.replace("effects:", "clear_for: 5s\neffects:", 1)).clear_for_s == 5


def test_a_band_of_values_is_enough() -> None:
    rule = document.read(GOOD.replace("clear_for: 2m\n", "").replace("  && !stale\n", ""))
    assert rule.clear_for_s == 0


def test_without_clear_a_time_is_needed() -> None:
    text = GOOD.replace("clear: power_use < 0.9\n", "")
    assert document.read(text).clear is None
    assert "clear_for" in problems(text.replace("clear_for: 2m\n", ""))[0].hint


def test_traffic_is_shifted_on_links() -> None:
    text = GOOD.replace("- restrict: {kind: no_new_launches, lease: 5m}", "- shift: {share: 0.5}")
    assert "on links alone" in problems(text)[0].message
    link = """
name: full-link
scope: link
severity: info
summary: full
when: link_use > 0.9
clear: link_use < 0.7
effects: [{shift: {share: 0.5}}]
"""
    (shift,) = document.read(link).effects
    assert isinstance(shift, Restrict)
    assert (shift.kind, shift.value) == (RestrictionKind.LINK_SHARE, 0.5)
    assert "no share" in problems(link.replace("0.5", "1.5"))[0].message


@pytest.mark.parametrize(
    "text", ["", "[]", "a", "\t", "x" * 70_000, "[" * 5_000, "a: \x07", "{", "a: }", "- - - -"]
)
def test_whatever_is_no_rule_is_refused(text: str) -> None:
    assert problems(text)[0].line in (1, 2)


def test_a_place_is_found_in_every_way_to_write_a_text() -> None:
    for written, place in [
        ("power_use > 1", (5, 17)),
        ("'power_use > 1'", (5, 18)),
        ('"power_use > 1"', (5, 18)),
        (">-\n  power_use\n  > 1", (7, 3)),
        ("|\n\n  power_use\n\n  > 1", (9, 3)),
        ("power_use\n  > 1", (6, 3)),
    ]:
        text = GOOD.replace("|\n  power_use > 0.95\n  && !stale", written)
        found = problems(text)[0]
        assert (found.line, found.column) == place, written


# --- Built-in rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(builtin.texts()))
def test_a_built_in_rule_is_right(name: str) -> None:
    rule = document.read(builtin.texts()[name])
    assert rule.name == name
    assert rule.description
    assert rule.clear_for_s > 0
    assert rule.effects


# --- Words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (41_234.0, "W", "41.2 kW"),
        (1.5e6, "W", "1.5 MW"),
        (-300.0, "W", "-300 W"),
        (0.0, "W", "0 W"),
        (4e11, "bit/s", "400 Gbit/s"),
        (82.125, "°C", "82.1 °C"),
        (0.953, "%", "95.3 %"),
        (0.953, "", "0.95"),
        (210.0, "s", "3.5 min"),
        (0.0123, "s", "12.3 ms"),
        (90_000.0, "s", "1.04 d"),
        (float("inf"), "s", "never"),
        (float("nan"), "W", "unknown"),
        (None, "W", "unknown"),
        (True, "", "yes"),
        ("feed", "", "feed"),
        (12, "", "12"),
    ],
)
def test_numbers_are_said_as_people_say_them(value: object, unit: str, expected: str) -> None:
    assert words.spoken(value, unit) == expected


def test_braces_stand_for_themselves() -> None:
    assert words.filled("{{a}} {b}", {"b": 2.0}, {}) == "{a} 2"


@pytest.mark.parametrize(
    ("given", "expected"),
    [("30s", 30.0), ("1h30m", 5400.0), ("2d", 172_800.0), ("1.5m", 90.0), (12, 12.0), ("0s", 0.0)],
)
def test_lengths_of_time(given: str | float, expected: float) -> None:
    assert durations.seconds(given) == expected


@pytest.mark.parametrize("given", ["", "5", "m", "5 weeks", "-5s", "5s!"])
def test_what_is_no_length_of_time_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match="no length of time"):
        durations.seconds(given)


def test_layout_and_comments_are_no_difference() -> None:
    assert diff.changes(GOOD, "# ours\n" + GOOD.replace("for: 30s", "for:   30s")) == []
    (change,) = diff.changes(GOOD, GOOD.replace("[ops, night]", "[ops, day]"))
    assert (change.path, change.old, change.new) == (
        "effects[3].notify.channels[1]", "night", "day",
    )  # fmt: skip
    assert diff.text_diff(GOOD, GOOD, old_name="a", new_name="b") == ""
