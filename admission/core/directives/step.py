"""One step of directing running jobs: its parts, in their order, and its constants. Pure.

Each part is a transaction of its own, or several, and looks at what is so *now*: loads,
restrictions, leases, what executors and readings say. What it finds missing it makes good. So a
step may die anywhere, and what fails in one part holds up no other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from admission.core.directives import restricting
from admission.core.directives.book import DirectiveBook
from admission.core.directives.fallback import Jobs, fall_back
from admission.core.directives.placed import Placed
from admission.core.directives.responding import SHED_AFTER_S, respond_now, shed
from admission.core.response import fallback
from admission.core.response.respond import Responded, Tuning
from admission.core.response.sites import Sites
from policies.headroom.columns import Bools
from policies.headroom.evaluate import Headroom
from policies.restrictions.book import RestrictionBook
from policies.restrictions.strictest import InForce

__all__ = ["Manner", "Step"]


@dataclass(frozen=True, kw_only=True)
class Manner:
    """Settings of a step: a policy of the twin may set them otherwise than the server has them."""

    response: Tuning = field(default_factory=Tuning)
    fallback: fallback.Policy = field(default_factory=fallback.built_in)
    shed_after_s: float = SHED_AFTER_S


class Step(ABC):
    """One step over the stores of a server, or of a world."""

    def __init__(
        self,
        now: datetime,
        *,
        directives: DirectiveBook[Any],
        restrictions: RestrictionBook[Any],
        jobs: Jobs[Any],
        manner: Manner,
    ) -> None:
        self.at, self.manner = now, manner
        self.directives, self.restrictions, self.jobs = directives, restrictions, jobs
        self.responded: Responded | None = None

    def parts(self) -> Sequence[tuple[str, Callable[[], object]]]:
        """Return the parts by name, in the order in which they are to be done."""
        return (
            ("expire", lambda: self.directives.expire(self.at)),
            ("playbook_requests", self.take_up),
            ("fallback", self.fall_back),
            ("restrictions", self.restrict),
            ("response", self.respond),
            ("shedding", self.shed),
            ("delivery", self.deliver),
            ("caps", self.hold_caps),
            ("reports", self.report),
        )

    def fall_back(self) -> None:
        sites = Sites(self.headroom, self.in_force)
        fall_back(self.jobs, sites, self.manner.fallback, now=self.at.timestamp())

    def restrict(self) -> None:
        restricting.drain(self.placed, self.in_force, now=self.at)
        restricting.shrink(self.placed, self.directives, self.in_force, now=self.at)

    def respond(self) -> None:
        self.responded = respond_now(
            self.placed, self.directives, self.headroom,
            kept=self.kept, tuning=self.manner.response, now=self.at,
        )  # fmt: skip

    def shed(self) -> None:
        with self.directives.store.writing():
            shed(
                self.placed,
                self.headroom,
                self.responded,
                after_s=self.manner.shed_after_s,
                now=self.at,
            )

    def hold_caps(self) -> None:
        restricting.hold_caps(self.placed, self.directives, self.restrictions, now=self.at)

    @property
    @abstractmethod
    def placed(self) -> Placed:
        """The open attempts on the fleet."""

    @property
    @abstractmethod
    def headroom(self) -> Headroom:
        """The headroom that is left of each budget."""

    @property
    @abstractmethod
    def kept(self) -> Bools | None:
        """Say of each budget of a reach whether the controller keeps it by caps; None: none."""

    @property
    @abstractmethod
    def in_force(self) -> InForce:
        """The restrictions in force."""

    @abstractmethod
    def take_up(self) -> None:
        """Turn the requests of playbooks into directives to the jobs that they concern."""

    @abstractmethod
    def deliver(self) -> None:
        """Send changed directives to jobs, and follow their progress."""

    @abstractmethod
    def report(self) -> None:
        """Report the progress of their requests to playbooks."""
