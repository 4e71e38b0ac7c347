from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from physics.hardware import CURRENT
from physics.partitions import fits, shares

H100 = CURRENT.mig_profiles_of("NVIDIA H100 80GB HBM3")
A30 = CURRENT.mig_profiles_of("NVIDIA A30")


@pytest.mark.parametrize(
    "names",
    [
        ["1g.10gb"] * 7,
        ["3g.40gb", "3g.40gb"],
        ["4g.40gb", "3g.40gb"],
        ["2g.20gb", "2g.20gb", "2g.20gb", "1g.10gb"],
        ["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"],
        ["1g.20gb"] * 4,
        ["7g.80gb"],
        [],
    ],
)
def test_a_partition_that_the_maker_lists_fits(names: list[str]) -> None:
    assert fits([H100[name] for name in names])


@pytest.mark.parametrize(
    "names",
    [
        ["1g.10gb"] * 8,
        ["4g.40gb", "4g.40gb"],
        ["3g.40gb", "3g.40gb", "1g.10gb"],
        ["7g.80gb", "1g.10gb"],
        ["2g.20gb"] * 4,
    ],
)
def test_a_partition_that_has_no_place_for_one_of_its_slices_does_not_fit(names: list[str]) -> None:
    assert not fits([H100[name] for name in names])


def test_an_a30_has_four_slices_of_each_kind() -> None:
    assert fits([A30["1g.6gb"]] * 4)
    assert not fits([A30["1g.6gb"]] * 5)


def test_a_slice_counts_for_its_compute_or_its_memory_whichever_is_more() -> None:
    assert H100["1g.10gb"].share == pytest.approx(1 / 7)
    assert H100["1g.20gb"].share == pytest.approx(1 / 4)
    assert H100["3g.40gb"].share == pytest.approx(1 / 2)
    assert H100["7g.80gb"].share == 1.0


@given(st.lists(st.sampled_from(sorted(H100)), max_size=8))
def test_shares_of_a_partition_that_fits_add_up_to_no_more_than_the_gpu(names: list[str]) -> None:
    profiles = [H100[name] for name in names]
    if fits(profiles):
        found = shares(profiles)
        assert sum(found) <= 1.0
        assert all(has <= each.share for has, each in zip(found, profiles, strict=True))


@pytest.mark.parametrize("name", ["NVIDIA L40S", "Tesla V100-SXM2-16GB", "AMD MI300X", ""])
def test_a_gpu_without_mig_has_no_profiles(name: str) -> None:
    assert CURRENT.mig_profiles_of(name) == {}


def test_profiles_are_those_of_the_memory_that_a_model_has() -> None:
    assert "1g.5gb" in CURRENT.mig_profiles_of("NVIDIA A100-SXM4-40GB")
    assert "1g.5gb" not in CURRENT.mig_profiles_of("NVIDIA A100-SXM4-80GB")
    assert "7g.141gb" in CURRENT.mig_profiles_of("NVIDIA H200")


def test_every_profile_fits_as_often_as_it_says() -> None:
    for each in CURRENT.mig_profiles.values():
        assert fits([each] * each.most)
        assert not fits([each] * (each.most + 1))
