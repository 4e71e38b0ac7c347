"""Where a job may go on when its site fails it: states, and the policy that moves between them.

``primary-site → regional-fallback → local-only → held-for-review``, and back. The policy is data: a
list of ways, each with a guard over facts (:data:`FACTS`). :func:`next_state` says whether a job
takes one of them now; :func:`restricted` what its state leaves of what it asks for. Pure.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from admission.core.request import Locality, Request
from headroom import documents
from headroom.documents import DocumentError

__all__ = [
    "FACTS",
    "UNWATCHED_S",
    "Fallback",
    "FallbackStatus",
    "Guard",
    "Policy",
    "Transition",
    "Way",
    "built_in",
    "faults",
    "first_way",
    "next_state",
    "read_policy",
    "restricted",
]


class Fallback(enum.StrEnum):
    """The fallback states. The values are those of jobs and playbooks."""

    #: where it wants to be
    PRIMARY_SITE = "primary-site"
    #: at another site
    REGIONAL = "regional-fallback"
    #: at its own site, and nothing of it crosses to another
    LOCAL_ONLY = "local-only"
    #: nowhere, until a person has looked
    HELD = "held-for-review"


#: Looks further apart than this leave a way that was open to begin anew, s: a server that was away
#: itself does not know for how long a site was silent.
UNWATCHED_S = 60.0
#: What guards may ask, and what each number means. True is 1, false is 0. What is not known takes
#: no way: a guard over it does not hold.
FACTS: dict[str, str] = {
    "site_silent_share": "share of the nodes of its home site from which nothing is heard",
    "site_power_margin": "share of the home site's power budget that is left; below 0: exceeded",
    "site_draining": "a restriction moves jobs away from its whole home site",
    "may_move": "its class lets it move, and its inputs are pinned and not known to differ at each "
    "other site that it takes",
    "checkpoint_elsewhere": "a checkpoint of it is whole at another site; where nobody has looked: "
    "its owner says that they leave the site, or it writes none",
    "home_has_latest": "no other site is known to have a later checkpoint than its home site",
    "other_site_open": "some other site that it takes is heard and lets jobs start, and its inputs "
    "are not known to differ there",
    "wan_up": "some link of its home site to another is heard and carries",
    "local_only": "a restriction keeps its home site to itself",
    "review": "a restriction wants what starts at its home site looked at",
    "failures_in_hour": "attempts that were lost or failed within the last hour",
}


class Guard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One condition: a fact compared with a number."""

    fact: str
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, facts: Mapping[str, float]) -> bool:
        """Say whether it holds. It does not over an unknown fact."""
        value = facts.get(self.fact, math.nan)
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        parts = [self.fact]
        if self.at_least is not None:
            parts.append(f">= {self.at_least:g}")
        if self.at_most is not None:
            parts.append(f"<= {self.at_most:g}")
        return " ".join(parts)


