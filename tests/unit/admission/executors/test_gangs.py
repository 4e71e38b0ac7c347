"""When a gang goes, when it is withdrawn, and how it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from admission.executors.gangs import Verdict, become, settle
from admission.executors.models import Gang, NodeAssignment

S, P = Gang.State, NodeAssignment.State
BEGAN = datetime(2026, 5, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def gang(state: str, outcome: str = "", why: str = "") -> Gang:
    """Return a gang that was offered at ``BEGAN``, if at all, and has come to ``state``."""
    return Gang(
        offered_at=None if state == S.HELD else BEGAN,
        go_at=BEGAN if state in (S.GO, S.STOPPING) else None,
        outcome=outcome,
        why=why,
    )


def part(node: str, state: str, **given: Any) -> NodeAssignment:
    return NodeAssignment(node=node, state=state, **given)


def ended(
    node: str = "n1",
    outcome: str = "exited",
    code: int | None = 0,
    *,
    at: float = 1.0,
    text: str = "",
) -> NodeAssignment:
    given = {"outcome": outcome, "exit_code": code, "text": text, "ended_at": after(at)}
    return part(node, P.ENDED, **given)


def parts(*states: str) -> list[NodeAssignment]:
    return [part(f"n{i + 1}", state) for i, state in enumerate(states)]


def judged(given: Gang, found: list[NodeAssignment], after_s: float = 10.0) -> Verdict:
    now = after(after_s)
    verdict = settle(given, found, now, gather_s=30.0)
    if not verdict.never_started:
        become(given, verdict, now)
        assert given.state == verdict.state
        assert settle(given, found, now, gather_s=30.0) == verdict
    return verdict


def test_a_gang_goes_when_all_of_its_nodes_have_claimed_it() -> None:
    assert judged(gang(S.OFFERED), parts(P.CLAIMED, P.OFFERED)).state == S.OFFERED
    assert judged(gang(S.OFFERED), parts(P.CLAIMED, P.CLAIMED)).state == S.GO


def test_a_gang_that_does_not_come_together_in_time_is_withdrawn_from_all() -> None:
    verdict = judged(gang(S.OFFERED), parts(P.CLAIMED, P.OFFERED), after_s=30.1)
    assert (verdict.state, verdict.outcome, verdict.never_started) == (S.ENDED, "withdrawn", True)
    assert verdict.why == "n2 did not take it within 30 s"


def test_many_that_are_late_are_told_in_short() -> None:
    verdict = judged(gang(S.OFFERED), parts(*[P.OFFERED] * 5), after_s=31.0)
    assert verdict.why == "n1, n2, n3 and 2 more did not take it within 30 s"


def test_all_that_have_claimed_it_at_the_last_moment_go() -> None:
    assert judged(gang(S.OFFERED), parts(P.CLAIMED, P.CLAIMED), after_s=400.0).state == S.GO


def test_one_that_refuses_ends_it_for_all_before_it_began() -> None:
    verdict = judged(gang(S.OFFERED), [ended(outcome="never_started", text="it was here before"),
                               part("n2", P.CLAIMED)])  # fmt: skip
    assert (verdict.outcome, verdict.never_started) == ("withdrawn", True)
    assert verdict.why == "n1: it was here before"


@pytest.mark.parametrize("state", [S.HELD, S.OFFERED])
def test_what_is_told_to_stop_before_it_goes_ends_at_once(state: str) -> None:
    verdict = judged(gang(state, "stopped", "cancelled by ada"), parts(P.CLAIMED))
    assert verdict == Verdict(S.ENDED, "stopped", "cancelled by ada", never_started=True)


def test_what_is_told_to_stop_while_it_runs_ends_when_all_have() -> None:
    told = gang(S.GO, "stopped", "cancelled by ada")
    assert judged(told, parts(P.RUNNING, P.RUNNING)).state == S.STOPPING
    stopping = gang(S.STOPPING, "stopped", "cancelled by ada")
    one_left = [ended(outcome="stopped"), part("n2", P.RUNNING)]
    assert judged(stopping, one_left).state == S.STOPPING
    both = [ended("n1", "stopped", 143), ended("n2", "stopped", 143)]
    assert judged(stopping, both) == Verdict(S.ENDED, "stopped", "cancelled by ada")


def test_one_node_that_is_done_does_not_end_the_others() -> None:
    assert judged(gang(S.GO), [ended(), part("n2", P.RUNNING)]).state == S.GO
    assert judged(gang(S.GO), [ended(), ended("n2")]) == Verdict(S.ENDED, "succeeded", "")


@pytest.mark.parametrize(
    ("outcome", "code", "expected"),
    [
        ("exited", 1, "failed"),
        ("timed_out", 143, "timed_out"),
        ("lost", None, "lost"),
        ("stopped", 143, "stopped"),
        ("never_started", None, "lost"),
    ],
)
def test_one_node_that_fails_takes_the_others_along(
    outcome: str, code: int | None, expected: str
) -> None:
    verdict = judged(gang(S.GO), [ended("n1", outcome, code), part("n2", P.RUNNING)])
    assert (verdict.state, verdict.outcome) == (S.STOPPING, expected)
    assert verdict.why.startswith("n1: ")


def test_the_first_failure_counts_and_not_what_it_brought_about() -> None:
    found = [ended("n1", code=134, at=12.0), ended("n2", code=1, at=11.0)]
    assert judged(gang(S.GO), found) == Verdict(S.ENDED, "failed", "n2: exit code 1")


def test_what_was_done_before_it_heard_of_a_stop_has_succeeded() -> None:
    stopping = gang(S.STOPPING, "stopped", "cancelled")
    assert judged(stopping, [ended(), ended("n2")]).outcome == "succeeded"
