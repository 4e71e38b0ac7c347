import numpy as np

from lab.training.noise import seed_of, standard_normal, uniform

COUNTER = np.arange(20_000, dtype=np.uint64)


def test_values_are_spread_as_their_names_say() -> None:
    even, normal = uniform(5, COUNTER), standard_normal(5, COUNTER)
    assert 0.0 <= even.min() < 0.001
    assert 0.999 < even.max() < 1.0
    assert abs(even.mean() - 0.5) < 0.01
    assert abs(normal.mean()) < 0.03
    assert abs(normal.std() - 1.0) < 0.02
    assert abs(np.corrcoef(normal[1:], normal[:-1])[0, 1]) < 0.03


def test_a_value_goes_by_its_seed_and_number_alone() -> None:
    assert np.array_equal(
        standard_normal(5, COUNTER)[100:110], standard_normal(5, COUNTER[100:110])
    )
    assert not np.array_equal(uniform(5, COUNTER), uniform(6, COUNTER))


def test_seeds_go_by_run_and_name() -> None:
    seeds = {seed_of(run, name) for run in range(30) for name in ("a", "b", "1")}
    assert len(seeds) == 90
    assert all(0 <= seed < 2**63 for seed in seeds)