class Way(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A transition from one state to another, open while all of its guards hold for ``for_s``."""

    from_: Fallback
    to: Fallback
    when: tuple[Guard, ...]
    for_s: float
    why: str

    @property
    def name(self) -> str:
        return f"{self.from_}>{self.to}: {' and '.join(str(guard) for guard in self.when)}"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ways, the more urgent first. ``dwell_s``: the shortest stay in a state."""

    ways: tuple[Way, ...]
    dwell_s: float = 300.0


def read_policy(text: str) -> Policy:
    """Return the policy of a YAML document. Raises DocumentError with all faults found."""
    document = documents.read(text)
    policy = document.converted(Policy, "docs/reference/directives.md")
    problems = [document.fault(path, message) for path, message in faults(policy)]
    if problems:
        raise DocumentError(problems)
    return policy


@cache
def built_in() -> Policy:
    """Return the policy that comes with Headroom."""
    path = Path(__file__).with_name("fallback.yaml")
    return read_policy(path.read_text(encoding="utf-8"))


def faults(policy: Policy) -> Iterator[tuple[str, str]]:
    """Yield faults that the decoder cannot see: the path of a field, and the way out."""
    if not policy.dwell_s >= 0:
        yield "dwell_s", "give seconds, 0 or more"
    for number, way in enumerate(policy.ways):
        yield from _faults(way, f"ways[{number}]")


def _faults(way: Way, path: str) -> Iterator[tuple[str, str]]:
    if way.from_ == way.to:
        yield path, f"from and to are the same, {way.to}"
    if not way.when:
        yield f"{path}.when", "give at least one guard"
    if not way.for_s >= 0:
        yield f"{path}.for_s", "give seconds, 0 or more"
    for number, guard in enumerate(way.when):
        where = f"{path}.when[{number}]"
        if guard.fact not in FACTS:
            yield f"{where}.fact", f"{guard.fact!r} is none of {', '.join(FACTS)}"
        if guard.at_least is None and guard.at_most is None:
            yield where, "give at_least or at_most"


@dataclass(frozen=True)
class FallbackStatus:
    """The state of a job, since when, and since when each way out has been open. Unix seconds.

    ``seen_at``: when that was looked at last.
    """

    state: Fallback = Fallback.PRIMARY_SITE
    since: float = 0.0
    open_since: Mapping[str, float] = field(default_factory=dict)
    seen_at: float = -math.inf


@dataclass(frozen=True)
class Transition:
    """A transition that a job makes, with the facts that its guards asked for."""

    was: Fallback
    state: Fallback
    why: str
    evidence: Mapping[str, Any]


def next_state(
    status: FallbackStatus, facts: Mapping[str, float], policy: Policy, *, now: float
) -> tuple[FallbackStatus, Transition | None]:
    """Return the status of a job by ``facts``, and the transition that it makes, if any.

    Of several the first of the policy is taken. A way that leads to more restriction is free at
    once; one that leads back waits until the job has been where it is for ``dwell_s``. Time in
    which nobody looked, more than :data:`UNWATCHED_S` of it, leaves no way open.
    """
    known = status.open_since if now - status.seen_at <= UNWATCHED_S else {}
    ways = [
        way
        for way in policy.ways
        if way.from_ is status.state and all(guard.holds(facts) for guard in way.when)
    ]
    open_since = {way.name: known.get(way.name, now) for way in ways}
    for way in ways:
        is_back = _ORDER.index(way.to) < _ORDER.index(way.from_)
        has_stayed = now - status.since >= policy.dwell_s
        if now - open_since[way.name] >= way.for_s and (has_stayed or not is_back):
            return FallbackStatus(way.to, now), _taken(way, facts, now - open_since[way.name])
    return replace(status, open_since=open_since, seen_at=now), None


def first_way(
    status: FallbackStatus, facts: Mapping[str, float], policy: Policy, *, now: float
) -> tuple[float, Transition] | None:
    """Return when a job would leave its state if ``facts`` stayed as they are, and how.

    Unix s; None: it would stay. :func:`next_state` decides at each moment at which a way may have
    been open for long enough.
    """
    watched, taken = next_state(status, facts, policy, now=now)
    if taken is not None:
        return now, taken
    waits_s = {way.name: way.for_s for way in policy.ways}
    open_at = {since + waits_s[name] for name, since in watched.open_since.items()}
    for at in sorted({*open_at, *([status.since + policy.dwell_s] if open_at else [])}):
        # So much later that rounding of Unix times does not matter.
        moment = max(at, now) + 1e-3
        _, taken = next_state(replace(watched, seen_at=moment), facts, policy, now=moment)
        if taken is not None:
            return moment, taken
    return None


_ORDER: Sequence[Fallback] = tuple(Fallback)


def _taken(way: Way, facts: Mapping[str, float], for_s: float) -> Transition:
    evidence: dict[str, Any] = {guard.fact: facts[guard.fact] for guard in way.when}
    evidence["for_s"] = for_s
    return Transition(way.from_, way.to, way.why, evidence)


def restricted(
    request: Request,
    state: Fallback,
    *,
    home: str,
    all_sites: Sequence[str],
    unfit: Collection[str] = (),
) -> Request:
    """Return ``request`` as its state leaves it. ``home``: its primary site; "": it has none.

    Away from home it takes all other sites, even if it asked for its own alone: else there is no
    way on. Of those the ``unfit`` are left out, where its inputs differ, unless all are. On its own
    it stands at one site and nothing crosses. That it is held is no matter of where, and shows in
    what holds it.
    """
    if not home or state in (Fallback.PRIMARY_SITE, Fallback.HELD):
        return request
    if state is Fallback.LOCAL_ONLY:
        return replace(
            request,
            sites=(home,),
            required=min(request.required, Locality.SITE),
            preferred=min(request.preferred, Locality.SITE),
            cross_site_bits_per_s=0.0,
            cross_site_checkpoint=False,
        )
    asked = tuple(site for site in request.sites if site != home)
    others = asked or tuple(site for site in all_sites if site != home)
    # None at all would be any.
    return replace(request, sites=tuple(site for site in others if site not in unfit) or others)
