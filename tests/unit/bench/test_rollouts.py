"""A rollout on the twin takes back what is bad, and the change is gone from the plant then."""

from __future__ import annotations

import numpy as np
import pytest

from bench.rollouts import CHANGES, play
from bench.rollouts_twin import BLOCK_S, UPDATE_S, Change, Plant


def test_a_change_is_in_the_plant_once_its_racks_report_it_and_gone_when_taken_back() -> None:
    plant = Plant(1)
    plant.go(5 * BLOCK_S)
    racks, image = np.arange(plant.racks) < 4, Change("image", draw_factor=1.5)
    plant.change(racks, image)
    assert not plant.reports(racks, image)
    plant.go(UPDATE_S + BLOCK_S)
    assert plant.reports(racks, image)
    factor = plant.twin.conditions.gpu_draw_factor.reshape(plant.racks, -1)
    assert (factor[racks] == 1.5).all()
    assert (factor[~racks] == 1.0).all()
    plant.change(racks, None)
    plant.go(UPDATE_S + BLOCK_S)
    assert plant.reports(racks, None)
    assert (plant.twin.conditions.gpu_draw_factor == 1.0).all()


@pytest.mark.slow
def test_bad_changes_are_rolled_back_from_a_quarter_and_the_harmless_one_is_promoted() -> None:
    outcomes = {(each.change, each.all_at_once): each for each in play(5)}
    for bad in CHANGES[:2]:
        found, at_once = outcomes[bad.name, False], outcomes[bad.name, True]
        assert (found.verdict, found.step) == ("roll_back", 1)
        assert found.changed_gpu_h < at_once.changed_gpu_h
    assert outcomes["harmless", False].verdict == "promote"
