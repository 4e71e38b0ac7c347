"""Traces of jobs: every span lies within its job, and ids follow from the job alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from admission.tracing.spans import MOST_SPANS, AttemptTimes, JobTimes, PhaseTimes, spans_of


def job(*phases: PhaseTimes, key: str = "1", ended: float = 100.0) -> JobTimes:
    return JobTimes(key, "llama", "vision", "training", "succeeded", 0.0, ended, phases)


def attempt(number: int, dispatched: float, ended: float | None) -> AttemptTimes:
    return AttemptTimes(number, dispatched, dispatched, ended, "succeeded", "", ("oslo",), 1, 8)


@st.composite
def phases(draw: st.DrawFn) -> PhaseTimes:
    """A phase with up to four attempts, one after the other."""
    moments = sorted(draw(st.lists(st.floats(0.0, 100.0), min_size=9, max_size=9)))
    count = draw(st.integers(0, 4))
    attempts = [attempt(n + 1, moments[2 * n + 1], moments[2 * n + 2]) for n in range(count)]
    name = draw(st.text("abc", min_size=1))
    return PhaseTimes(name, "succeeded", 8, moments[0], moments[8], attempts)


@given(st.lists(phases(), max_size=4, unique_by=lambda each: each.name))
def test_spans_lie_within_their_job_and_hang_on_another_of_its_trace(
    given_phases: list[PhaseTimes],
) -> None:
    spans = spans_of(job(*given_phases))
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert [span.parent_id for span in spans if span.parent_id not in ids] == [b""]
    assert all(0.0 <= span.start <= span.end <= 100.0 for span in spans)
    assert spans == spans_of(job(*given_phases))


def test_another_job_of_the_same_shape_has_other_ids() -> None:
    one, other = (spans_of(job(key=key)) for key in ("1", "2"))
    assert one[0].trace_id != other[0].trace_id
    assert one[0].span_id != other[0].span_id


def test_a_phase_that_never_might_begin_is_not_there() -> None:
    assert [
        span.name for span in spans_of(job(PhaseTimes("eval", "cancelled", 8, None, None)))
    ] == ["job llama"]


def test_a_phase_that_was_cancelled_in_the_queue_has_its_wait_alone() -> None:
    spans = spans_of(job(PhaseTimes("train", "cancelled", 8, 10.0, 40.0)))
    assert [(span.name, span.start, span.end) for span in spans[1:]] == [
        ("phase train", 10.0, 40.0), ("queue", 10.0, 40.0),
    ]  # fmt: skip


def test_a_trace_is_bounded_and_says_what_it_left_out() -> None:
    many = [PhaseTimes(f"p{n}", "succeeded", 1, 0.0, 1.0) for n in range(MOST_SPANS)]
    spans = spans_of(job(*many))
    assert len(spans) == MOST_SPANS
    assert spans[0].attributes["headroom.spans_left_out"] == 2 * MOST_SPANS - (MOST_SPANS - 1)
