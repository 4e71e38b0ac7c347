"""What the pages of rules show, without a database."""

from __future__ import annotations

from dashboard import documents, rules
from headroom.documents import fault
from policies.rules.builtin import texts


def test_a_fault_is_quoted_with_a_caret_below_its_column() -> None:
    (found,) = documents.quoted("name: x\nwhen: hot > 3", [fault("no such field", 2, 7)])
    assert found.line == "when: hot > 3"
    assert found.caret == "      ^"


def test_faults_stand_in_the_order_of_their_lines() -> None:
    found = documents.quoted("a\nb\nc", [fault("x", 3, 1), fault("y", 1, 1), fault("z")])
    assert [each.problem.message for each in found] == ["z", "y", "x"]
    assert (found[0].line, found[0].caret) == ("", "")


def test_of_a_line_without_end_the_part_around_the_fault_is_quoted() -> None:
    (found,) = documents.quoted("a" * 5000 + "!" + "b" * 5000, [fault("!", 1, 5001)])
    assert len(found.line) <= 160
    assert found.line[len(found.caret) - 1] == "!"


def test_a_place_beyond_the_text_quotes_nothing() -> None:
    (found,) = documents.quoted("a", [fault("x", 99, 1)])
    assert (found.line, found.caret) == ("", "")


def test_lines_of_a_diff_say_what_they_are() -> None:
    text = "--- v1\n+++ v2\n@@ -1 +1 @@\n-a\n+b\n c"
    found = [(line.text, line.look) for line in documents.diff_lines(text)]
    assert found == [("@@ -1 +1 @@", "place"), ("-a", "old"), ("+b", "new"), (" c", "same")]
    assert documents.diff_lines("") == []


def test_every_effect_of_the_rules_that_come_along_is_told_in_words() -> None:
    for name, text in texts().items():
        rule = rules.said(text)
        assert rule is not None, name
        for each in rules.effects(rule):
            assert each.words
            assert "object at" not in each.words


def test_a_text_that_is_no_rule_says_nothing() -> None:
    assert rules.said("name: [") is None
