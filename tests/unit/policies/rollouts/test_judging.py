"""Verdicts on blocks of evidence: at the stated rates, and for all guards together."""

from __future__ import annotations

import numpy as np

from policies.rollouts.judging import (
    Counts,
    Finding,
    Guard,
    GuardState,
    Judgement,
    Verdict,
    judge,
)

_POWER, _STEP, _XIDS = Guard("power", 0.02), Guard("step_time", 0.02), Guard("xids", None)
_RNG = np.random.default_rng(5)


def _blocks(mean: float, count: int = 40) -> np.ndarray:
    return mean + 0.005 * np.random.default_rng(6).standard_normal(count)


def _xids(changed: float, unchanged: float = 0.0, blocks: int = 40) -> Counts:
    return Counts(
        np.full(blocks, changed), np.full(blocks, unchanged), np.ones(blocks), np.ones(blocks)
    )


def _judged(
    means: dict[str, np.ndarray],
    counts: dict[str, Counts] | None = None,
    *,
    guards: tuple[Guard, ...] = (_POWER, _STEP, _XIDS),
    soaked: bool = True,
    is_over: bool = False,
) -> Judgement:
    return judge(
        guards, means, {"xids": _xids(0.0)} if counts is None else counts,
        alpha=0.05, beta=0.05, steps=2, soaked=soaked, is_over=is_over,
    )  # fmt: skip


def _of(found: Judgement, metric: str) -> Finding:
    return next(each for each in found.findings if each.guard.metric == metric)


def test_a_change_without_effect_is_promoted_once_it_has_soaked() -> None:
    means = {"power": _blocks(0.0), "step_time": _blocks(0.0)}
    assert _judged(means, soaked=False).verdict is Verdict.WAIT
    found = _judged(means)
    assert found.verdict is Verdict.PROMOTE
    assert [each.guard.metric for each in found.findings] == ["power", "step_time", "xids"]


def test_what_is_worse_in_one_guard_is_rolled_back_before_it_has_soaked() -> None:
    found = _judged({"power": _blocks(0.03), "step_time": _blocks(0.0)}, soaked=False)
    assert found.verdict is Verdict.ROLL_BACK
    assert "power" in found.why
    assert _of(found, "power").state is GuardState.WORSE
    told = _of(found, "power")
    assert told.lower is not None
    assert told.upper is not None
    assert 0.0 < told.lower < 0.03 < told.upper


def test_more_xids_on_what_was_changed_are_enough() -> None:
    means = {"power": _blocks(0.0), "step_time": _blocks(0.0)}
    found = _judged(means, {"xids": _xids(1.0)})
    assert found.verdict is Verdict.ROLL_BACK
    assert (_of(found, "xids").evidence or 0.0) > (_of(found, "xids").needed or 0.0)


def test_a_guard_without_any_evidence_keeps_the_change_from_being_promoted() -> None:
    found = _judged({"power": _blocks(0.0)})
    assert found.verdict is Verdict.WAIT
    assert _of(found, "step_time").state is GuardState.UNSEEN
    assert _judged({"power": _blocks(0.0)}, is_over=True).verdict is Verdict.HOLD
    nobody_watched = {"xids": Counts(*np.zeros((4, 10)))}
    both = {"power": _blocks(0.0), "step_time": _blocks(0.0)}
    assert _judged(both, nobody_watched, is_over=True).verdict is Verdict.HOLD


def test_too_few_blocks_to_tell_are_waited_for_and_then_held() -> None:
    few = {"power": _blocks(0.0, 4), "step_time": _blocks(0.0, 4)}
    assert _judged(few).verdict is Verdict.WAIT
    found = _judged(few, is_over=True)
    assert found.verdict is Verdict.HOLD
    assert "power" in found.why


def test_a_count_is_harmless_once_its_rate_is_shown_to_be_low() -> None:
    slow = Guard("slow_steps", 0.0015)
    steps = np.full(40, 250.0)
    seen = Counts(np.zeros(40), np.zeros(40), steps, 3 * steps)
    found = _judged({}, {"slow_steps": seen}, guards=(slow,))
    assert found.verdict is Verdict.PROMOTE
    short = Counts(*(each[:4] for each in (np.zeros(40), np.zeros(40), steps, 3 * steps)))
    assert _judged({}, {"slow_steps": short}, guards=(slow,)).verdict is Verdict.WAIT


def test_error_rates_hold_for_all_guards_together() -> None:
    """Harmless changes that are rolled back, and changes just bad enough that are promoted."""
    guards = tuple(Guard(name, 0.01) for name in ("step_time", "power", "checkpoint_bytes"))
    names = [each.metric for each in guards]
    false_alarms = false_promotions = 0
    for _ in range(400):
        for effect in (0.0, np.log1p(0.01)):
            values = 0.01 * _RNG.standard_normal((60, 3))
            values[:, 0] += effect
            verdicts = [
                judge(
                    guards, {name: values[:blocks, at] for at, name in enumerate(names)}, {},
                    alpha=0.05, beta=0.05, steps=1, soaked=True, is_over=False,
                ).verdict
                for blocks in range(6, 61, 6)
            ]  # fmt: skip
            ended = next((each for each in verdicts if each is not Verdict.WAIT), Verdict.WAIT)
            false_alarms += not effect and ended is Verdict.ROLL_BACK
            false_promotions += bool(effect) and ended is Verdict.PROMOTE
    assert false_alarms / 400 <= 0.05
    assert false_promotions / 400 <= 0.05
