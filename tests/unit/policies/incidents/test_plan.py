"""What becomes of firings: told with cases, and with any order of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.firings import Firing, Severity
from policies.incidents.grouping import group_of, member_key
from policies.incidents.inhibition import Inhibition, Relation
from policies.incidents.matchers import parse_matchers
from policies.incidents.places import Places
from policies.incidents.plan import Known, Plan, plan, silenced, subject_of
from tests.builders.arrays import make_arrays
from tests.builders.firings import make_firing

PLACES = Places(make_arrays(sites=2, racks=8))
FEED_LOSS = Inhibition(
    "feed-loss",
    parse_matchers(["rule=feed-loss"]),
    parse_matchers(["rule!=feed-loss"]),
    Relation.BELOW,
)
LOST = make_firing("power_domain s1/feed-a", "feed-loss", labels={"dimension": "power"})


def decide(
    firings: Sequence[Firing],
    known: Mapping[str, Known] | None = None,
    released: Mapping[str, Firing] | None = None,
    silences: Sequence[tuple[int, Any]] = (),
) -> Plan:
    return plan(
        firings,
        known or {},
        released or {},
        places=PLACES,
        inhibitions=[FEED_LOSS],
        silences=silences,
    )


def after(decided: Plan, known: Mapping[str, Known] | None = None) -> dict[str, Known]:
    """Return what is known once ``decided`` is recorded."""
    rows = {key: each for key, each in (known or {}).items() if key not in decided.released}
    for key, source in decided.inhibited.items():
        rows[key] = replace(rows[key], inhibited_by=source)
    for key, silence in decided.silenced.items():
        rows[key] = replace(rows[key], silence=silence)
    for key, firing in decided.changed.items():
        subject = replace(rows[key].subject, severity=firing.severity)
        rows[key] = replace(
            rows[key], version=firing.version, playbook=firing.playbook, subject=subject
        )
    for home, arrivals in decided.arrivals.items():
        for each in arrivals:
            rows[each.subject.key] = Known(
                subject=each.subject,
                version=each.firing.version,
                playbook=each.firing.playbook,
                group_key=each.group.key,
                home_key=home,
                inhibited_by=each.inhibited_by,
                silence=each.silence,
                dismissed=False,
            )
    return rows


def homes(decided: Plan) -> dict[str, list[str]]:
    return {
        home: [each.subject.key for each in arrivals] for home, arrivals in decided.arrivals.items()
    }


def test_firings_of_a_rule_at_a_site_belong_together() -> None:
    firings = [make_firing(f"rack {site}/A0{i}") for site in ("s1", "s2") for i in (1, 2)]
    assert homes(decide(firings)) == {
        "rack-heat site s1": ["rack-heat rack s1/A01", "rack-heat rack s1/A02"],
        "rack-heat site s2": ["rack-heat rack s2/A01", "rack-heat rack s2/A02"],
    }


def test_one_firing_given_twice_is_one() -> None:
    assert homes(decide([make_firing(), make_firing()])) == {
        "rack-heat site s1": ["rack-heat rack s1/A01"]
    }


def test_what_is_known_changes_nothing() -> None:
    firings = [LOST, make_firing(), make_firing("rack s2/A01")]
    assert decide(firings, after(decide(firings))) == Plan()


def test_what_a_feed_loss_explains_is_in_its_incident() -> None:
    decided = decide([make_firing(), LOST])
    group = group_of(LOST, PLACES).key
    assert homes(decided) == {group: ["rack-heat rack s1/A01", LOST.key]}
    hidden, shown = decided.arrivals[group]
    assert hidden.inhibited_by == LOST.key
    assert shown.inhibited_by == ""


def test_it_joins_an_incident_that_is_open_already() -> None:
    known = after(decide([LOST]))
    assert homes(decide([LOST, make_firing()], known)) == {
        group_of(LOST, PLACES).key: ["rack-heat rack s1/A01"]
    }


def test_what_fired_before_the_feed_was_lost_stays_where_it_is() -> None:
    known = after(decide([make_firing()]))
    decided = decide([LOST], known)
    assert decided.inhibited == {"rack-heat rack s1/A01": LOST.key}
    assert homes(decided) == {group_of(LOST, PLACES).key: [LOST.key]}


def test_what_goes_on_after_the_feed_is_back_stands_for_itself() -> None:
    rack = make_firing()
    known = after(decide([LOST, rack]))
    del known[LOST.key]
    decided = decide([], known, {rack.key: rack})
    assert decided.released == [rack.key]
    assert homes(decided) == {"rack-heat site s1": [rack.key]}
    assert decide([], after(decided, known)) == Plan()


def test_of_a_closed_incident_nothing_new_is_a_guest() -> None:
    known = {key: replace(each, dismissed=True) for key, each in after(decide([LOST])).items()}
    decided = decide([make_firing()], known)
    assert list(decided.arrivals) == ["rack-heat site s1"]
    assert decided.arrivals["rack-heat site s1"][0].inhibited_by == LOST.key


def test_what_was_closed_while_it_fired_stays_closed() -> None:
    known = {key: replace(each, dismissed=True) for key, each in after(decide([LOST])).items()}
    worse = replace(LOST, severity=Severity.CRITICAL)
    assert decide([worse], known) == Plan()


@pytest.mark.parametrize(
    "change", [{"version": 2}, {"severity": Severity.CRITICAL}, {"playbook": "cap"}]
)
def test_what_changes_is_noted_and_stays_one(change: dict[str, Any]) -> None:
    known = after(decide([make_firing()]))
    changed = replace(make_firing(), **change)
    decided = decide([changed], known)
    assert decided == Plan(changed={changed.key: changed})


def test_a_silence_is_noted_and_taken_back() -> None:
    silences = [(7, parse_matchers(["rule=rack-heat"])), (8, parse_matchers(["site=s1"]))]
    known = after(decide([make_firing()]))
    decided = decide([], known, silences=silences)
    assert decided == Plan(silenced={"rack-heat rack s1/A01": 7})
    assert decide([], after(decided, known)) == Plan(silenced={"rack-heat rack s1/A01": None})
    arrival = decide([make_firing()], silences=silences).arrivals["rack-heat site s1"][0]
    assert arrival.silence == 7


_WHERE = [
    "power_domain s1/feed-a",
    "power_domain s1/feed-b",
    "rack s1/A01",
    "rack s1/B01",
    "gpu s1-A01-n1/0",
    "rack s2/A01",
    "site s1",
    "job 1",
]
_FIRINGS = st.builds(
    make_firing,
    st.sampled_from(_WHERE),
    st.sampled_from(["feed-loss", "rack-heat", "rack-power"]),
    values=st.sampled_from([{"power_use": 1.0}, {"hottest_c": 1.0}]),
)


@given(st.lists(st.tuples(st.lists(_FIRINGS, max_size=6), st.sets(st.integers(0, 30))), max_size=6))
def test_under_any_order_each_firing_is_in_one_incident(
    rounds: list[tuple[list[Firing], set[int]]],
) -> None:
    """Each round some fire, some clear. A second look at the same never changes anything."""
    known: dict[str, Known] = {}
    firing: dict[str, Firing] = {}
    for new, gone in rounds:
        for key in [key for place, key in enumerate(sorted(known)) if place in gone]:
            del known[key], firing[key]
        # What fires already fires on as it was.
        firing = {**{member_key(each): each for each in new}, **firing}
        decided = decide(list(firing.values()), known, firing)
        known = after(decided, known)
        assert known.keys() == firing.keys()
        arrived = [each.subject.key for some in decided.arrivals.values() for each in some]
        assert len(arrived) == len(set(arrived))
        again = decide(list(firing.values()), known, firing)
        assert again == Plan()
        for each in known.values():
            # Whoever is a guest is so because of something that fires, in the same incident.
            if each.is_guest:
                assert each.inhibited_by in known


def test_of_a_site_that_is_lost_every_firing_arrives_once() -> None:
    fleet = make_arrays(sites=4, racks=1000)
    places = Places(fleet)
    lost = [make_firing(f"power_domain s1/{name}", "feed-loss") for name in ("feed-a", "feed-b")]
    nodes = [
        make_firing(f"{kind} {name}", rule)
        for rule in ("stale", "hot", "slow")
        for kind, names in (("rack", fleet.racks.paths), ("node", fleet.nodes.names))
        for name in names.tolist()
    ][:10_000]
    silences = [(i, parse_matchers([f'rule=~"hot|x{i}"', "site=s3"])) for i in range(20)]
    decided = plan(
        [*lost, *nodes],
        {},
        {},
        places=places,
        inhibitions=[FEED_LOSS],
        silences=silences,
    )
    assert sum(map(len, decided.arrivals.values())) == 10_002


def test_silenced_names_the_first_silence() -> None:
    subjects = [subject_of(make_firing(f"rack s1/A0{i}"), PLACES) for i in (1, 2)]
    found = silenced(
        subjects, [(1, parse_matchers(['scope=~".*A02"'])), (2, parse_matchers(["site=s1"]))]
    )
    assert found == {"rack-heat rack s1/A01": 2, "rack-heat rack s1/A02": 1}
