"""The limits of a fleet: cut to nodes, and to agents."""

from __future__ import annotations

import math
import time
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.contracts import Limit
from policies.restrictions import limits
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.limits import LimitTable, TooManyLimits, make_table
from policies.restrictions.strictest import ActiveRestriction
from telemetry.directory import AgentScope
from tests.builders.arrays import make_arrays
from tests.unit.policies.restrictions.builders import NOW, make_in_force, make_restriction

FLEET = make_arrays(sites=2)
CLOCK = RestrictionKind.CLOCK_CAP_MHZ


def agent(*nodes: str, sites: tuple[int, ...] = ()) -> AgentScope:
    ids = {int(FLEET.nodes.ids[FLEET.nodes.index_by_name[name]]) for name in nodes}
    return AgentScope(1, "agent-1", frozenset(ids), frozenset(sites))


def limits_of(table: LimitTable, scope: AgentScope) -> list[Limit]:
    return msgspec.json.decode(table.encoded(scope), type=list[Limit])


def test_an_agent_gets_the_limits_of_its_nodes_alone() -> None:
    one, other = make_restriction(value=450.0), make_restriction("rack s1/A02")
    table = make_table(make_in_force(one, other), FLEET)
    (limit,) = limits_of(table, agent("s1-A01-n1"))
    assert limit == Limit(
        id=f"restriction-{one.id}",
        node="s1-A01-n1",
        kind="power_cap_w",
        value=450.0,
        expires_at=one.expires_at.timestamp(),
    )
    assert limits_of(table, agent("s2-A01-n1")) == []
    assert len(limits_of(table, agent("s1-A01-n1", "s1-A02-n1", "s1-A03-n1"))) == 2


def test_an_agent_of_a_site_gets_those_of_its_nodes() -> None:
    table = make_table(make_in_force(make_restriction(), make_restriction("rack s2/A01")), FLEET)
    assert {limit.node for limit in limits_of(table, agent(sites=(1,)))} == {
        "s1-A01-n1",
        "s1-A01-n2",
    }
    assert len(limits_of(table, agent("s2-A01-n1", sites=(1,)))) == 3


def test_only_the_strictest_of_a_kind_is_told() -> None:
    strict, loose = make_restriction(value=450.0), make_restriction("site s1", value=500.0)
    slow = make_restriction(kind=CLOCK, value=1200.0)
    table = make_table(make_in_force(loose, strict, slow), FLEET)
    told = {(limit.kind, limit.value) for limit in limits_of(table, agent("s1-A01-n1"))}
    assert told == {("power_cap_w", 450.0), ("clock_cap_mhz", 1200.0)}


def test_what_outlasts_the_strictest_is_told_beside_it() -> None:
    strict, loose = (
        make_restriction(value=450.0, for_s=30.0),
        make_restriction(value=500.0, for_s=90.0),
    )
    between = make_restriction(value=480.0, for_s=20.0)
    table = make_table(make_in_force(loose, strict, between), FLEET)
    assert [limit.value for limit in limits_of(table, agent("s1-A01-n1"))] == [450.0, 500.0]
    assert table.ends_at == (NOW + timedelta(seconds=20)).timestamp()


def test_a_limit_on_one_gpu_names_it() -> None:
    table = make_table(make_in_force(make_restriction("gpu s1-A01-n2/7", value=300.0)), FLEET)
    (limit,) = limits_of(table, agent("s1-A01-n2"))
    assert (limit.node, limit.gpu, limit.value) == ("s1-A01-n2", 7, 300.0)


def test_what_agents_do_not_set_is_not_told_to_them() -> None:
    drained = make_restriction(kind=RestrictionKind.DRAIN, value=None)
    table = make_table(make_in_force(drained, make_restriction("gpu gone/0")), FLEET)
    assert table.by_node == {}
    assert table.encoded(agent("s1-A01-n1")) == b"[]"


def test_more_than_an_answer_holds_is_refused_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "MOST", 3)
    table = make_table(make_in_force(make_restriction("site s1")), FLEET)
    with pytest.raises(TooManyLimits) as caught:
        table.encoded(agent(sites=(1,)))
    assert "several agents" in caught.value.error.hint


def test_an_agent_whose_scope_has_changed_gets_another_answer() -> None:
    table = make_table(make_in_force(make_restriction()), FLEET)
    assert len(limits_of(table, agent("s1-A01-n1"))) == 1
    assert len(limits_of(table, agent("s1-A01-n1", "s1-A01-n2"))) == 2


_caps = st.lists(
    st.builds(
        lambda on, value, for_s: make_restriction(on, value=value, for_s=for_s),
        st.sampled_from(["site s1", "rack s1/A01", "node s1-A01-n1", "zone s1/zone-A", "site s2"]),
        st.sampled_from([300.0, 400.0, 500.0]),
        st.sampled_from([10.0, 20.0, 30.0, 40.0]),
    ),
    max_size=7,
)


@settings(max_examples=80, deadline=None)
@given(_caps, st.sampled_from([0.0, 9.0, 10.0, 25.0, 39.0, 40.0]))
def test_at_any_later_moment_what_was_told_is_what_is_in_force(
    restrictions: list[ActiveRestriction], after_s: float
) -> None:
    """An agent that heard the answer once keeps, until the last lease ends, to what counts."""
    in_force = make_in_force(*restrictions)
    told = limits_of(make_table(in_force, FLEET), agent("s1-A01-n1"))
    later = NOW + timedelta(seconds=after_s)
    kept = min((x.value for x in told if x.expires_at > later.timestamp()), default=math.inf)
    assert kept == in_force.later(later).power_cap_w_by_node(FLEET)[0]


def test_a_large_fleet_is_cut_in_milliseconds() -> None:
    fleet = make_arrays(sites=20, racks=156, nodes=4, gpus=8)
    racks = [make_restriction(f"rack {name}") for name in fleet.racks.paths.tolist()[:200]]
    sites = [make_restriction(f"site s{i + 1}", value=600.0, for_s=90.0) for i in range(20)]
    began = time.perf_counter()
    table = make_table(make_in_force(*racks, *sites), fleet)
    assert len(table.by_node) == len(fleet.nodes)
    assert time.perf_counter() - began < 30.0
