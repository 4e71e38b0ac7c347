"""How links are shared by classes of traffic: what each is sure of, and what it gets at most.

The shares are those of the admission policy, by way of :func:`provide`: what admits jobs to links
and what holds their traffic on hosts go by the same figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headroom.contracts import ClassShare, LinkLimit
from headroom.traffic import OF_JOBS, TrafficClass

__all__ = [
    "BUILT_IN",
    "LEASE_S",
    "Share",
    "TrafficPolicy",
    "current",
    "limits_on",
    "most_of_jobs",
    "provide",
]

#: A lease of the policy's own shares lasts so long, and is told anew after half of it, s.
LEASE_S = 600.0


@dataclass(frozen=True)
class Share:
    """Shares of a link's capacity, 0 to 1."""

    guaranteed: float
    most: float


Shares = Mapping[TrafficClass, Share]

#: A step waits for its collectives and a loop for its data; what may wait, gets what is left.
BUILT_IN: Shares = {
    TrafficClass.CONTROL: Share(0.05, 0.20),
    TrafficClass.COLLECTIVE: Share(0.35, 1.0),
    TrafficClass.CHECKPOINT: Share(0.15, 0.90),
    TrafficClass.DATA: Share(0.20, 0.90),
    TrafficClass.ARTIFACT: Share(0.05, 0.80),
    TrafficClass.LOG: Share(0.02, 0.20),
    TrafficClass.OPERATOR: Share(0.03, 0.20),
}


@dataclass(frozen=True)
class TrafficPolicy:
    """Shares of all links, of links of one kind, and of links by name: the narrower one counts."""

    classes: Shares = field(default_factory=lambda: dict(BUILT_IN))
    kinds: Mapping[str, Shares] = field(default_factory=dict)
    links: Mapping[str, Shares] = field(default_factory=dict)

    def shares_of(self, link: str, kind: str, control_share: float = 0.0) -> Shares:
        """Return the shares of a link; control is sure of ``control_share`` at least."""
        found = {**self.classes, **self.kinds.get(kind, {}), **self.links.get(link, {})}
        control = found[TrafficClass.CONTROL]
        sure = max(control.guaranteed, control_share)
        found[TrafficClass.CONTROL] = Share(sure, max(control.most, sure))
        return found

    def overbooked(self) -> Iterator[tuple[str, float]]:
        """Yield where guaranteed shares come to more than the link: "kinds.wan", and how much."""
        for path, shares in (
            ("classes", {}),
            *((f"kinds.{name}", each) for name, each in self.kinds.items()),
            *((f"links.{name}", each) for name, each in self.links.items()),
        ):
            sure = sum(each.guaranteed for each in {**self.classes, **shares}.values())
            if sure > 1.0 + 1e-9:
                yield path, sure


def most_of_jobs(shares: Shares) -> float:
    """Return which share of a link jobs have at most: what others are sure of is not theirs."""
    others = sum(shares[each].guaranteed for each in TrafficClass if each not in OF_JOBS)
    return max(0.0, 1.0 - others)


def limits_on(
    link: str,
    shares: Shares,
    capacity_bits_per_s: float,
    restricted: Mapping[str, tuple[float, float]],
    *,
    key: str,
    ends_at: float,
) -> list[LinkLimit]:
    """Return the leases on a link: the policy's under ``key``, and one for each restriction.

    ``restricted`` has by the restriction's id the share that jobs may take, and when it ends.
    """
    classes = [
        ClassShare(name=name, guaranteed=each.guaranteed, most=each.most)
        for name, each in shares.items()
    ]
    leases = {key: (1.0, ends_at), **restricted}
    return [
        LinkLimit(
            id=name,
            link=link,
            capacity_bits_per_s=capacity_bits_per_s,
            share=share,
            classes=classes,
            expires_at=until,
        )
        for name, (share, until) in leases.items()
    ]


# --- Whose shares count ---------------------------------------------------------------------------


_source: list[Callable[[], TrafficPolicy]] = []


def provide(source: Callable[[], TrafficPolicy] | None) -> None:
    """Have :func:`current` ask ``source``; None: what is built in counts."""
    _source[:] = [] if source is None else [source]


def current() -> TrafficPolicy:
    """Return the shares in force."""
    return _source[0]() if _source else TrafficPolicy()
