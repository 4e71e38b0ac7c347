from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from admission.core.cycle.change import Change
from admission.core.request import Locality
from admission.jobs.amending import CHANGES, amended
from headroom.jobs.reading import SpecError, convert
from headroom.jobs.spec import Level
from tests.unit.headroom.jobs.specs import make_phase, make_spec

SPEC = make_spec(make_phase("prepare"), make_phase("train", gang={"gpus": 64, "min_gpus": 32}))


@pytest.mark.parametrize(
    ("change", "section", "expected"),
    [
        (Change(lowest_cap_w=550.0, max_slowdown=0.04), "power", {"lowest_cap_w": 550.0}),
        (Change(gpus=16), "gang", {"gpus": 16, "min_gpus": 16}),
        (Change(gpus=48), "gang", {"gpus": 48, "min_gpus": 32}),
        (
            Change(walltime_s=1800.0, checkpoint_interval_s=300.0),
            "checkpoint",
            {"interval_s": 300.0},
        ),
        (Change(cross_site="optional"), "checkpoint", {"cross_site": "optional"}),
        (Change(sites=("oslo", "rome")), "locality", {"sites": ["oslo", "rome"]}),
        (Change(locality=Locality.SWITCH_DOMAIN), "locality", {"required": "switch_domain"}),
    ],
)
def test_a_counterfactual_is_written_into_its_phase_alone(
    change: Change, section: str, expected: dict[str, Any]
) -> None:
    spec, told = amended(SPEC, "train", change.as_json())
    assert spec["phases"][1][section] == expected
    assert spec["phases"][0] == SPEC["phases"][0]
    assert told
    convert(spec)


def test_a_walltime_is_changed_of_the_phase() -> None:
    spec, told = amended(SPEC, "train", Change(walltime_s=1800.0).as_json())
    assert [each["walltime_s"] for each in spec["phases"]] == [
        SPEC["phases"][0]["walltime_s"], 1800.0
    ]  # fmt: skip
    assert told == "walltime s 1800"


def test_what_is_amended_is_a_copy() -> None:
    before = make_spec(*SPEC["phases"])
    amended(SPEC, "train", {"gpus": 8})
    assert before == SPEC


def test_a_class_is_changed_of_the_whole_job() -> None:
    spec, told = amended(SPEC, "train", Change(job_class="checkpoint-heavy").as_json())
    assert spec["class"] == "checkpoint-heavy"
    assert told == "job class checkpoint-heavy"


def test_a_change_is_told_in_words() -> None:
    change = {"lowest_cap_w": 550.0, "max_slowdown": 0.04, "sites": ["oslo", "rome"]}
    _, told = amended(SPEC, "train", change)
    assert told == "lowest cap w 550, max slowdown 0.04, sites oslo, rome"


@pytest.mark.parametrize(
    ("change", "field"), [({"env": {}}, "env"), ({}, ""), ({"gpus": None}, "")]
)
def test_nothing_else_can_be_changed(change: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        amended(SPEC, "train", change)
    assert caught.value.problems[0].field == field


@pytest.mark.parametrize("change", [{"gpus": 8}, {"walltime_s": 60.0, "priority": -1}])
def test_what_an_adopted_job_was_submitted_with_is_changed_in_its_scheduler(
    change: dict[str, Any],
) -> None:
    with pytest.raises(SpecError) as caught:
        amended({**SPEC, "scheduler": "hall-k"}, "train", change)
    (problem,) = caught.value.problems
    assert (problem.code, problem.field) == ("of_a_scheduler", next(iter(change)))
    assert "hall-k" in problem.hint


def test_what_headroom_carries_out_itself_is_changed_of_an_adopted_job() -> None:
    change = {"lowest_cap_w": 550.0, "sites": ["oslo"], "priority": -1}
    spec, _ = amended({**SPEC, "scheduler": "hall-k"}, "train", change)
    assert spec["phases"][1]["power"]["lowest_cap_w"] == 550.0


def test_every_counterfactual_can_be_applied() -> None:
    """A new kind of change needs a place in the specification."""
    assert {each.name for each in dataclasses.fields(Change)} - {"begin_at"} <= set(CHANGES)
    assert {level.name.lower() for level in Locality} == set(Level)
