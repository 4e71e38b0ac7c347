"""The power tree: the load of each power domain, its capacity, and the effects of its loss.

Racks have a cord in a PDU of each side. While both live, they share the load; when one is lost, its
load moves to the other; a rack without either is dark. PDUs hang on feeds, feeds on the utility,
with what cables and the uninterruptible supplies lose on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.fleet import Fleet, inventory
from lab.twin.parts import total

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indexes = NDArray[np.intp]

#: Feed A takes slightly more than half of each rack, as real supplies do.
A_SHARE = 0.507
#: What is lost between a domain and the one above it, by the kind of the lower one: of its load,
#: and, as long as it is alive, of its capacity. A feed's are those of its uninterruptible supply.
LOSSES = {"feed": (0.015, 0.004), "pdu": (0.006, 0.0)}


@dataclass(frozen=True)
class Domains:
    """The power domains of a fleet, in the order of its inventory; ``-1``: there is none."""

    names: tuple[str, ...]
    kind: tuple[str, ...]
    site: Indexes
    parent: Indexes
    #: The other half of a pair.
    partner: Indexes
    capacity_w: Array
    #: What may be drawn without end: the derated capacity.
    budget_w: Array
    #: The domains that each rack's cords are in: one of them -1 where a rack has one cord.
    rack_a: Indexes
    rack_b: Indexes

    def of_kind(self, kind: str) -> Indexes:
        """The domains of one kind."""
        return np.array([i for i, each in enumerate(self.kind) if each == kind], dtype=np.intp)


def domains_of(fleet: Fleet) -> Domains:
    """Return the power domains of ``fleet``, as its inventory has them."""
    sites = inventory(fleet, networked=False)["sites"]
    rows = [(at, row) for at, site in enumerate(sites) for row in site["power_domains"]]
    index = {(at, row["name"]): i for i, (at, row) in enumerate(rows)}
    sides: dict[tuple[int, str], list[int]] = {}
    for i, (at, row) in enumerate(rows):
        if "pair" in row:
            sides.setdefault((at, row["pair"]), []).append(i)
    partner = np.full(len(rows), -1, dtype=np.intp)
    for one, other in (pair for pair in sides.values() if len(pair) == 2):
        partner[one], partner[other] = other, one
    racks = [(at, rack) for at, site in enumerate(sites) for rack in site["racks"]]
    capacity_w = np.array([row["capacity_w"] for _, row in rows], dtype=np.float64)
    derating = np.array([row.get("derating", 1.0) for _, row in rows])
    return Domains(
        names=tuple(row["name"] for _, row in rows),
        kind=tuple(row["kind"] for _, row in rows),
        site=np.array([at for at, _ in rows], dtype=np.intp),
        parent=_indexes([index.get((at, row.get("parent", ""))) for at, row in rows]),
        partner=partner,
        capacity_w=capacity_w,
        budget_w=capacity_w * derating,
        rack_a=_indexes([index.get((at, rack.get("feed_a", ""))) for at, rack in racks]),
        rack_b=_indexes([index.get((at, rack.get("feed_b", ""))) for at, rack in racks]),
    )


def _indexes(found: list[int | None]) -> Indexes:
    return np.array([-1 if i is None else i for i in found], dtype=np.intp)


class PowerTree:
    """How the racks' power flows up the tree, with the domains that are lost now."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self._levels = _levels(domains.parent)
        losses = np.array([LOSSES.get(kind, (0.0, 0.0)) for kind in domains.kind])
        self._loss_share = losses[:, 0]
        self._idle_loss_w = losses[:, 1] * domains.capacity_w
        self._under: Bools = _under(domains)
        self.alive: Bools = np.ones(len(domains.names), dtype=np.bool_)
        self._route()

    def lose(self, lost: Bools) -> None:
        """Let the domains in ``lost``, and all below them, be dead; all others live."""
        self.alive = ~lost
        for level in reversed(self._levels[:-1]):
            self.alive[level] &= self.alive[self.domains.parent[level]]
        self._route()

    @property
    def dark(self) -> Bools:
        """By rack: whether it has no power."""
        lit: Bools = np.zeros(len(self.domains.rack_a), dtype=np.bool_)
        lit[self._from_rack] = True
        return ~lit

    def flow(self, rack_w: Array) -> Array:
        """Return the load of each domain when its racks draw ``rack_w``."""
        parts_w = rack_w[self._from_rack]
        parts_w *= self._share
        carried = total(self._to_domain, parts_w, len(self.alive))
        carried += self._idle_w
        return carried

    def racks_under(self, domains: Bools) -> Bools:
        """Say of each rack whether it draws power through any of ``domains``."""
        under: Bools = np.logical_or.reduce(self._under[domains], axis=0)
        return under

    def least_above(self, by_domain: Array) -> Array:
        """Return for each rack the lowest value of the domains that feed it, at most 1."""
        lower = np.flatnonzero(by_domain < 1.0)
        values = np.where(self._under[lower], by_domain[lower, np.newaxis], 1.0)
        least: Array = values.min(axis=0, initial=1.0)
        return least

    def _route(self) -> None:
        """Find the ways from racks up the tree: each part of a rack's power that a domain carries.

        Losses of load are shares, so that a domain carries a sum of shares of racks, and on top of
        that what the supplies below it lose at no load.
        """
        parent = self.domains.parent
        shares = self._shares()
        to_domain, from_rack, carried = [], [], []
        for cord, share in zip((self.domains.rack_a, self.domains.rack_b), shares, strict=True):
            racks = np.flatnonzero(share > 0.0)
            at, part = cord[racks], share[racks]
            while racks.size:
                to_domain.append(at)
                from_rack.append(racks)
                carried.append(part)
                part, at = part * (1.0 + self._loss_share[at]), parent[at]
                racks, at, part = racks[at >= 0], at[at >= 0], part[at >= 0]
        nowhere = np.zeros(0, dtype=np.intp)
        self._to_domain: Indexes = np.concatenate([nowhere, *to_domain])
        self._from_rack: Indexes = np.concatenate([nowhere, *from_rack])
        self._share: Array = np.concatenate([np.zeros(0), *carried])
        self._idle_w = self._idle_losses()

    def _idle_losses(self) -> Array:
        own_w = self._idle_loss_w * self.alive
        below_w = np.zeros(len(own_w))
        for level in self._levels[:-1]:
            up_w = below_w[level] * (1.0 + self._loss_share[level]) + own_w[level]
            below_w += total(self.domains.parent[level], up_w, len(own_w))
        return below_w

    def _shares(self) -> tuple[Array, Array]:
        """Return the share of each rack's draw on either cord."""
        a, b = self.domains.rack_a, self.domains.rack_b
        lives_a = np.where(a >= 0, self.alive[a], False)
        lives_b = np.where(b >= 0, self.alive[b], False)
        share_a: Array = np.where(lives_a, np.where(lives_b, A_SHARE, 1.0), 0.0)
        return share_a, np.where(lives_b, 1.0 - share_a, 0.0)


def _levels(parent: Indexes) -> list[Indexes]:
    """Return the domains by depth, the deepest first."""
    depth = np.zeros(len(parent), dtype=np.intp)
    above = parent.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return [np.flatnonzero(depth == d) for d in range(int(depth.max()), -1, -1)]


def _under(domains: Domains) -> Bools:
    """Say of each domain and rack whether the one feeds the other."""
    under = np.zeros((len(domains.names), len(domains.rack_a)), dtype=np.bool_)
    for cord in (domains.rack_a, domains.rack_b):
        at = cord.copy()
        while (at >= 0).any():
            racks = np.flatnonzero(at >= 0)
            under[at[racks], racks] = True
            at[racks] = domains.parent[at[racks]]
    return under
