"""The graph of a job: next states of its phases, and of the job, when a phase has ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from admission.jobs.models import Job, Phase

__all__ = ["Step", "following", "job_state"]

_State = Phase.State


@dataclass(frozen=True)
class Step:
    """A phase as its job's graph sees it."""

    name: str
    needs: tuple[str, ...]
    state: str
    #: an attempt of it has run
    has_begun: bool = False
    #: it waits for something that is no phase of its job
    is_kept: bool = False
    #: it was cancelled since the job went another way
    is_left_out: bool = False


def following(steps: Sequence[Step]) -> dict[str, str]:
    """Return the new states of phases that wait for others, by name.

    One is queued when all that it needs has succeeded, and cancelled when some of that never will.
    """
    states = {step.name: step.state for step in steps}
    changed: dict[str, str] = {}
    is_settled = False
    while not is_settled:
        new = {step.name: _next(step, states) for step in steps if states[step.name] == "waiting"}
        new = {name: state for name, state in new.items() if state != _State.WAITING}
        states |= new
        changed |= new
        is_settled = not new
    return changed


def _next(step: Step, states: dict[str, str]) -> str:
    needed = [states[name] for name in step.needs]
    if any(state in (_State.FAILED, _State.CANCELLED) for state in needed):
        return _State.CANCELLED
    if not step.is_kept and all(state == _State.SUCCEEDED for state in needed):
        return _State.QUEUED
    return _State.WAITING


def job_state(steps: Iterable[Step]) -> str:
    """Return the state of a job whose phases are in these."""
    steps = list(steps)
    states = {step.state for step in steps}
    if states - set(Phase.OVER):
        has_begun = any(step.has_begun or step.state in Phase.ACTIVE for step in steps)
        return Job.State.RUNNING if has_begun else Job.State.QUEUED
    states = {step.state for step in steps if not step.is_left_out}
    for state in (Job.State.FAILED, Job.State.CANCELLED):
        if state in states:
            return state
    return Job.State.SUCCEEDED
