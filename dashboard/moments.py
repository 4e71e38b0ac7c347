"""Headroom of the fleet at one moment, shared by all who look: the shell of the condition pages."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from dashboard.once import Once
from fleet import snapshot
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


class _Moments:
    """The newest moment of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moment: Moment | None = None

    def current(self) -> Moment:
        found = self._still_good()
        if found is not None:
            return found
        with self._lock:
            return self._still_good() or self._fresh()

    def _still_good(self) -> Moment | None:
        moment, now = self._moment, time.time()
        if moment is None or moment.headroom.fleet is not snapshot.current():
            return None
        return moment if moment.now // _SERVES_S == now // _SERVES_S else None

    def _fresh(self) -> Moment:
        self._moment = Moment(policies_now.headroom(time.time()))
        return self._moment

    def forget(self) -> None:
        """Make the next call evaluate anew. For tests."""
        self._moment = None
        policies_now.forget()


_moments = _Moments()
current = _moments.current
forget = _moments.forget
