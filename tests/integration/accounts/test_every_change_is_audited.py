"""Every model that can be edited through the admin site or the API: a change leaves an entry.

The models are found, not listed: one that is new fails here until it has an example, and until its
change is in the audit log with what was before and what is after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.test import Client, RequestFactory
from django.urls import URLPattern, URLResolver, get_resolver

from accounts.models import AuditEntry, GroupRole, Identity, User
from accounts.roles import Role
from admission.jobs.models import ClassVersion, Project, ProjectGroup
from admission.slos.models import Slo
from fleet.models import (
    CoolingZone,
    Gpu,
    HardwareModel,
    Link,
    Meter,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)
from policies.incidents.models import NotificationChannel
from telemetry.models import Agent
from tests.builders.accounts import api_client, client_of, make_user
from tests.builders.agents import make_agent
from tests.builders.inventory import make_inventory
from tests.integration.fleet.conftest import import_fleet

pytestmark = pytest.mark.django_db


@dataclass(frozen=True)
class Example:
    """How a model is edited: a field and its new value, and what else has to be given."""

    field: str
    value: Any
    make: Callable[[], Model] | None = None


def _channel() -> NotificationChannel:
    target = "https://example.com/hook"
    return NotificationChannel.objects.create(name="ops", kind="webhook", target=target)


def _identity() -> Identity:
    return Identity.objects.create(user=make_user(), issuer="https://id.example.com", subject="1")


def _project_group() -> ProjectGroup:
    project = Project.objects.create(name="vision")
    return ProjectGroup.objects.create(group="vision-team", project=project)


EXAMPLES: dict[type[Model], Example] = {
    Site: Example("budget_w", 123_456.0),
    PowerDomain: Example("capacity_w", 654_321.0),
    CoolingZone: Example("capacity_w", 456_789.0),
    StorageEndpoint: Example("capacity_bytes_per_s", 5e9),
    Rack: Example("row", "Z"),
    Node: Example("switch_domain", "elsewhere"),
    Gpu: Example("uuid", "GPU-of-another-name"),
    Link: Example("latency_s", 0.25),
    Meter: Example("name", "of-another-name"),
    HardwareModel: Example("vendor", "Another"),
    Agent: Example("any_job", True, lambda: make_agent("ada")[0]),
    User: Example("email", "ada@example.com", lambda: make_user(username="ada")),
    GroupRole: Example(
        "role", "operator", lambda: GroupRole.objects.create(group="ops", role=Role.VIEWER)
    ),
    Identity: Example("subject", "2", _identity),
    ProjectGroup: Example("group", "another-team", _project_group),
    NotificationChannel: Example("min_severity", "critical", _channel),
    Project: Example("gpu_quota", 8, lambda: Project.objects.create(name="vision")),
}
#: What is edited by a text that makes a new version; their own tests look at its entry.
VERSIONED = {ClassVersion, Slo}


#: Of what comes before a change.
PREPARATION = ("login", "fleet.apply", "token.create", "agent.enroll")


def _routes(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for each in resolver.url_patterns:
        route = prefix + str(each.pattern)
        if isinstance(each, URLResolver):
            yield from _routes(each, route)
        elif isinstance(each, URLPattern):
            yield route, each.callback


def _edited_by_api() -> dict[type[Model], str]:
    """Return the models with a route that takes PUT or PATCH, and that route."""
    found = {}
    for route, callback in _routes(get_resolver()):
        actions = getattr(callback, "actions", None) or {}
        queryset = getattr(getattr(callback, "cls", None), "queryset", None)
        if {"put", "patch"} & set(actions) and queryset is not None and "format" not in route:
            found[queryset.model] = route
    return found


def _edited_by_admin() -> list[type[Model]]:
    request = RequestFactory().get("/")
    request.user = User(role=Role.ADMIN, is_active=True)
    return [
        model for model, site in admin.site._registry.items() if site.has_change_permission(request)
    ]


BY_API = _edited_by_api()
BY_ADMIN = _edited_by_admin()


def test_the_models_are_found() -> None:
    assert {Rack, NotificationChannel} <= set(BY_API)
    assert {Rack, User} <= set(BY_ADMIN)
    assert {*BY_API, *BY_ADMIN} - set(EXAMPLES) - VERSIONED == set()


def _row(model: type[Model]) -> Model:
    if (make := EXAMPLES[model].make) is not None:
        return make()
    import_fleet(make_inventory(gpus=8))
    row = model._default_manager.first()
    assert row is not None
    return row


def _check_entry(row: Model, example: Example, before: Any) -> None:
    (entry,) = AuditEntry.objects.exclude(action__in=PREPARATION)
    assert entry.detail["before"][example.field] == before
    assert entry.detail["after"][example.field] == example.value
    assert set(entry.detail["before"]) <= {example.field, "failures", "not_before", "last_error"}


@pytest.mark.parametrize("model", [each for each in BY_API if each in EXAMPLES])
def test_a_change_through_the_api_is_noted(model: type[Model]) -> None:
    row, example = _row(model), EXAMPLES[model]
    before = getattr(row, example.field)
    key = getattr(row, "name", row.pk) if "<name>" in BY_API[model] else row.pk
    path = "/" + BY_API[model].replace("^", "").split("(?P")[0] + f"{key}"
    client = api_client(Role.ADMIN)
    answer = client.patch(path, {example.field: example.value}, content_type="application/json")
    assert answer.status_code == 200, answer.content
    _check_entry(row, example, before)


@pytest.mark.parametrize("model", BY_ADMIN)
def test_a_change_on_the_admin_site_is_noted(model: type[Model]) -> None:
    row, example = _row(model), EXAMPLES[model]
    before = getattr(row, example.field)
    client = client_of(Role.ADMIN)
    path = f"/admin/{model._meta.app_label}/{model._meta.model_name}/{row.pk}/change/"
    answer = client.post(path, _form(client, path) | {example.field: example.value})
    assert answer.status_code == 302, answer.context["adminform"].form.errors
    _check_entry(row, example, before)


def _form(client: Client, path: str) -> dict[str, Any]:
    """Return what the form of a page has in it."""
    form = client.get(path).context["adminform"].form
    given = {name: form[name].value() for name in form.fields}
    return {name: value for name, value in given.items() if value is not None}


def test_secrets_are_masked() -> None:
    user = make_user(username="ada")
    client = client_of(Role.ADMIN)
    path = f"/admin/accounts/user/{user.pk}/change/"
    assert client.post(path, _form(client, path) | {"email": "ada@example.com"}).status_code == 302
    channel = api_client(Role.ADMIN).post(
        "/api/v1/notification-channels",
        {"name": "ops", "kind": "webhook", "target": "https://example.com/s3cret",
         "secret": "hunter2hunter2"},
        content_type="application/json",
    )  # fmt: skip
    assert channel.status_code == 201, channel.content
    told = "".join(str(entry.detail) for entry in AuditEntry.objects.all())
    assert "(secret)" in told
    for secret in ("hunter2", "s3cret", user.password):
        assert secret not in told
