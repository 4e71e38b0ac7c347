"""The fit of the measured training runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.calibration import fitting, sources
from lab.training.measured import SHAPES
from tests.data_sets import data_set

NAME = "8node_resnet"


@pytest.mark.slow
def test_a_fit_mends_a_level_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "TRIES", 14)
    good = SHAPES[NAME]
    wrong = replace(good, activity=round(0.85 * good.activity, 4))
    found, _ = fitting.fit(data_set(sources.NODE_POWER).parent, NAME, wrong)
    assert abs(found.activity - good.activity) < 0.5 * abs(wrong.activity - good.activity)
    assert (found.period_s, found.eval_every_s) == (good.period_s, good.eval_every_s)
