import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.twin.fair import Routes, max_min_rates


def routes(*entries: tuple[int, int, float]) -> Routes:
    """Return routes from entries of flow, link and weight."""
    flow, link, weight = zip(*sorted(entries), strict=True) if entries else ((), (), ())
    return Routes(
        np.array(flow, dtype=np.intp), np.array(link, dtype=np.intp), np.array(weight, dtype=float)
    )


def shared(
    capacity: list[float], demand: list[float], *entries: tuple[int, int, float]
) -> list[float]:
    rates = max_min_rates(routes(*entries), capacity=np.array(capacity), demand=np.array(demand))
    return [float(rate) for rate in rates]


@pytest.mark.parametrize(
    ("capacity", "demand", "entries", "rates"),
    [
        pytest.param([10.0], [4.0], [(0, 0, 1.0)], [4.0], id="room for all"),
        pytest.param([10.0], [9.0, 9.0], [(0, 0, 1.0), (1, 0, 1.0)], [5.0, 5.0], id="half each"),
        pytest.param(
            [10.0], [2.0, 9.0], [(0, 0, 1.0), (1, 0, 1.0)], [2.0, 8.0], id="what one leaves"
        ),
        pytest.param(
            [10.0], [9.0, 9.0], [(0, 0, 3.0), (1, 0, 1.0)], [2.5, 2.5], id="a gang weighs more"
        ),
        pytest.param(
            # The long one shares with a short one on each link: the textbook's parking lot.
            [10.0, 6.0],
            [99.0, 99.0, 99.0],
            [(0, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0), (2, 1, 1.0)],
            [3.0, 7.0, 3.0],
            id="a long way",
        ),
        pytest.param([0.0], [9.0], [(0, 0, 1.0)], [0.0], id="a link that is cut"),
        pytest.param([1.0], [7.0, 0.0], [], [7.0, 0.0], id="no link at all"),
    ],
)
def test_links_are_shared_max_min_fair(
    capacity: list[float],
    demand: list[float],
    entries: list[tuple[int, int, float]],
    rates: list[float],
) -> None:
    assert shared(capacity, demand, *entries) == pytest.approx(rates)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Routes, np.ndarray, np.ndarray]:
    flows, links = draw(st.integers(1, 12)), draw(st.integers(1, 6))
    numbers = st.floats(0.0, 100.0).map(lambda x: round(x, 2))
    entries = [
        (flow, link, draw(st.sampled_from([1.0, 0.5, 3.0, 24.0])))
        for flow in range(flows)
        for link in sorted(draw(st.sets(st.integers(0, links - 1), max_size=links)))
    ]
    capacity = draw(st.lists(numbers, min_size=links, max_size=links))
    demand = draw(st.lists(numbers, min_size=flows, max_size=flows))
    return routes(*entries), np.array(capacity), np.array(demand)


@settings(max_examples=150, deadline=None)
@given(problem=problems())
def test_each_flow_has_what_it_asks_for_or_a_full_link_on_which_nobody_has_more(
    problem: tuple[Routes, np.ndarray, np.ndarray],
) -> None:
    """That is what max-min fair means: no other rates have this property."""
    way, capacity, demand = problem
    rates = max_min_rates(way, capacity=capacity, demand=demand)
    assert (rates >= 0.0).all()
    assert (rates <= demand * (1 + 1e-9)).all()
    used = np.bincount(way.link, weights=way.weight * rates[way.flow], minlength=len(capacity))
    assert (used <= capacity * (1 + 1e-6) + 1e-9).all()
    full = used >= capacity * (1 - 1e-6) - 1e-9
    for flow in np.flatnonzero(rates < demand * (1 - 1e-6)):
        held_by = way.link[(way.flow == flow) & full[way.link]]
        most = [rates[way.flow[way.link == link]].max() for link in held_by]
        assert most
        assert min(most) <= rates[flow] * (1 + 1e-6) + 1e-9
