from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.firings import Severity
from policies.incidents import declared
from policies.incidents.inhibition import Inhibition, Relation, inhibited, root_of
from policies.incidents.matchers import Subject, parse_matchers
from policies.incidents.places import Places
from policies.rules import builtin
from tests.builders.arrays import make_arrays
from tests.builders.firings import scope

FLEET = make_arrays(sites=2, racks=8)
PLACES = Places(FLEET)


def make_subject(rule: str, where: str, severity: Severity = Severity.WARNING) -> Subject:
    place = scope(where)
    return Subject(f"{rule} {where}", rule, severity, place, PLACES.site(place), {})


def make_inhibition(
    source: str, target: str, relation: Relation = Relation.BELOW, name: str = "test"
) -> Inhibition:
    return Inhibition(name, parse_matchers([source]), parse_matchers([target]), relation)


BUILT_IN_RULES = Path(builtin.__file__).parent
FEED_LOSS = make_inhibition("rule=feed-loss", "rule!=feed-loss")


def test_a_feed_loss_hides_its_racks_and_what_is_in_them() -> None:
    lost = make_subject("feed-loss", "power_domain s1/feed-b")
    below = [
        make_subject("rack-power", "rack s1/A01"),
        make_subject("stale", "node s1-B02-n1"),
        make_subject("hot", "gpu s1-B02-n1/7"),
        make_subject("rack-power", "power_domain s1/pdu-A-b"),
    ]
    others = [
        make_subject("rack-power", "rack s2/A01"),
        make_subject("site-power", "site s1"),
        make_subject("rack-power", "power_domain s1/pdu-A-a"),
    ]
    found = inhibited([lost, *below, *others], [FEED_LOSS], PLACES)
    assert found == {each.key: lost.key for each in below}


def test_nothing_is_hidden_without_its_source() -> None:
    assert inhibited([make_subject("rack-power", "rack s1/A01")], [FEED_LOSS], PLACES) == {}
    assert inhibited([], [FEED_LOSS], PLACES) == {}


def test_of_several_the_highest_counts() -> None:
    hides_all = make_inhibition("severity=critical", "severity=warning")
    found = inhibited(
        [
            make_subject("down", "rack s1/A01", Severity.CRITICAL),
            make_subject("down", "power_domain s1/utility", Severity.CRITICAL),
            make_subject("down", "power_domain s1/feed-a", Severity.CRITICAL),
            make_subject("hot", "gpu s1-A01-n1/0"),
        ],
        [hides_all],
        PLACES,
    )
    assert found == {"hot gpu s1-A01-n1/0": "down power_domain s1/utility"}


def test_same_site_needs_no_tree() -> None:
    wan = make_inhibition("rule=wan-loss", "rule=stale", Relation.SAME_SITE)
    found = inhibited(
        [
            make_subject("wan-loss", "link s1/wan"),
            make_subject("stale", "node s1-A01-n1"),
            make_subject("stale", "node s2-A01-n1"),
        ],
        [wan],
        PLACES,
    )
    assert found == {"stale node s1-A01-n1": "wan-loss link s1/wan"}


def test_two_of_one_site_do_not_hide_each_other() -> None:
    mutual = make_inhibition("rule=~.+", "rule=~.+", Relation.SAME_SITE)
    subjects = [make_subject("a", "rack s1/A01"), make_subject("b", "rack s1/A02")]
    assert inhibited(subjects, [mutual], PLACES) == {}


def test_of_a_circle_of_two_inhibitions_one_shows() -> None:
    circle = [
        make_inhibition("rule=a", "rule=b", Relation.SAME_SITE),
        make_inhibition("rule=b", "rule=a", Relation.SAME_SITE),
    ]
    subjects = [make_subject("a", "rack s1/A01"), make_subject("b", "rack s1/A02")]
    assert len(inhibited(subjects, circle, PLACES)) == 1


_WHERE = st.sampled_from(
    [
        "site s1",
        "power_domain s1/feed-a",
        "power_domain s1/pdu-A-a",
        "rack s1/A01",
        "rack s1/B01",
        "node s1-A01-n1",
        "gpu s1-A01-n1/0",
        "zone s1/zone-A",
        "link s1/wan",
        "rack s2/A01",
        "job 1",
    ]
)
_RULE = st.sampled_from(["a", "b", "c"])
_SUBJECTS = st.lists(st.tuples(_RULE, _WHERE), unique=True, max_size=25)
_INHIBITIONS = st.lists(
    st.builds(
        make_inhibition,
        _RULE.map("rule={}".format),
        _RULE.map("rule={}".format),
        st.sampled_from(list(Relation)),
    ),
    max_size=5,
)


@given(_SUBJECTS, _INHIBITIONS)
def test_whatever_is_hidden_is_explained_by_something_that_shows(
    pairs: list[tuple[str, str]], inhibitions: list[Inhibition]
) -> None:
    """So it never happens that of all that fires nothing is told."""
    subjects = [make_subject(rule, where) for rule, where in pairs]
    found = inhibited(subjects, inhibitions, PLACES)
    keys = {each.key for each in subjects}
    for key in found:
        root = root_of(key, found)
        assert root in keys
        assert root not in found
    assert not subjects or len(found) < len(subjects)


class TestDeclared:
    def test_the_built_in_file_is_taken(self) -> None:
        found = declared.parse(declared.BUILT_IN.read_bytes(), "inhibitions.yaml")
        assert len(found) >= 2
        assert len({each.name for each in found}) == len(found)

    def test_the_built_in_file_names_rules_that_there_are(self) -> None:
        known = {path.stem for path in BUILT_IN_RULES.glob("*.yaml")}
        found = declared.parse(declared.BUILT_IN.read_bytes(), "inhibitions.yaml")
        named = {
            name
            for each in found
            for matcher in (*each.source, *each.target)
            if matcher.field == "rule"
            for name in matcher.value.split("|")
        }
        assert named <= known

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "x.yaml:1: give one key"),
            ("inhibitions: 3", "x.yaml:1: give one key"),
            ("inhibitions: [", "x.yaml:2"),
            ("inhibitions:\n  - name: a\n", "x.yaml:2: inhibitions[0]: Object missing required"),
            (
                "inhibitions:\n  - {name: a, source: ['rule=x'], target: ['rule=y'], "
                "relation: above}\n",
                "x.yaml:2: inhibitions[0]: Invalid enum value 'above'",
            ),
            (
                "inhibitions:\n  - {name: a, source: ['rule=x'], target: ['rule=y'], "
                "relation: below}\n  - {name: b, source: ['x'], target: ['rule=y'], "
                "relation: below}\n",
                "x.yaml:3: inhibitions[1]: source: 'x' is no matcher",
            ),
            (
                "inhibitions:\n  - {name: a, source: [], target: ['rule=y'], relation: below}\n",
                "x.yaml:2: inhibitions[0]: source: give at least one",
            ),
            ("inhibitions:\n  - &a {name: b}\n  - *a\n", "x.yaml"),
        ],
    )
    def test_what_is_wrong_is_said_with_its_line(self, text: str, said: str) -> None:
        with pytest.raises(declared.BadInhibitions) as caught:
            declared.parse(text.encode(), "x.yaml")
        assert said in str(caught.value)
