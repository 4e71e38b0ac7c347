"""What a job does by its number of GPUs: as measured, by a law through that, or until then."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.throughput import KEEPS_S, SETTLED_S, Basis, Curve, Measured, noted
from physics.scaling import usl_speedup


def _curve(*points: tuple[int, float]) -> Curve:
    return Curve.of([Measured(gpus, per_s, SETTLED_S) for gpus, per_s in points])


def _usl(gpus: int, contention: float, coherency: float = 0.0) -> float:
    return 100.0 * float(usl_speedup(gpus=gpus, contention=contention, coherency=coherency))


def test_until_two_sizes_are_measured_the_law_of_whoever_asks_counts() -> None:
    for curve in (Curve(), _curve((1, 100.0))):
        found = curve.expected(1, 8, prior=6.5)
        assert (found.ratio, found.basis) == (6.5, Basis.PRIOR)
        assert "measured at too few sizes" in found.told()


def test_a_size_counts_only_once_it_was_measured_for_long_enough() -> None:
    early = Curve.of([Measured(1, 100.0, SETTLED_S), Measured(8, 120.0, SETTLED_S - 1.0)])
    assert early.expected(1, 8, prior=8.0).basis is Basis.PRIOR
    assert early.at(8) is None


def test_between_two_measured_sizes_it_is_the_measurement_itself() -> None:
    found = _curve((1, 100.0), (8, 200.0)).expected(1, 8, prior=8.0)
    assert (found.ratio, found.basis) == (2.0, Basis.MEASURED)
    assert found.added_yield == pytest.approx(1.0 / 7.0)
    assert "2.00 times the work (measured on 1 and on 8)" in found.told()


def test_two_sizes_give_amdahls_law_and_three_the_universal_one() -> None:
    two = _curve((1, _usl(1, 0.1)), (4, _usl(4, 0.1))).expected(1, 16, prior=16.0)
    assert two.basis is Basis.AMDAHL
    assert two.ratio == pytest.approx(_usl(16, 0.1) / 100.0)
    three = _curve(*((n, _usl(n, 0.05, 0.01)) for n in (1, 4, 8))).expected(8, 16, prior=2.0)
    assert three.basis is Basis.USL
    assert three.ratio == pytest.approx(_usl(16, 0.05, 0.01) / _usl(8, 0.05, 0.01))


def test_a_job_that_more_gpus_slow_down_is_not_expected_to_win_by_still_more() -> None:
    curve = _curve((2, 100.0), (8, 90.0))
    assert curve.expected(2, 8, prior=4.0).added_yield < 0.0
    assert curve.expected(8, 16, prior=2.0).ratio <= 1.0


@given(
    points=st.dictionaries(
        st.integers(1, 512), st.floats(1e-3, 1e6, allow_nan=False), min_size=1, max_size=6
    ),
    have=st.integers(1, 512),
    more=st.integers(1, 512),
)
def test_an_expectation_is_above_zero_and_measured_sizes_count_as_measured(
    points: dict[int, float], have: int, more: int
) -> None:
    curve = _curve(*points.items())
    found = curve.expected(have, have + more, prior=1.5)
    assert 0.0 < found.ratio < float("inf")
    if have in points and have + more in points:
        assert found.ratio == points[have + more] / points[have]


def test_the_mean_of_a_size_follows_a_job_that_changes() -> None:
    found = Measured(4, 0.0, 0.0)
    for _ in range(500):
        found = noted(found, 100.0, 20.0)
    assert found.per_s == pytest.approx(100.0)
    assert found.for_s == 10_000.0
    for _ in range(int(3 * KEEPS_S / 20.0)):
        found = noted(found, 50.0, 20.0)
    assert found.per_s == pytest.approx(50.0, rel=0.1)
