"""A project with a member, and a small fleet for jobs to name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from accounts.models import User
from accounts.roles import Role
from admission.jobs import submission
from admission.jobs.models import Job, Phase, Project
from fleet import snapshot
from headroom.jobs.reading import convert
from telemetry import stream
from tests.builders.accounts import bearer, make_token, make_user
from tests.builders.fleet import SmallFleet, small_fleet
from tests.unit.headroom.jobs.specs import make_phase, make_spec


@pytest.fixture(autouse=True)
def clean_stores(db: None, clean_stores: None) -> None:
    """Each test begins with nothing but its own database."""


@pytest.fixture
def fleet(clean_stores: None) -> SmallFleet:
    made = small_fleet(sites=("bergen", "oslo"), rows=("A",), racks_per_row=1, nodes_per_rack=1)
    snapshot.invalidate()
    return made


@pytest.fixture
def ada(db: None) -> User:
    """Of the project vision."""
    user = make_user(Role.ML_USER, username="ada")
    make_project("vision", user)
    return user


@pytest.fixture
def bob(db: None) -> User:
    """Of another project."""
    user = make_user(Role.ML_USER, username="bob")
    make_project("speech", user)
    return user


@pytest.fixture
def operator(db: None) -> User:
    return make_user(Role.OPERATOR, username="olga")


def make_project(name: str, *members: User, **given: Any) -> Project:
    project = Project.objects.create(name=name, **given)
    project.members.set(members)
    return project


def client_as(user: User) -> Client:
    return Client(headers=bearer(make_token(user)))


def now() -> datetime:
    return datetime.now(UTC)


def submit(user: User, *phases: dict[str, Any], **spec: Any) -> Job:
    """Have ``user`` submit a job of experiments."""
    return submission.submit(convert(make_spec(*phases, **spec)), user, now=now()).job


def states(job: Job) -> dict[str, str]:
    """Return the states of a job's phases, by name, and its own by ""."""
    found = dict(Phase.objects.filter(job=job).values_list("name", "state"))
    return {"": Job.objects.get(pk=job.pk).state, **found}


def chain(*names: str) -> list[dict[str, Any]]:
    """Return phases each of which needs the one before."""
    return [
        make_phase(name, needs=[names[place - 1]] if place else [])
        for place, name in enumerate(names)
    ]


@pytest.fixture
def committed(transactional_db: None) -> Iterator[User]:
    """A member of vision whom other connections see."""
    stream.connection().flushall()
    snapshot.invalidate()
    user = make_user(Role.ML_USER, username="ada")
    make_project("vision", user)
    yield user
    snapshot.invalidate()
