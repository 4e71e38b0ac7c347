"""What restrictions leave running jobs of the way for their checkpoints to other sites. Pure.

Nothing where checkpoints are not to leave the site; where a link is to be left to others, an even
part of what checkpoints get of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from admission.core.request import Placement, Request
from fleet.tables import LINK_KINDS, FleetArrays
from headroom.traffic import TrafficClass
from headroom.work.contract import ShipLimit
from policies.restrictions.kinds import RestrictionKind
from policies.restrictions.strictest import ActiveRestriction, InForce
from policies.scopes import ScopeKind
from policies.traffic import TrafficPolicy

__all__ = ["ship_limits"]

_KINDS = (RestrictionKind.NO_CROSS_SITE_CHECKPOINT, RestrictionKind.LINK_SHARE)
_WAN = LINK_KINDS.index("wan")


class Running(Protocol):
    """What is asked of an open attempt."""

    @property
    def key(self) -> str: ...
    @property
    def request(self) -> Request: ...
    @property
    def placement(self) -> Placement: ...


def ship_limits(
    attempts: Iterable[Running], in_force: InForce, fleet: FleetArrays, policy: TrafficPolicy
) -> dict[str, list[ShipLimit]]:
    """Return the limits on sending checkpoints to other sites by the key of the attempt."""
    restrictions = [each for kind in _KINDS for each in in_force.of(kind)]
    if not restrictions:
        return {}
    writing = [each for each in attempts if each.request.checkpoint_interval_s is not None]
    found: dict[str, list[ShipLimit]] = {}
    for each in restrictions:
        concerned = [one for one in writing if _concerns(each, one, fleet)]
        rate = _bytes_per_s(each, len(concerned), fleet, policy)
        for one in concerned if rate is not None else ():
            found.setdefault(one.key, []).append(
                ShipLimit(
                    attempt=one.key,
                    id=f"{each.limit_id}-ships",
                    bytes_per_s=rate or 0.0,
                    expires_at=each.expires_at.timestamp(),
                )
            )
    return found


def _concerns(restriction: ActiveRestriction, attempt: Running, fleet: FleetArrays) -> bool:
    kind, name, request = restriction.scope.kind, restriction.scope.name, attempt.request
    if kind is ScopeKind.JOB:
        return name in (request.job, request.key)
    if kind is ScopeKind.CLASS:
        return name == request.job_class
    sites = {name} if kind is ScopeKind.SITE else set(_ends(name, fleet))
    return bool(sites.intersection(attempt.placement.sites))


def _ends(link: str, fleet: FleetArrays) -> Iterator[str]:
    """Yield the sites at the ends of a WAN link; none for others, which no checkpoint leaves by."""
    row = fleet.links.index_by_name.get(link)
    if row is None or fleet.links.kind[row] != _WAN:
        return
    for site in (fleet.links.site[row], fleet.links.peer_site[row]):
        if site >= 0:
            yield str(fleet.sites.names[site])


def _bytes_per_s(
    restriction: ActiveRestriction, among: int, fleet: FleetArrays, policy: TrafficPolicy
) -> float | None:
    """Return what each of ``among`` attempts may send; None: nothing is known of the link."""
    if restriction.kind is RestrictionKind.NO_CROSS_SITE_CHECKPOINT:
        return 0.0
    row = fleet.links.index_by_name.get(restriction.scope.name)
    if row is None or not among:
        return None
    links = fleet.links
    shares = policy.shares_of(
        restriction.scope.name, LINK_KINDS[links.kind[row]], float(links.control_share[row])
    )
    share = min(restriction.number, shares[TrafficClass.CHECKPOINT].most)
    return float(np.nan_to_num(links.capacity_bits_per_s[row])) * share / 8.0 / among


def of_attempts(found: Mapping[str, Sequence[ShipLimit]], keys: Iterable[str]) -> list[ShipLimit]:
    """Return the limits of some attempts, each once."""
    return [limit for key in dict.fromkeys(keys) for limit in found.get(key, ())]
