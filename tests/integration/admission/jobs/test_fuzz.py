"""Whatever is submitted: a job, or a refusal with its path; no 500, and nothing half."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import schemathesis
import yaml
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.test import Client
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case

from accounts.models import User
from admission.jobs.models import Job
from admission.jobs.models import Phase as PhaseRow
from config.wsgi import application
from headroom.jobs.spec import JobSpec
from tests.builders.accounts import bearer, make_token
from tests.builders.fleet import SmallFleet
from tests.integration.admission.jobs.conftest import client_as
from tests.unit.headroom.jobs.specs import make_spec

pytestmark = pytest.mark.django_db
URL = "/api/v1/jobs"

#: All examples of a test share a database.
shared = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
    ],
    phases=[Phase.explicit, Phase.generate],
)


@pytest.fixture
def client(ada: User, fleet: SmallFleet) -> Client:
    return client_as(ada)


def check(answer: Any) -> None:
    """See that a submission was taken whole, or refused with all that there is to say."""
    found = answer.json()
    if answer.status_code == 201:
        job = Job.objects.get(name=found["name"])
        assert PhaseRow.objects.filter(job=job).count() == len(job.spec["phases"])
        return
    assert answer.status_code == 400, answer.content
    for each in found.get("errors", [found["error"]]):
        assert each["code"]
        assert each["message"]
        assert each["field"] or each["code"] == "malformed_body"


_JSON = "application/json"
_TYPES, _SCHEMAS = msgspec.json.schema_components(
    (JobSpec,), ref_template="#/components/schemas/{name}"
)
described = schemathesis.openapi.from_dict({
    "openapi": "3.1.0",
    "info": {"title": "Jobs", "version": "1"},
    "paths": {
        URL: {
            "post": {
                "requestBody": {"required": True, "content": {_JSON: {"schema": _TYPES[0]}}},
                "responses": {"201": {"description": ""}, "400": {"description": ""}},
            }
        }
    },
    "components": {"schemas": _SCHEMAS},
})  # fmt: skip
described.app = application
# Every bound of every field by itself takes longer than all else here, and finds no more.
described.config.phases.coverage.enabled = False


@pytest.fixture
def one_connection() -> Iterator[None]:
    """Have requests end without closing the connection, whose transaction is the test's."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.mark.slow
@described.parametrize()
@shared
def test_what_the_schema_takes_is_taken_or_refused_by_a_rule(
    case: Case[Any], ada: User, fleet: SmallFleet, one_connection: None
) -> None:
    if isinstance(case.body, dict):  # names that there are, and none that is taken
        case.body.pop("name", None)
        case.body |= {"project": "vision", "class": "low-power-experimentation"}
    check(case.call(headers=bearer(make_token(ada))))


_JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=5,
)
_PLACES = st.sampled_from(
    ["project", "class", "name", "priority", "begin_by", "labels", "phases", "version", "x"]
)


@shared
@given(_PLACES, _JUNK, st.booleans())
def test_junk_in_any_place_is_refused_with_its_path(
    client: Client, place: str, junk: Any, as_yaml: bool
) -> None:
    spec = make_spec(**{place: junk})
    if as_yaml:
        body = yaml.safe_dump(spec, allow_unicode=True).encode("utf-8", "replace")
        check(client.post(URL, body, content_type="application/yaml"))
    else:
        check(client.post(URL, json.dumps(spec), content_type="application/json"))
