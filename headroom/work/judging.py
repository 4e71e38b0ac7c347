"""The judgement on an attempt: its state, and the next step. Pure."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from headroom.work.claim_journal import Claim, ClaimState
from headroom.work.contract import Measured, WorkOutcome, WorkReport, WorkState
from headroom.work.folder import JobStatus, Marks, ShimExit

__all__ = ["Step", "report_of", "step_of"]

#: Of a report.
_MOST_TEXT = 500


class Step(enum.Enum):
    """The next step for an attempt."""

    NOTHING = "nothing"
    #: start its shim: nothing was started yet
    LAUNCH = "launch"
    #: its end was written down: take it over
    END = "end"
    #: it was started, and whoever knew of its end is gone
    GIVE_UP = "give up"


def step_of(claim: Claim, marks: Marks, *, is_starting: bool, is_confirmed: bool) -> Step:
    """Return the next step for an attempt. ``is_starting``: its shim is on its way up.

    ``is_confirmed``: the server has said lately that it is to run here. What was begun by an
    earlier life is not started without: it may run elsewhere by now.
    """
    if claim.state != ClaimState.STARTING or marks.is_watched or is_starting:
        return Step.NOTHING
    if marks.exit is not None:
        return Step.END
    if marks.started_at is not None:
        return Step.GIVE_UP
    return Step.LAUNCH if is_confirmed else Step.NOTHING


def report_of(
    claim: Claim,
    node: str,
    marks: Marks,
    status: JobStatus,
    log_tail: str = "",
    refusal: str = "",
    outputs: Sequence[Measured] = (),
) -> WorkReport:
    """Return the report on an attempt to the server.

    ``refusal``: why its command was not begun, or what it has not made. ``outputs``: what it has,
    where it has succeeded.
    """
    if claim.report is not None:
        return claim.report
    if marks.exit is not None:
        return _ended(claim, node, marks, marks.exit, status, log_tail, refusal, outputs)
    is_running = claim.state == ClaimState.STARTING and marks.started_at is not None
    state = WorkState.CLAIMED
    if is_running:
        stands_still = marks.is_paused or marks.is_fenced
        state = WorkState.PAUSED if stands_still else WorkState.RUNNING
    return WorkReport(
        attempt=claim.attempt,
        node=node,
        state=state,
        started_at=marks.started_at if is_running else None,
        checkpoint_at=status.checkpoint_at,
        signals_seen=claim.signals,
        signals_done=min(status.done, claim.signals),
        done_at_step=status.step,
        text="it stands still: the server was not heard" if marks.is_fenced else "",
    )


def _ended(
    claim: Claim,
    node: str,
    marks: Marks,
    end: ShimExit,
    status: JobStatus,
    log_tail: str,
    refusal: str,
    outputs: Sequence[Measured],
) -> WorkReport:
    outcome = WorkOutcome.EXITED
    text = refusal[:_MOST_TEXT] or f"exit code {end.exit_code}"
    if end.timed_out:
        outcome, text = WorkOutcome.TIMED_OUT, "its walltime was up"
    elif end.stopped:
        outcome, text = WorkOutcome.STOPPED, "it was told to stop"
    elif end.lost:
        # Not the command's fault, and nothing of it runs any more.
        outcome = WorkOutcome.LOST
    return WorkReport(
        attempt=claim.attempt,
        node=node,
        state=WorkState.ENDED,
        outcome=outcome,
        exit_code=min(max(end.exit_code, 0), 255),
        started_at=marks.started_at,
        ended_at=end.ended_at,
        checkpoint_at=status.checkpoint_at,
        signals_seen=claim.signals,
        signals_done=min(status.done, claim.signals),
        done_at_step=status.step,
        outputs=list(outputs),
        text=end.why[:_MOST_TEXT] or text,
        log_tail=log_tail,
    )
