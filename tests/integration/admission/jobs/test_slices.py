"""Slices in specifications, as the server checks and keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from admission.jobs.checks import problems_of
from admission.jobs.classes import SchedulingClass
from admission.jobs.resolution import Resolved, requests_of
from fleet import snapshot
from headroom.jobs.reading import convert
from tests.builders.fleet import small_fleet
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
