"""Headroom of the fleet at one moment, shared by all who look: the shell of the condition pages."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dashboard.once import Once
from fleet import snapshot
from fleet.cache import Cache
from policies import current as policies_now
from policies.headroom.conditions import SiteConditions, conditions
from policies.headroom.evaluate import Headroom

#: A moment serves for this long, s: to evaluate a large fleet takes tenths of a second.
_SERVES_S = 5.0


@dataclass(frozen=True, eq=False)
class Moment:
    """Headroom under the restrictions in force, with the values derived from it."""

    headroom: Headroom
    once: Once = field(default_factory=Once)

    @property
    def now(self) -> float:
        """The time of the evaluation, Unix s."""
        return self.headroom.at

    @property
    def version(self) -> str:
        """The version: changes with the inventory and every few seconds, alike in all processes."""
        return f"{self.headroom.fleet.generation}-{int(self.now // _SERVES_S)}"

    def conditions(self, site: str) -> SiteConditions:
        """Return the conditions of ``site``. Raises KeyError for one that is not there."""
        return self.once(("conditions", site), lambda: conditions(self.headroom, site))


_moments: Cache[Moment] = Cache()


def current() -> Moment:
    """Return the newest moment of this process."""
    turn = int(time.time() // _SERVES_S)
    return _moments.get(
        lambda: Moment(policies_now.headroom(time.time())), of=(turn, snapshot.current())
    )


def invalidate() -> None:
    """Have the next call evaluate anew. For tests."""
    _moments.invalidate()
    policies_now.invalidate()
