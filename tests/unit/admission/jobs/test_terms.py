from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.jobs import classes
from admission.jobs.classes import Defaults, SchedulingClass
from admission.jobs.resolution import may_move, may_restart, terms_of
from headroom.jobs import rules
from headroom.jobs.reading import convert
from headroom.jobs.spec import (
    Level,
    LocalitySpec,
    PhaseSpec,
    Power,
    Response,
    Restart,
    Sensitivity,
    Thermal,
    Throttling,
    Tolerance,
)
from tests.unit.headroom.jobs.specs import make_phase, make_spec

PLAIN = SchedulingClass(name="plain")


def make_class(**defaults: Any) -> SchedulingClass:
    return SchedulingClass(name="some", defaults=Defaults(**defaults))


def phase(**given: Any) -> PhaseSpec:
    return convert(make_spec(make_phase(**given))).phases[0]


def test_what_a_phase_says_comes_before_its_class_and_that_before_what_is_usual() -> None:
    job_class = make_class(restart=Restart(tolerance=Tolerance.FAILURE, max_restarts=7))
    terms = terms_of(phase(restart={"max_restarts": 1}), job_class)
    assert terms.restart.max_restarts == 1
    assert terms.restart.tolerance is Tolerance.FAILURE
    assert terms.restart.backoff_s == 10.0


def test_zero_is_something_that_is_said() -> None:
    job_class = make_class(throttling=Throttling(max_slowdown=0.3))
    assert terms_of(phase(throttling={"max_slowdown": 0}), job_class).throttling.max_slowdown == 0


def test_an_empty_list_is_something_that_is_said() -> None:
    job_class = make_class(thermal=Thermal(cooling=["direct-to-chip"]))
    assert terms_of(phase(thermal={"cooling": []}), job_class).thermal.cooling == []
    assert terms_of(phase(), job_class).thermal.cooling == ["direct-to-chip"]


@pytest.mark.parametrize(
    ("sensitivity", "margin_c"),
    [(Sensitivity.LOW, 0.0), (Sensitivity.NORMAL, 3.0), (Sensitivity.HIGH, 8.0)],
)
def test_the_thermal_margin_follows_from_the_sensitivity(
    sensitivity: Sensitivity, margin_c: float
) -> None:
    assert terms_of(phase(thermal={"sensitivity": sensitivity}), PLAIN).thermal.margin_c == margin_c
    given = phase(thermal={"sensitivity": sensitivity, "margin_c": 5})
    assert terms_of(given, PLAIN).thermal.margin_c == 5


def test_a_slice_takes_no_cap_from_its_class() -> None:
    job_class = make_class(
        power=Power(lowest_cap_w=300),
        throttling=Throttling(responses=[Response.CONTINUE, Response.PAUSE], max_slowdown=0.2),
    )
    terms = terms_of(phase(gang={"gpus": 1, "slice": "1g.10gb"}), job_class)
    assert terms.power.lowest_cap_w is None
    assert terms.throttling.responses == [Response.PAUSE]
    assert terms.throttling.max_slowdown == 0.0


def test_the_cap_of_a_class_is_never_above_the_peak_of_a_phase() -> None:
    job_class = make_class(power=Power(lowest_cap_w=300))
    assert terms_of(phase(power={"expected_peak_w": 250}), job_class).power.lowest_cap_w == 250
    assert terms_of(phase(power={"expected_peak_w": 700}), job_class).power.lowest_cap_w == 300


def test_what_a_class_prefers_is_never_looser_than_what_a_phase_requires() -> None:
    job_class = make_class(locality=LocalitySpec(required=Level.SITE, preferred=Level.ZONE))
    terms = terms_of(phase(locality={"required": "rack"}), job_class)
    assert (terms.locality.required, terms.locality.preferred) == (Level.RACK, Level.RACK)
    assert terms_of(phase(), job_class).locality.preferred is Level.ZONE


@pytest.mark.parametrize(
    ("said", "thresholds"),
    [
        ({"pause_below": 0.4}, (0.4, 0.4)),
        ({"shrink_below": 0.05}, (0.05, 0.05)),
        ({}, (0.2, 0.1)),
    ],
)
def test_thresholds_stay_in_order(said: dict[str, float], thresholds: tuple[float, float]) -> None:
    job_class = make_class(throttling=Throttling(shrink_below=0.2, pause_below=0.1))
    found = terms_of(phase(throttling=said), job_class).throttling
    assert (found.shrink_below, found.pause_below) == thresholds


def test_what_may_restart_or_move_is_known() -> None:
    assert not may_restart(terms_of(phase(), PLAIN), PLAIN)
    assert may_restart(terms_of(phase(restart={"tolerance": "failure"}), PLAIN), PLAIN)
    preemptible = SchedulingClass(name="some", preemptible=True)
    assert may_restart(terms_of(phase(), preemptible), preemptible)
    assert may_move(terms_of(phase(throttling={"responses": ["migrate"]}), PLAIN))
    assert not may_move(terms_of(phase(throttling={"responses": [Response.PAUSE]}), PLAIN))


_SECTIONS = st.fixed_dictionaries(
    {},
    optional={
        "power": st.fixed_dictionaries(
            {}, optional={"expected_peak_w": st.floats(1, 900), "burst_allowed": st.booleans()}
        ),
        "locality": st.fixed_dictionaries({}, optional={"required": st.sampled_from(list(Level))}),
        "throttling": st.one_of(
            st.fixed_dictionaries({"pause_below": st.floats(0, 1)}),
            st.fixed_dictionaries({"shrink_below": st.floats(0, 1)}),
        ),
    },
)


@given(_SECTIONS, st.sampled_from(list(classes.built_in().values())))
def test_filled_terms_keep_to_the_rules_and_stay_as_they_are(
    sections: dict[str, Any], job_class: SchedulingClass
) -> None:
    terms = terms_of(phase(**sections), job_class)
    assert rules.problems_of_phase(terms, "phase") == []
    assert terms_of(terms, job_class) == terms
    for name, section in sections.items():
        told = msgspec.to_builtins(getattr(terms, name))
        assert {key: told[key] for key in section} == section
