from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from headroom.client import Refused, Unavailable
from headroom.contracts import FieldError, Limit, LimitReport, LimitSet, LimitState
from lab.fleet import GPUS_PER_NODE, make_fleet
from lab.limits import SETTLES_S, LimitPolls, Limits
from lab.twin import Twin

FLEET = make_fleet(gpus=64)
NODES = {name: number for number, name in enumerate(FLEET.nodes)}
FIRST = FLEET.nodes[0]
T = 1_790_000_000.0


def make_limit(**given: object) -> Limit:
    fields: dict[str, object] = {
        "id": "restriction-1",
        "node": FIRST,
        "kind": "power_cap_w",
        "value": 400.0,
        "expires_at": T + 60.0,
    }
    return Limit(**{**fields, **given})  # type: ignore[arg-type]


def hear(agent: Limits, *limits: Limit, at: float = 0.0, valid_for_s: float = 120.0) -> None:
    answer = LimitSet(limits=list(limits), now=T + at, valid_for_s=valid_for_s)
    agent.hear(answer, sent_at=at, got_at=at)


def make_agent() -> Limits:
    return Limits(NODES, clock=lambda: T)


@pytest.fixture
def twin() -> Twin:
    """A twin in which everything works."""
    made = Twin(FLEET, seed=3)
    made.advance(60.0)
    return made


def hardest(twin: Twin) -> str:
    """The node that draws most."""
    return FLEET.nodes[int(twin.node_w.argmax())]


def gpus(node: str) -> slice:
    first = NODES[node] * GPUS_PER_NODE
    return slice(first, first + GPUS_PER_NODE)


def run(twin: Twin, agent: Limits, *, start: int, seconds: int) -> list[LimitReport]:
    """Step both for so long; return what the agent tells."""
    for at in range(start, start + seconds):
        agent.step(twin, float(at))
        twin.advance(1.0)
    return agent.take_reports()


def test_a_cap_lowers_the_power_at_once_and_its_end_brings_it_back(twin: Twin) -> None:
    node, agent = hardest(twin), make_agent()
    before = twin.power_w[gpus(node)].copy()
    assert before.mean() > 400.0
    hear(agent, make_limit(node=node))
    run(twin, agent, start=0, seconds=3)
    assert (twin.power_w[gpus(node)] <= 400.5).all()
    assert (twin.power_limit_w[gpus(node)] == 400.0).all()
    hear(agent, at=3.0)
    run(twin, agent, start=3, seconds=3)
    assert twin.power_w[gpus(node)].mean() == pytest.approx(before.mean(), rel=0.1)
    assert np.isinf(twin.cap_w).all()


def test_other_nodes_are_left_alone(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit(), make_limit(node="elsewhere", id="restriction-2"))
    run(twin, agent, start=0, seconds=2)
    assert np.isfinite(twin.cap_w).sum() == GPUS_PER_NODE


def test_a_lease_ends_by_itself(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit(expires_at=T + 5.0))
    run(twin, agent, start=0, seconds=5)
    assert np.isfinite(twin.cap_w).any()
    told = run(twin, agent, start=5, seconds=1)
    assert np.isinf(twin.cap_w).all()
    assert {report.state for report in told} == {LimitState.EXPIRED}


def test_a_server_that_falls_silent_holds_nobody_for_good(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit(expires_at=T + 1000.0), valid_for_s=10.0)
    run(twin, agent, start=0, seconds=10)
    assert np.isfinite(twin.cap_w).any()
    run(twin, agent, start=10, seconds=1)
    assert np.isinf(twin.cap_w).all()


def test_of_several_limits_the_lowest_counts(twin: Twin) -> None:
    agent = make_agent()
    hear(
        agent,
        make_limit(value=500.0),
        make_limit(id="restriction-2", value=350.0, expires_at=T + 3.0),
        make_limit(id="restriction-3", value=300.0, gpu=1),
    )
    run(twin, agent, start=0, seconds=1)
    assert twin.cap_w[gpus(FIRST)].tolist() == [350.0, 300.0, *[350.0] * 6]
    run(twin, agent, start=3, seconds=1)
    assert twin.cap_w[gpus(FIRST)].tolist() == [500.0, 300.0, *[500.0] * 6]


