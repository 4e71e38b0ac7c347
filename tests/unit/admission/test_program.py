"""Program goodput is by stated FLOPs and known peaks, and is not known without them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.program import NOTHING, Stated, Work, peak_flops


def test_peaks_are_those_of_the_catalogue_at_the_stated_precision() -> None:
    names = ["H100-SXM5-80GB", "NVIDIA H200", "A100-SXM4-80GB"]
    assert peak_flops(names, "bf16").tolist() == [989.4e12, 989.5e12, 312e12]
    # No A100 computes in FP8.
    assert peak_flops(names, "fp8")[:2].tolist() == [1.9789e15, 1.979e15]
    assert np.isnan(peak_flops(names, "fp8")[2])


def test_a_card_of_another_form_has_no_peak_that_is_known() -> None:
    assert np.isnan(peak_flops(["NVIDIA H100 PCIe", "host"], "bf16")).all()


def test_work_is_of_attempts_of_which_both_figures_are_known() -> None:
    stated = Stated(np.array([4e15, np.nan, 4e15]), np.array([1e15, 1e15, np.nan]))
    steps, productive_s = np.array([100.0, 100.0, 100.0]), np.array([1000.0, 1000.0, 1000.0])
    assert stated.works(steps, productive_s) == [Work(4e17, 1e18, 1000.0), NOTHING, NOTHING]


def test_what_loops_tell_takes_the_place_of_what_is_not_stated() -> None:
    stated = Stated(np.array([4e15, np.nan, np.nan]), np.array([1e15, 1e15, 1e15]))
    found = stated.or_told(np.array([1e15, 2e15, np.nan]))
    assert found.step_flop[:2].tolist() == [4e15, 2e15]
    assert np.isnan(found.step_flop[2])


def test_without_stated_flops_it_is_not_known() -> None:
    assert NOTHING.goodput is None
    assert not NOTHING.verdict


@pytest.mark.parametrize(
    ("mfu", "says"),
    [
        (0.2, "below the 30 to 50 %"),
        (0.4, "within the 30 to 50 %"),
        (0.6, "above the 30 to 50 %"),
        (1.2, "flops_per_step or precision is not that of its steps"),
    ],
)
def test_it_says_where_it_lies_beside_well_optimized_training(mfu: float, says: str) -> None:
    assert says in Work(mfu * 1e15, 1e15, 1.0).verdict


_FLOP = st.floats(1.0, 1e20)


@given(st.lists(st.tuples(_FLOP, _FLOP), min_size=1, max_size=6))
def test_the_whole_lies_between_its_parts(parts: list[tuple[float, float]]) -> None:
    works = [Work(model, peak, 1.0) for model, peak in parts]
    each = [work.goodput or 0.0 for work in works]
    whole = sum(works, NOTHING).goodput
    assert whole is not None
    assert min(each) * (1 - 1e-9) <= whole <= max(each) * (1 + 1e-9)
