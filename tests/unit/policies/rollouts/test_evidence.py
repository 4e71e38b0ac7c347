"""Evidence is what the change did to the jobs on it, whatever the arms differ by anyway."""

from __future__ import annotations

import numpy as np
import pytest

from policies.rollouts.evidence import (
    MEANS,
    Array,
    Observed,
    Units,
    Work,
    blocks_of,
    contrast,
    like_work,
)

_BLOCKS, _JOBS = 40, 16


def _observed(rng: np.random.Generator, offset: np.ndarray, blocks: int = _BLOCKS) -> Observed:
    """Jobs that differ by far, each of which does much the same in every block."""
    size = (blocks, _JOBS)
    work = rng.uniform(0.5, 0.9, size)
    power = np.exp(6.0 + offset + 0.5 * work + 0.002 * rng.standard_normal(size))
    return Observed(
        step_s=np.exp(1.0 + offset + 0.005 * rng.standard_normal(size)),
        throttled=np.zeros(size),
        power_w=power,
        work=work,
        temp_c=30.0 + 10.0 * offset + 0.05 * power + 0.1 * rng.standard_normal(size),
        in_steps=np.full(size, 0.95),
        checkpoint_bytes=np.full(size, 1e11),
    )


def _units(unchanged_from: int = 4) -> Units:
    at = np.arange(_JOBS)
    return Units(at < 4, at >= unchanged_from, np.zeros(_JOBS, np.int64), np.full(_JOBS, 8.0))


def _both(after_w: float = 1.0) -> tuple[Observed, Observed]:
    rng = np.random.default_rng(7)
    # The jobs on the change draw more, take longer and are hotter than the others, and always did.
    offset = rng.uniform(0.0, 0.5, _JOBS) + (np.arange(_JOBS) < 4)
    before, after = _observed(rng, offset), _observed(rng, offset)
    after.power_w[:, :4] *= after_w
    after.temp_c[:, :4] += 0.05 * (after.power_w[:, :4] - after.power_w[:, :4] / after_w)
    return after, before


def test_arms_that_differ_anyway_show_no_difference() -> None:
    means, covered = blocks_of(*_both(), _units())
    assert covered == 1.0
    for name in ("step_time", "power", "temperature", "goodput", "checkpoint_bytes"):
        values = means[name]
        assert abs(values.mean()) < 4.0 * max(values.std(), 1e-9) / np.sqrt(_BLOCKS), name


def test_more_power_at_like_work_is_power_and_no_temperature() -> None:
    means, _ = blocks_of(*_both(1.03), _units())
    assert abs(means["power"].mean() - np.log(1.03)) < 0.002
    # Hotter by what the power makes it, which is as it should be.
    assert abs(means["temperature"].mean()) < 0.2


def test_less_work_is_no_saving_of_power() -> None:
    after, before = _both()
    after.work[:, :4] -= 0.2
    after.power_w[:, :4] *= np.exp(-0.5 * 0.2)
    means, _ = blocks_of(after, before, _units())
    assert abs(means["power"].mean()) < 0.01


def test_less_goodput_is_worse() -> None:
    after, before = _both()
    after.in_steps[:, :4] -= 0.1
    means, _ = blocks_of(after, before, _units())
    assert np.allclose(means["goodput"], 0.1)


def test_what_happens_to_both_arms_at_once_is_no_effect_of_the_change() -> None:
    after, before = _both()
    after.temp_c[:] += 5.0
    means, _ = blocks_of(after, before, _units())
    assert abs(means["temperature"].mean()) < 0.2


def test_a_job_that_was_not_there_before_tells_nothing_and_is_not_covered() -> None:
    after, before = _both()
    for name in Observed.__dataclass_fields__:
        getattr(before, name)[:, :2] = np.nan
    after.power_w[:, :2] *= 2.0
    means, covered = blocks_of(after, before, _units())
    assert abs(means["power"].mean()) < 0.01
    assert covered == 0.5


def _work(**columns: float) -> Work:
    def of(name: str, value: float) -> Array:
        found = np.full((_BLOCKS, _JOBS), value)
        found[5:, 0] *= columns.get(name, 1.0)
        return found

    return Work(of("samples", 512.0), of("tokens", 1e6), of("gpus", 8.0))


@pytest.mark.parametrize("name", ["samples", "tokens", "gpus"])
def test_a_job_that_tells_of_other_steps_does_other_work(name: str) -> None:
    like = like_work(_work(**{name: 1.25}), _work())
    assert not like[5:, 0].any()
    assert like[:5].all()
    assert like[:, 1:].all()


def test_a_little_more_or_nothing_told_is_the_same_work() -> None:
    assert like_work(_work(samples=1.05), _work()).all()
    silent = _work()
    silent.samples[:] = silent.tokens[:] = np.nan
    assert like_work(silent, silent).all()
    assert like_work(_work(), silent).all()


def test_a_block_before_the_change_with_other_work_is_no_pair_either() -> None:
    before = _work()
    before.tokens[:5, 0] *= 3.0
    like = like_work(_work(), before.backwards())
    assert not like[-5:, 0].any()
    assert like[:-5].all()


def test_what_a_job_does_otherwise_by_itself_is_no_effect() -> None:
    after, before = _both()
    after.power_w[5:, 0] *= 1.4
    after.step_s[5:, 0] *= 2.0
    after.throttled[5:, 0] += 0.2
    like = like_work(_work(samples=2.0), _work())
    means, covered = blocks_of(after, before, _units(), like)
    assert abs(means["power"].mean()) < 0.01
    assert abs(means["step_time"].mean()) < 0.01
    assert 0.75 < covered < 1.0
    # A job may do less since it is throttled: that counts whatever it does.
    assert means["throttling"][5:].mean() == pytest.approx(0.05)


def test_jobs_are_compared_with_those_of_their_own_kind_alone() -> None:
    differences = np.zeros((1, 4, len(MEANS)))
    differences[:, 1] = 1.0
    differences[:, 3] = 9.0
    units = Units(
        np.array([False, True, False, True]),
        np.array([True, False, True, False]),
        np.array([0, 0, 0, 1]),
        np.ones(4),
    )
    found, covered = contrast(differences, units)
    assert np.allclose(found, 1.0)
    assert np.allclose(covered, 0.5)


def test_without_anything_to_compare_with_there_is_no_evidence() -> None:
    means, covered = blocks_of(*_both(), _units(unchanged_from=_JOBS))
    assert np.isnan(means["power"]).all()
    assert covered == 0.0
