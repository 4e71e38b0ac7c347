"""Slices in specifications, as the server checks and keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from admission.jobs import projects
from admission.jobs.checks import problems_of
from admission.jobs.classes import SchedulingClass
from admission.jobs.models import Project
from admission.jobs.resolution import Resolved, requests_of
from fleet import snapshot
from headroom.jobs.reading import convert
from tests.builders.fleet import small_fleet
from tests.builders.jobs import make_attempt, make_job
from tests.unit.headroom.jobs.specs import make_phase, make_spec

pytestmark = pytest.mark.django_db

MODEL = "NVIDIA H100 80GB HBM3"


def resolved(**gang: Any) -> Resolved:
    spec = convert(make_spec(make_phase(gang={"gpus": 1, **gang})))
    return Resolved(spec, SchedulingClass(name="plain"))


@pytest.fixture(autouse=True)
def fleet(db: None) -> None:
    made = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=1)
    model = made.gpu("bergen-a01-n1").model
    model.name = MODEL
    model.save()


@pytest.mark.parametrize(
    ("gang", "code", "hint"),
    [
        ({"slice": "1g.10g"}, "unknown_slice", "do you mean '1g.10gb'?"),
        ({"slice": "half"}, "unknown_slice", "other fractions of a GPU are not handed out"),
        ({"slice": "1g.18gb", "models": [MODEL]}, "no_such_slice", "1g.10gb"),
        ({"slice": "1g.10gb", "models": ["host"]}, "no_such_slice", "none"),
    ],
)
def test_a_slice_that_no_gpu_has_is_refused_with_the_field_and_a_way_out(
    gang: dict[str, Any], code: str, hint: str
) -> None:
    (problem,) = problems_of(resolved(**gang), snapshot.fresh(), is_operator=False)
    assert (problem.code, problem.field) == (code, "phases[0].gang.slice")
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("gang", "share"),
    [
        ({}, 1.0),
        ({"slice": "1g.10gb", "models": [MODEL]}, 1 / 7),
        ({"slice": "3g.40gb"}, 1 / 2),
        # Of a card with 40 GB it is more.
        ({"slice": "1g.10gb"}, 1 / 4),
    ],
)
def test_a_slice_counts_by_its_share(gang: dict[str, Any], share: float) -> None:
    (request,) = requests_of(resolved(**gang), name="j", submitted_at=timezone.now())
    assert request.counted(1) == pytest.approx(share)


def test_what_a_project_holds_is_counted_by_shares() -> None:
    node = "bergen-a01-n1"
    for number in range(3):
        job = make_job(f"j{number}", state="running")
        phase = job.phases.get()
        phase.request = {**phase.request, "slice": "1g.10gb", "gpu_share": 1 / 7}
        phase.save()
        make_attempt(phase, {node: [0]}, state="running")
    make_attempt(make_job("whole", state="running").phases.get(), {node: [1, 2]}, state="running")
    project = Project.objects.get(name="vision")
    assert projects.uses([project.pk])[project.pk].gpus_held == pytest.approx(2 + 3 / 7, abs=1e-3)