def test_no_cap_goes_below_what_drivers_take(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit(value=10.0), make_limit(id="2", kind="clock_cap_mhz", value=1.0))
    run(twin, agent, start=0, seconds=1)
    here = gpus(FIRST)
    assert (twin.cap_w[here] == 200.0).all()
    assert (twin.cap_mhz[here] == 0.1 * twin.parts.sm_max_mhz[here]).all()


def test_a_clock_cap_slows_the_clock(twin: Twin) -> None:
    node, agent = hardest(twin), make_agent()
    hear(agent, make_limit(node=node, kind="clock_cap_mhz", value=900.0))
    run(twin, agent, start=0, seconds=2)
    mhz = twin.clock[gpus(node)] * twin.parts.sm_max_mhz[gpus(node)]
    assert (mhz <= 900.5).all()


def test_each_gpu_is_told_of_once_and_again_when_its_power_has_settled(twin: Twin) -> None:
    node, agent = hardest(twin), make_agent()
    before = twin.power_w[gpus(node)].round(1)
    hear(agent, make_limit(node=node))
    told = run(twin, agent, start=0, seconds=3)
    assert [report.gpu for report in told] == list(range(GPUS_PER_NODE))
    assert {(r.state, r.limit, r.asked, r.applied, r.at) for r in told} == {
        (LimitState.APPLIED, "restriction-1", 400.0, 400.0, T)
    }
    assert [report.watts_before for report in told] == before.tolist()
    later = run(twin, agent, start=3, seconds=int(SETTLES_S))
    assert len(later) == GPUS_PER_NODE
    assert all((report.watts_after or 1e3) <= 400.5 for report in later)
    assert run(twin, agent, start=13, seconds=2) == []


def test_what_is_withdrawn_is_told_as_restored(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit())
    run(twin, agent, start=0, seconds=1)
    hear(agent, at=1.0)
    told = run(twin, agent, start=1, seconds=1)
    assert {(report.state, report.applied) for report in told} == {
        (LimitState.RESTORED, float(twin.own_limit_w[0]))
    }


def test_a_value_that_changes_is_told_again(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit())
    run(twin, agent, start=0, seconds=1)
    hear(agent, make_limit(value=450.0), at=1.0)
    told = run(twin, agent, start=1, seconds=1)
    assert {(report.asked, report.applied) for report in told} == {(450.0, 450.0)}


def test_a_server_without_limits_has_none(twin: Twin) -> None:
    agent = make_agent()
    hear(agent, make_limit())
    run(twin, agent, start=0, seconds=1)
    agent.hear(None, sent_at=1.0, got_at=1.0)
    run(twin, agent, start=1, seconds=1)
    assert np.isinf(twin.cap_w).all()


# --- Asking ---------------------------------------------------------------------------------------


class Server:
    """Answers with one limit, or raises."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    def limits(self) -> LimitSet | None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        now = time.time()
        limit = make_limit(expires_at=now + 60.0)
        return LimitSet(limits=[limit], now=now, valid_for_s=60.0)


@pytest.mark.parametrize(
    "error",
    [Unavailable("away"), Refused(413, FieldError(code="too_many_limits", message="too many"))],
)
def test_what_was_heard_before_stays_while_the_server_does_not_answer(
    twin: Twin, error: Exception
) -> None:
    server, agent = Server(), make_agent()
    polls = LimitPolls([(server, agent)], stop=threading.Event())
    polls.ask(0)
    server.error = error
    polls.ask(0)
    agent.step(twin, time.monotonic())
    assert np.isfinite(twin.cap_w).any()


def test_agents_ask_in_turn_and_silent_ones_do_not() -> None:
    stop = threading.Event()
    servers = [Server() for _ in range(3)]
    polls = LimitPolls(
        [(server, make_agent()) for server in servers],
        stop=stop,
        every_s=0.1,
        is_silent=lambda place: place == 1,
    )
    polls.start()
    time.sleep(0.55)
    stop.set()
    polls.join(5.0)
    assert servers[1].asked == 0
    assert 3 <= servers[0].asked <= 7
    assert abs(servers[0].asked - servers[2].asked) <= 1
