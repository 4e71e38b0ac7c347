"""What could be done at most within budgets, by somebody who knew what each job draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.approaches.bound import bound_gpu_h
from lab.approaches.comparison import Setup
from lab.world import Arrival
from tests.unit.lab.world.builders import make_arrival


def _setup(power_share: float = 1.0, **given: Any) -> Setup:
    return Setup(
        trace=Path("none"), gpus=32, sites=1, nodes_per_rack=4, hours=1.0,
        power_share=power_share, **given,
    )  # fmt: skip


def _jobs(count: int, **given: Any) -> list[Arrival]:
    return [make_arrival(f"j{at}", gpus=8, runs_s=7200.0, activity=0.8, **given)
            for at in range(count)]  # fmt: skip


def test_with_room_for_all_everything_is_done() -> None:
    assert bound_gpu_h(_setup(), _jobs(3), peaks_apart=False) == pytest.approx(24.0)
    short = [*_jobs(1), make_arrival("short", gpus=8, runs_s=900.0, at_s=1800.0)]
    assert bound_gpu_h(_setup(), short, peaks_apart=False) == pytest.approx(8.0 + 2.0)


def test_no_more_gpus_work_than_there_are() -> None:
    assert bound_gpu_h(_setup(), _jobs(6), peaks_apart=False) == pytest.approx(32.0)


def test_with_less_power_less_is_done_and_less_by_those_who_agreed_to_nothing() -> None:
    tight = _setup(power_share=0.5)
    firm = bound_gpu_h(tight, _jobs(4), peaks_apart=False)
    agreed = bound_gpu_h(tight, _jobs(4, max_slowdown=0.5), peaks_apart=False)

    assert 16.0 < firm < agreed < 32.0
    assert bound_gpu_h(_setup(power_share=0.6), _jobs(4), peaks_apart=False) > firm


def test_what_zones_carry_off_bounds_it_as_well() -> None:
    warm = bound_gpu_h(_setup(cooling_share=0.5), _jobs(4), peaks_apart=False)
    assert warm == pytest.approx(bound_gpu_h(_setup(power_share=0.5), _jobs(4), peaks_apart=False))


def test_what_others_place_has_no_bound() -> None:
    with pytest.raises(ValueError, match="others"):
        bound_gpu_h(_setup(others_share=0.5), _jobs(1), peaks_apart=True)
