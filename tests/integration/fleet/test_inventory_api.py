from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from accounts.models import AuditEntry
from accounts.roles import Role
from fleet.api import inventory
from fleet.models import Gpu, Site
from tests.builders.inventory import make_inventory
from tests.integration.fleet.conftest import ClientOf, import_fleet

pytestmark = pytest.mark.django_db

FLEET = make_inventory(gpus=16)


def post(client: Client, verb: str, text: str | bytes, **options: Any) -> Any:
    query = f"?{options['query']}" if "query" in options else ""
    content_type = options.get("content_type", "application/yaml")
    return client.post(f"/api/v1/fleet/{verb}{query}", text, content_type=content_type)


def test_a_plan_shows_the_diff_and_changes_nothing(operator: Client) -> None:
    answer = post(operator, "plan", FLEET)
    assert answer.status_code == 200
    body = answer.json()
    assert body["sites"] == ["site-1"]
    assert body["counts"]["gpus"] == {"created": 16, "changed": 0, "removed": 0}
    assert body["kinds"]["nodes"]["created"] == ["site-1-r0001-n1", "site-1-r0001-n2"]
    assert not Site.objects.exists()


def test_applying_does_what_the_plan_says(operator: Client) -> None:
    planned = post(operator, "plan", FLEET).json()
    assert post(operator, "apply", FLEET).json() == planned
    assert Gpu.objects.count() == 16
    assert post(operator, "plan", FLEET).json()["kinds"] == {}
    assert AuditEntry.objects.get(action="fleet.apply").actor == "a-operator"


def test_changes_show_old_and_new(operator: Client) -> None:
    post(operator, "apply", FLEET)
    changed = post(operator, "plan", FLEET.replace("budget_w: 44000", "budget_w: 1")).json()
    assert changed["kinds"]["racks"]["changed"] == {"site-1/R0001": {"budget_w": [44000.0, 1.0]}}


def test_long_lists_are_cut_off(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.inventory.describe.LISTED", 10)
    gpus = post(operator, "plan", FLEET).json()["kinds"]["gpus"]
    assert len(gpus["created"]) == 10
    assert gpus["truncated"]


def test_pruning_is_asked_for_in_the_query(operator: Client) -> None:
    Site.objects.create(name="other")
    assert "sites" in post(operator, "plan", FLEET).json()["counts"]
    removed = post(operator, "plan", FLEET, query="prune_sites=true").json()["kinds"]["sites"]
    assert removed["removed"] == ["other"]
    assert post(operator, "plan", FLEET, query="prune_sites=perhaps").status_code == 400


def test_the_export_can_be_applied_again(operator: Client, client_of: ClientOf) -> None:
    import_fleet(FLEET)
    answer = client_of(Role.VIEWER).get("/api/v1/fleet/export")
    assert answer["Content-Type"] == "application/yaml"
    assert post(operator, "plan", answer.content).json()["kinds"] == {}


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_only_editors_may_plan_and_apply(verb: str, client_of: ClientOf, client: Client) -> None:
    for role in (Role.VIEWER, Role.ML_USER, Role.RESPONDER):
        assert post(client_of(role), verb, FLEET).status_code == 403
    assert post(client, verb, FLEET).status_code == 401
    assert not Site.objects.exists()


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_problems_come_back_with_field_and_line(verb: str, operator: Client) -> None:
    broken = FLEET.replace("feed_a: feed-a1", "feed_a: x").replace("pool: train", "pool: [1]")
    answer = post(operator, verb, broken)
    assert answer.status_code == 400
    body = answer.json()
    assert body["error"]["code"] == "invalid_inventory"
    assert body["error"]["field"].startswith("sites[0].racks[0].nodes[0].labels")
    assert body["error"]["message"].startswith("line ")
    assert len(body["errors"]) == 2
    assert not Site.objects.exists()


def test_references_are_checked_too(operator: Client) -> None:
    answer = post(operator, "apply", FLEET.replace("feed_a: feed-a1", "feed_a: x"))
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "sites[0].racks[0].feed_a"


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
def test_other_types_of_body_are_refused(content_type: str, operator: Client) -> None:
    assert post(operator, "apply", FLEET, content_type=content_type).status_code == 415


@pytest.mark.parametrize("content_type", ["text/yaml", "application/x-yaml; charset=utf-8"])
def test_yaml_has_several_names(content_type: str, operator: Client) -> None:
    assert post(operator, "plan", FLEET, content_type=content_type).status_code == 200


def test_a_body_that_is_too_long_is_refused(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MAX_BYTES", 100)
    assert post(operator, "apply", FLEET).status_code == 413
    assert not Site.objects.exists()


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a: &a [*a]", b"{"])
def test_what_is_not_yaml_is_a_400(body: bytes, operator: Client) -> None:
    assert post(operator, "apply", body).status_code == 400


def test_a_body_over_djangos_form_limit_is_fine(operator: Client) -> None:
    text = FLEET + "#" * 3_000_000
    assert post(operator, "plan", text).status_code == 200
