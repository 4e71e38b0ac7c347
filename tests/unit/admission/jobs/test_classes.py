from __future__ import annotations

import pytest

from admission.jobs import classes
from admission.jobs.classes import SchedulingClass
from admission.jobs.resolution import terms_of
from headroom.documents import DocumentError
from headroom.jobs import rules
from headroom.jobs.reading import convert
from tests.unit.headroom.jobs.specs import make_phase, make_spec

CLASSES = classes.built_in()


def test_the_five_intents_are_built_in_and_two_for_adopted_jobs() -> None:
    assert list(CLASSES) == [
        "high-density-training",
        "low-power-experimentation",
        "cross-site-validation",
        "checkpoint-heavy",
        "latency-sensitive-inference-build",
        "adopted",
        "adopted-once",
    ]
    assert all(each.description for each in CLASSES.values())


@pytest.mark.parametrize("name", CLASSES)
def test_a_built_in_class_can_be_written_out_and_read_again(name: str) -> None:
    assert classes.parse(classes.built_in_text(name)) == CLASSES[name]


@pytest.mark.parametrize("name", CLASSES)
def test_what_a_built_in_class_gives_keeps_to_the_rules(name: str) -> None:
    spec = convert(make_spec(make_phase(power={"expected_peak_w": 250})))
    terms = terms_of(spec.phases[0], CLASSES[name])
    assert rules.problems_of_phase(terms, "phase") == []


def test_what_people_wait_for_goes_first_and_trials_go_last() -> None:
    order = sorted(CLASSES.values(), key=lambda each: each.priority)
    assert order[0].name == "low-power-experimentation"
    assert order[-1].name == "latency-sensitive-inference-build"
    assert [each.name for each in CLASSES.values() if each.preempts] == [order[-1].name]


@pytest.mark.parametrize(
    ("text", "field", "word"),
    [
        ("name: x\nmax_gpus: -1\n", "max_gpus", ">= 0"),
        ("name: X\n", "name", "small letters"),
        ("name: x\nprio: 1\n", "prio", "unknown"),
        ("name: x\ndefaults: {power: {lowest_cap_w: -5}}\n", "defaults.power.lowest_cap_w", "> 0"),
        ("name: x\ndefaults: {gang: {gpus: 8}}\n", "defaults.gang", "unknown"),
        ("a: &a b\n", "", "anchors"),
        ("x" * 20_001, "", "20000"),
    ],
)
def test_a_bad_class_is_refused_with_its_field(text: str, field: str, word: str) -> None:
    with pytest.raises(DocumentError) as caught:
        classes.parse(text)
    (problem,) = caught.value.problems
    assert problem.field == field
    assert word in problem.message


def test_a_class_has_no_limit_that_it_does_not_name() -> None:
    found = classes.parse("name: x")
    assert found == SchedulingClass(name="x")
    assert (found.max_running, found.max_gpus, found.max_walltime_s) == (None, None, None)
