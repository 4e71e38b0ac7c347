from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.core.request import Locality, Request
from admission.jobs.classes import SchedulingClass, built_in
from admission.jobs.models import Phase
from admission.jobs.resolution import LOCALITIES, Resolved, request_of, requests_of, stored
from headroom.jobs.reading import convert
from headroom.jobs.spec import Level
from tests.unit.headroom.jobs.specs import make_phase, make_spec

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def make_requests(*phases: dict[str, Any], job_class: str = "x", **spec: Any) -> list[Request]:
    found = built_in().get(job_class, SchedulingClass(name="x", priority=10))
    given = convert(make_spec(*phases, **{"class": found.name, **spec}))
    return requests_of(Resolved(given, found), name="job-1", submitted_at=AT)


def test_a_phase_becomes_what_the_solver_is_asked() -> None:
    train = make_phase(
        "train",
        gang={"gpus": 64, "min_gpus": 32, "gpus_per_node": 8, "models": ["H100"]},
        power={"expected_peak_w": 690, "lowest_cap_w": 450},
        thermal={"margin_c": 4, "cooling": ["direct-to-chip"]},
        locality={
            "required": "zone",
            "preferred": "rack",
            "sites": ["oslo"],
            "data_site": "oslo",
            "storage": "oslo/scratch",
            "storage_bytes_per_s": 1e9,
        },
        network={"cross_site_bits_per_s": 1e9, "collective_bytes_per_step": 1e8, "step_s": 0.5},
        checkpoint={"interval_s": 600, "cross_site": "required"},
        throttling={"max_slowdown": 0.1},
        walltime_s=7200,
    )
    (request,) = make_requests(train, priority=-3, begin_by="2026-05-01T13:00:00Z")
    assert request == Request(
        key="job-1/train",
        job="job-1",
        phase="train",
        project="vision",
        job_class="x",
        priority=7,
        submitted_at=AT.timestamp(),
        deadline_at=AT.timestamp() + 3600,
        gpus=64,
        min_gpus=32,
        gpus_per_node=8,
        models=("H100",),
        cooling=("direct-to-chip",),
        sites=("oslo",),
        gpu_peak_w=690.0,
        lowest_cap_w=450.0,
        max_slowdown=0.1,
        thermal_margin_c=4.0,
        required=Locality.ZONE,
        preferred=Locality.RACK,
        cross_site_bits_per_s=1e9,
        data_site="oslo",
        storage="oslo/scratch",
        storage_bytes_per_s=1e9,
        collective_bytes_per_step=1e8,
        step_s=0.5,
        walltime_s=7200.0,
        checkpoint_interval_s=600.0,
        cross_site_checkpoint=True,
    )


def test_each_phase_has_a_request_of_its_own() -> None:
    found = make_requests(make_phase("a"), make_phase("b", gang={"gpus": 2}))
    assert [(each.key, each.gpus) for each in found] == [("job-1/a", 8), ("job-1/b", 2)]


def test_a_class_adds_its_priority_and_says_whether_others_may_stop_its_jobs() -> None:
    (request,) = make_requests(job_class="high-density-training", priority=-4)
    assert (request.priority, request.preemptible) == (6, True)
    assert (request.required, request.preferred) == (Locality.SITE, Locality.RACK)


def test_a_gang_that_is_not_elastic_takes_no_fewer() -> None:
    (request,) = make_requests()
    assert (request.gpus, request.min_gpus) == (8, 8)


def test_room_for_bursts_is_what_a_model_is_rated_for() -> None:
    steady = {"expected_peak_w": 600}
    assert make_requests(make_phase(power=steady))[0].gpu_peak_w == 600
    assert make_requests(make_phase(power={**steady, "burst_allowed": True}))[0].gpu_peak_w is None


@pytest.mark.parametrize("level", list(Level))
def test_levels_have_the_names_of_localities(level: Level) -> None:
    assert LOCALITIES[level].name.lower() == level.value


_VALUES = st.builds(
    Request,
    key=st.just("a/b"), job=st.just("a"), phase=st.just("b"), project=st.just("p"),
    job_class=st.just("c"), priority=st.integers(-100, 100), submitted_at=st.floats(0, 1e10),
    deadline_at=st.none() | st.floats(0, 1e10), gpus=st.integers(1, 100),
    min_gpus=st.integers(1, 100), gpus_per_node=st.none() | st.integers(1, 8),
    models=st.lists(st.text(max_size=5)).map(tuple), sites=st.just(("oslo",)),
    lowest_cap_w=st.none() | st.floats(1, 900), max_slowdown=st.floats(0, 1),
    required=st.sampled_from(Locality), preferred=st.sampled_from(Locality),
    balanced=st.booleans(), walltime_s=st.floats(1, 1e6), preemptible=st.booleans(),
    checkpoint_interval_s=st.none() | st.floats(1, 1e5),
)  # fmt: skip


@given(_VALUES)
def test_a_request_is_kept_as_it_is(request: Request) -> None:
    assert request_of(Phase(request=json.loads(json.dumps(stored(request))))) == request


def test_what_is_as_by_default_is_not_kept() -> None:
    (request,) = make_requests()
    kept = stored(request)
    assert "balanced" not in kept
    assert "storage" not in kept
    assert len(kept) < len(dataclasses.fields(Request)) / 2
