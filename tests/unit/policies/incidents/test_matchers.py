from __future__ import annotations

import contextlib
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.firings import Severity
from policies.incidents.matchers import (
    MAX_MATCHERS,
    BadMatcher,
    Matcher,
    Operator,
    Subject,
    Subjects,
    parse,
    parse_matchers,
)
from tests.builders.firings import scope


def make_subject(rule: str = "rack-heat", where: str = "rack s1/A01", **labels: str) -> Subject:
    return Subject(f"{rule} {where}", rule, Severity.WARNING, scope(where), "s1", labels)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('rule="rack-heat"', True),
        ("rule=rack-heat", True),
        (' rule = "rack-heat" ', True),
        ('rule!="rack-heat"', False),
        ('rule=~"rack-.*"', True),
        ('rule=~"rack"', False),  # the whole value, not a part
        ('rule=~"x|rack-heat"', True),
        ('rule!~"rack-.*"', False),
        ('severity="warning"', True),
        ('site=~"s[0-9]"', True),
        ('scope="s1/A01"', True),
        ('scope_kind="rack"', True),
        ('label.team="ml"', True),
        ('label.owner=""', True),  # missing is empty, as in Alertmanager
        ('label.owner=~".+"', False),
    ],
)
def test_a_matcher_matches(text: str, expected: bool) -> None:
    found = Subjects([make_subject(team="ml")]).matching([parse(text)])
    assert found.tolist() == [expected]


def test_all_matchers_of_a_list_have_to_match() -> None:
    subjects = Subjects([make_subject("a"), make_subject("b")])
    both = parse_matchers(['rule=~"a|b"', 'rule!="a"'])
    assert subjects.matching(both).tolist() == [False, True]
    assert subjects.matching([]).tolist() == [True, True]


def test_no_subjects_are_no_matches() -> None:
    assert not Subjects([]).matching([parse('rule=~"a"')]).any()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (["rule"], "no matcher"),
        (['color="red"'], "no field of a firing"),
        (['label.="red"'], "no field of a firing"),
        (['rule=~"("'], "RE2"),
        (['rule=~"a)|(b"'], "RE2"),  # between our brackets it would balance
        (['rule=~"(?=a)"'], "RE2"),
        (["rule=" + "x" * 201], "longer than 200"),
        (["rule=a"] * (MAX_MATCHERS + 1), "more than 20"),
        ("rule=a", "give a list"),
        ([1], "give a list"),
        (None, "give a list"),
    ],
)
def test_what_is_wrong_is_said(value: object, said: str) -> None:
    with pytest.raises(BadMatcher, match=said.replace(".", r"\.")):
        parse_matchers(value)


def test_a_nasty_pattern_takes_no_time() -> None:
    """With backtracking this one would take longer than the universe is old."""
    matcher = parse('rule=~"(a*)*(a*)*(a*)*b"')
    begin = time.perf_counter()
    assert not matcher.over(np.array(["a" * 5000] * 100, dtype=np.object_)).any()
    assert time.perf_counter() - begin < 60


@given(st.text(st.characters(exclude_characters='"', exclude_categories=["Cs"]), max_size=50))
def test_what_is_written_is_read_back(value: str) -> None:
    matcher = Matcher("label.team", Operator.EQUAL, value)
    assert parse(str(matcher)) == matcher


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadMatcher):
        Subjects([make_subject()]).matching(parse_matchers([text, f"rule=~{text}"]))
