"""Canary and control are alike in what is known of their racks."""

from __future__ import annotations

import numpy as np
import pytest

from policies.rollouts.arms import Racks, choose


def _racks(count: int = 24, **given: object) -> Racks:
    rng = np.random.default_rng(3)
    values: dict[str, object] = {
        "gpus": np.full(count, 32.0),
        "model": np.arange(count) % 2,
        "cooling": np.zeros(count, np.int64),
        "age_days": rng.uniform(0.0, 900.0, count),
        "load": rng.uniform(0.2, 1.0, (count, 2)),
        "load_names": ("power", "busy"),
        "eligible": np.ones(count, np.bool_),
    }
    return Racks(**{**values, **given})  # type: ignore[arg-type]


def test_the_canary_has_the_gpus_asked_for_and_is_like_the_rest() -> None:
    racks = _racks()
    found = choose(racks, gpus=160.0, seed=1)
    assert 160.0 <= racks.gpus[found.canary].sum() < 160.0 + 32.0
    assert not (found.canary & found.control).any()
    assert set(found.imbalance) == {"model 0", "model 1", "age", "power", "busy"}
    # Far nearer than choices are by chance.
    by_chance = np.random.default_rng(0).permutation(24) < 5
    age = racks.age_days
    apart = abs(age[by_chance].mean() - age[~by_chance].mean()) / age.std()
    assert max(map(abs, found.imbalance.values())) < max(0.3, apart)


def test_the_same_racks_and_seed_give_the_same_choice() -> None:
    first, second = (choose(_racks(), gpus=160.0, seed=9).canary for _ in range(2))
    assert (first == second).all()


def test_racks_that_are_not_eligible_are_in_no_arm() -> None:
    eligible = np.arange(24) < 12
    found = choose(_racks(eligible=eligible), gpus=96.0, seed=1)
    assert not ((found.canary | found.control) & ~eligible).any()


def test_named_racks_are_taken_and_how_unlike_they_are_is_said() -> None:
    racks = _racks(load=np.stack([np.arange(24.0), np.ones(24)], axis=1))
    found = choose(racks, gpus=0.0, seed=1, fixed=np.arange(24) >= 20)
    assert found.canary.sum() == 4
    assert found.imbalance["power"] > 1.0
    assert not found.are_alike


def test_an_age_that_nobody_knows_neither_helps_nor_hinders() -> None:
    found = choose(_racks(age_days=np.full(24, np.nan)), gpus=160.0, seed=1)
    assert "age" not in found.imbalance


def test_a_canary_of_other_gpus_than_all_the_rest_is_refused() -> None:
    racks = _racks(model=(np.arange(24) >= 20).astype(np.int64))
    with pytest.raises(ValueError, match="no other rack has the GPUs"):
        choose(racks, gpus=0.0, seed=1, fixed=np.arange(24) >= 20)


def test_all_racks_leave_nothing_to_compare_with() -> None:
    with pytest.raises(ValueError, match="no racks are left"):
        choose(_racks(), gpus=24 * 32.0, seed=1)
