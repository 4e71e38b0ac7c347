"""Fallback of jobs: from conditions at their sites to where they go on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from admission.core.request import Request
from admission.core.response import inputs
from admission.core.response.checkpoints import Known, basis
from admission.core.response.fallback import (
    Fallback,
    FallbackStatus,
    Policy,
    Transition,
    next_state,
)
from admission.core.response.inputs import KnownInputs
from admission.core.response.sites import Sites, facts_of

__all__ = [
    "FAILURES_WITHIN_S",
    "FALLBACK",
    "Falling",
    "Jobs",
    "facts_about",
    "fall_back",
    "leaves",
]

#: The owner of stops that a fallback asks for.
FALLBACK = "fallback"
#: Attempts that were lost or failed count for so long, s.
FAILURES_WITHIN_S = 3600.0


class Falling(Protocol):
    """A job that is away from home, or at home where something is the matter."""

    @property
    def home(self) -> str:
        """Its primary site."""

    @property
    def request(self) -> Request: ...

    @property
    def status(self) -> FallbackStatus: ...

    @property
    def failures(self) -> int:
        """How many attempts were lost or failed within :data:`FAILURES_WITHIN_S`."""

    @property
    def moves(self) -> bool:
        """Whether its class lets it move."""

    @property
    def checkpoints(self) -> Known:
        """What is known of its checkpoints at sites."""

    @property
    def inputs(self) -> KnownInputs | None:
        """What is known of its inputs at sites; None: it declares none that can be verified."""


J = TypeVar("J", bound=Falling)


class Jobs(Protocol[J]):
    """The store of fallback states."""

    def concerned(self, sites: Sites) -> Iterable[J]:
        """Return the jobs that are to be looked at."""

    def keep(self, statuses: Sequence[tuple[J, FallbackStatus]]) -> None:
        """Keep the fallback statuses of jobs that stay in their states."""

    def take(self, job: J, transition: Transition) -> bool:
        """Keep the transition of a job, and end its attempts at sites that it may no longer use.

        False: somebody else was faster.
        """


def fall_back(jobs: Jobs[J], sites: Sites, policy: Policy, *, now: float) -> int:
    """Move jobs whose sites ask for it between the states; return how many moved."""
    moved, staying = 0, []
    for job in jobs.concerned(sites):
        after, transition = next_state(job.status, facts_about(job, sites), policy, now=now)
        if transition is None:
            staying.append((job, after))
        else:
            moved += jobs.take(job, _with_basis(job, transition))
    jobs.keep(staying)
    return moved


def facts_about(job: Falling, sites: Sites) -> dict[str, float]:
    """Return the facts that decide on the fallback of a job."""
    return facts_of(
        sites, job.home, job.request, job.failures, moves=job.moves, known=job.checkpoints,
        inputs=job.inputs or {},
    )  # fmt: skip


def _with_basis(job: Falling, transition: Transition) -> Transition:
    """Return a transition that says which inputs and checkpoints it rests on were verified."""
    said = [transition.why]
    if transition.evidence.get("may_move") and job.inputs is not None:
        said.append(inputs.basis(job.inputs, job.home))
    saves = job.checkpoints or job.request.checkpoint_interval_s
    if transition.evidence.get("checkpoint_elsewhere") and saves:
        said.append(basis(job.checkpoints, job.home))
    return replace(transition, why="; ".join(said))


def leaves(state: Fallback, home: str, sites: Collection[str]) -> bool:
    """Say whether an attempt at ``sites`` is at a site that its job may no longer use."""
    if state is Fallback.REGIONAL:
        return home in sites
    return state is Fallback.LOCAL_ONLY and set(sites) != {home}
