"""How flows share links: max-min fair, as senders come to share them that all back off alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indexes = NDArray[np.intp]

#: Two levels this close are the same one, computed in another order.
_SAME = 1.0 + 1e-9


@dataclass(frozen=True)
class Routes:
    """Which flow loads which link, an entry for each: in order of the flows.

    Of each unit of its rate, ``flow`` puts ``weight`` units on ``link``: a gang that moves at one
    pace, and sends over a link with 24 of its GPUs, has a weight of 24 there.
    """

    flow: Indexes
    link: Indexes
    weight: Array


def max_min_rates(routes: Routes, *, capacity: Array, demand: Array) -> Array:
    """Return the rate of each flow: to give one more, one that has no more would have to get less.

    ``capacity`` is by link and ``demand`` by flow, in the unit of the rates. A flow over no link
    gets what it asks for; one over a link that carries nothing gets nothing.

    Source: progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2), in which each round
    settles all flows whose rate cannot change any more, so that rounds are few.
    """
    rates = np.zeros(len(demand))
    open_flows = demand > 0.0
    left = np.maximum(capacity, 0.0)
    flow, link, weight = routes.flow, routes.link, routes.weight
    while open_flows.any():
        still = open_flows[flow]
        flow, link, weight = flow[still], link[still], weight[still]
        level = _levels(link, weight, left)
        reach = np.full(len(demand), np.inf)
        np.minimum.at(reach, flow, level[link])
        settled = open_flows & (demand <= reach * _SAME)
        if settled.any():
            rates[settled] = demand[settled]
        else:
            settled = _held_back(flow, link, level, reach)
            rates[settled] = reach[settled]
        open_flows &= ~settled
        used = weight * np.where(settled, rates, 0.0)[flow]
        left = np.maximum(left - np.bincount(link, weights=used, minlength=len(left)), 0.0)
    return rates


def _levels(link: Indexes, weight: Array, left: Array) -> Array:
    """Return the rate of every flow on a link if all of them had the same, by link."""
    load = np.bincount(link, weights=weight, minlength=len(left))
    level = np.full(len(left), np.inf)
    np.divide(left, load, out=level, where=load > 0.0)
    return level


def _held_back(flow: Indexes, link: Indexes, level: Array, reach: Array) -> Bools:
    """Say of each flow whether it crosses a link that holds back all of its flows the most."""
    least = np.full(len(level), np.inf)
    np.minimum.at(least, link, reach[flow])
    binds = level <= least * _SAME
    held = np.zeros(len(reach), dtype=np.bool_)
    held[flow[binds[link]]] = True
    return held
