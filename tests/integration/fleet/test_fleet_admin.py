from __future__ import annotations

import pytest
from django.apps import apps
from django.db import connection, models
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import AuditEntry, User
from accounts.roles import Role
from fleet.models import InventoryGeneration, Link, Node, Rack, Site, StorageEndpoint
from tests.builders.inventory import make_inventory
from tests.integration.fleet.conftest import import_fleet

pytestmark = pytest.mark.django_db

MODELS = [
    model for model in apps.get_app_config("fleet").get_models() if model is not InventoryGeneration
]


@pytest.fixture
def admin(client: Client) -> Client:
    client.force_login(User.objects.create_user("boss", role=Role.ADMIN))
    return client


def url(model: type[models.Model], page: str, *args: object) -> str:
    return reverse(f"admin:fleet_{model._meta.model_name}_{page}", args=args)


@pytest.mark.parametrize("model", MODELS)
def test_lists_take_as_many_queries_for_many_rows_as_for_few(
    model: type[models.Model], admin: Client
) -> None:
    def queries(gpus: int) -> int:
        import_fleet(make_inventory(gpus=gpus))
        Link.objects.update(peer_site=Site.objects.get())
        with CaptureQueriesContext(connection) as captured:
            answer = admin.get(url(model, "changelist"))
        assert answer.status_code == 200
        return len(captured)

    assert queries(8) == queries(400)


@pytest.mark.parametrize("model", MODELS)
def test_forms_do_not_list_the_fleet(model: type[models.Model], admin: Client) -> None:
    import_fleet(make_inventory(gpus=800))
    row = model._default_manager.first()
    assert row is not None
    answer = admin.get(url(model, "change", row.pk))
    assert answer.status_code == 200
    # With a choice for each rack or node it would be far longer.
    assert answer.content.count(b"<option") < 20


def test_a_node_whose_labels_are_left_empty_has_none(admin: Client) -> None:
    import_fleet(make_inventory(gpus=8))
    node = Node.objects.get()
    Node.objects.update(labels={"pool": "train"})
    form = {"name": node.name, "rack": node.rack_id, "position_u": 1, "height_u": 8, "labels": ""}
    assert admin.post(url(Node, "change", node.pk), form).status_code == 302
    node.refresh_from_db()
    assert node.labels == {}


def test_a_save_is_checked_and_audited(admin: Client) -> None:
    site = Site.objects.create(name="oslo")
    form = {"site": site.pk, "name": "A01", "row": "", "position": 0, "height_u": 48}
    refused = admin.post(url(Rack, "add"), {**form, "budget_w": -1})
    assert refused.status_code == 200
    assert not Rack.objects.exists()
    assert admin.post(url(Rack, "add"), {**form, "budget_w": 1}).status_code == 302
    entry = AuditEntry.objects.get(action="fleet.rack.create")
    assert (entry.actor, entry.target) == ("boss", "oslo/A01")


def test_deletions_are_audited(admin: Client) -> None:
    site = Site.objects.create(name="oslo")
    one, two = (StorageEndpoint.objects.create(site=site, name=name) for name in "ab")
    admin.post(url(StorageEndpoint, "delete", one.pk), {"post": "yes"})
    chosen = {"action": "delete_selected", "_selected_action": [two.pk], "post": "yes"}
    admin.post(url(StorageEndpoint, "changelist"), chosen)
    assert not StorageEndpoint.objects.exists()
    entries = AuditEntry.objects.filter(action="fleet.storage_endpoint.delete")
    assert {entry.target for entry in entries} == {"oslo/a", "oslo/b"}


def test_relations_are_found_by_typing(admin: Client) -> None:
    import_fleet(make_inventory(gpus=16))
    query = {"app_label": "fleet", "model_name": "gpu", "field_name": "node", "term": "n2"}
    found = admin.get(reverse("admin:autocomplete"), query).json()["results"]
    node = Node.objects.get(name="site-1-r0001-n2")
    assert found == [{"id": str(node.pk), "text": node.name}]


def test_viewers_do_not_get_in(client: Client) -> None:
    client.force_login(User.objects.create_user("guest", role=Role.VIEWER))
    assert client.get(url(Site, "changelist")).status_code == 302
