"""What is so with an attempt, and what to do about it. Pure."""

from __future__ import annotations

import enum

from headroom.work.book import Claim, ClaimState
from headroom.work.contract import WorkOutcome, WorkReport, WorkState
from headroom.work.folder import JobStatus, Marks, ShepherdExit

__all__ = ["Step", "report_of", "step_of"]


class Step(enum.Enum):
    """What is next to be done for an attempt."""

    NOTHING = "nothing"
    #: start its shepherd: nothing was started yet
    LAUNCH = "launch"
    #: its end was written down: take it over
    END = "end"
    #: it was started, and whoever knew of its end is gone
    GIVE_UP = "give up"


def step_of(claim: Claim, marks: Marks, *, is_starting: bool) -> Step:
    """Return what to do with an attempt. ``is_starting``: its shepherd is on its way up."""
    if claim.state != ClaimState.STARTING:
        return Step.NOTHING
    if marks.exit is not None:
        return Step.END
    if marks.is_watched or is_starting:
        return Step.NOTHING
    return Step.LAUNCH if marks.started_at is None else Step.GIVE_UP


def report_of(
    claim: Claim, node: str, marks: Marks, status: JobStatus, log_tail: str = ""
) -> WorkReport:
    """Return what to tell the server of an attempt."""
    if claim.report is not None:
        return claim.report
    if marks.exit is not None:
        return _ended(claim, node, marks, marks.exit, status, log_tail)
    is_running = claim.state == ClaimState.STARTING and marks.started_at is not None
    state = WorkState.CLAIMED
    if is_running:
        state = WorkState.PAUSED if marks.is_paused else WorkState.RUNNING
    return WorkReport(
        attempt=claim.attempt,
        node=node,
        state=state,
        started_at=marks.started_at if is_running else None,
        checkpoint_at=status.checkpoint_at,
        signals_seen=claim.signals,
        signals_done=min(status.done, claim.signals),
    )


def _ended(
    claim: Claim,
    node: str,
    marks: Marks,
    end: ShepherdExit,
    status: JobStatus,
    log_tail: str,
) -> WorkReport:
    outcome = WorkOutcome.EXITED
    text = f"exit code {end.exit_code}"
    if end.timed_out:
        outcome, text = WorkOutcome.TIMED_OUT, "its walltime was up"
    elif end.stopped:
        outcome, text = WorkOutcome.STOPPED, "it was told to stop"
    return WorkReport(
        attempt=claim.attempt,
        node=node,
        state=WorkState.ENDED,
        outcome=outcome,
        exit_code=end.exit_code,
        started_at=marks.started_at,
        ended_at=end.ended_at,
        checkpoint_at=status.checkpoint_at,
        signals_seen=claim.signals,
        signals_done=min(status.done, claim.signals),
        text=text,
        log_tail=log_tail,
    )
