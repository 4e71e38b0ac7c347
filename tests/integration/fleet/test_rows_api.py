from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry
from accounts.roles import Role
from fleet.models import Gpu, HardwareModel, Link, Node, PowerDomain, Rack, Site
from tests.builders.inventory import make_inventory
from tests.integration.fleet.conftest import ClientOf, import_fleet

pytestmark = pytest.mark.django_db

RESOURCES = [
    "sites",
    "power-domains",
    "cooling-zones",
    "storage-endpoints",
    "racks",
    "nodes",
    "gpus",
    "links",
    "meters",
    "hardware-models",
]


@pytest.fixture
def fleet() -> None:
    import_fleet(make_inventory(gpus=96, sites=2))


def send(client: Client, method: str, path: str, **body: Any) -> tuple[int, Any]:
    answer = getattr(client, method)(
        f"/api/v1/{path}", data=body or None, content_type="application/json"
    )
    return answer.status_code, answer.json() if answer.content else None


def get(client: Client, path: str, **query: Any) -> Any:
    answer = client.get(f"/api/v1/{path}", query)
    assert answer.status_code == 200, answer.content
    return answer.json()


def error_of(answer: tuple[int, Any], status: int = 400) -> tuple[str, str]:
    assert answer[0] == status, answer
    return answer[1]["error"]["field"], answer[1]["error"]["message"]


@pytest.mark.parametrize("resource", RESOURCES)
def test_viewers_read_and_do_not_write(resource: str, client_of: ClientOf, fleet: None) -> None:
    viewer = client_of(Role.VIEWER)
    first = get(viewer, resource)["results"][0]
    assert get(viewer, f"{resource}/{first['id']}") == first
    for method, path in (
        ("post", resource),
        ("patch", f"{resource}/{first['id']}"),
        ("put", f"{resource}/{first['id']}"),
        ("delete", f"{resource}/{first['id']}"),
    ):
        assert send(viewer, method, path, name="x")[0] == 403


@pytest.mark.parametrize("resource", RESOURCES)
def test_strangers_see_nothing(resource: str, client: Client) -> None:
    assert client.get(f"/api/v1/{resource}").status_code == 401


@pytest.mark.parametrize("resource", RESOURCES)
def test_a_list_takes_as_many_queries_for_many_rows_as_for_one(
    resource: str, operator: Client, fleet: None
) -> None:
    def queries(page_size: int) -> int:
        with CaptureQueriesContext(connection) as captured:
            get(operator, resource, page_size=page_size)
        return len(captured)

    # One for the token and one for the rows.
    assert queries(1) == queries(100) == 2


@pytest.mark.parametrize("resource", RESOURCES)
def test_every_row_can_be_written_back_as_it_was_read(
    resource: str, operator: Client, fleet: None
) -> None:
    row = get(operator, resource)["results"][0]
    status, again = send(operator, "put", f"{resource}/{row['id']}", **row)
    assert (status, again) == (200, row)


def test_pages_follow_each_other_to_the_end(operator: Client, fleet: None) -> None:
    seen, page = [], get(operator, "gpus", page_size=40)
    while True:
        seen += [row["id"] for row in page["results"]]
        if page["next"] is None:
            break
        page = operator.get(page["next"]).json()
    assert seen == sorted(Gpu.objects.values_list("pk", flat=True))


@pytest.mark.parametrize(
    ("path", "query", "count"),
    [
        ("racks", {"site": "site-1"}, 2),
        ("racks", {"feed_a": "site-1/feed-a1"}, 2),
        ("racks", {"feed_a": "site-1/nothing"}, 0),
        ("racks", {"cooling_zone": "site-2/hall-1"}, 2),
        ("power-domains", {"kind": "feed", "site": "site-2"}, 2),
        ("power-domains", {"parent": "site-1/utility"}, 2),
        ("nodes", {"rack": "site-1/R0001"}, 4),
        ("nodes", {"name_contains": "SITE-2"}, 6),
        ("nodes", {"name": "site-1-r0001-n1"}, 1),
        ("nodes", {"site": "site-2"}, 6),
        ("gpus", {"node": "site-1-r0001-n1"}, 8),
        ("gpus", {"rack": "site-1/R0001"}, 32),
        ("links", {"kind": "leaf-uplink"}, 4),
        ("meters", {"power_domain": "site-1/feed-b1"}, 1),
        ("hardware-models", {"kind": "gpu"}, 1),
        ("sites", {"name": "elsewhere"}, 0),
    ],
)
def test_lists_are_filtered(
    path: str, query: dict[str, str], count: int, operator: Client, fleet: None
) -> None:
    assert len(get(operator, path, **query)["results"]) == count


def test_an_unknown_kind_is_a_bad_filter(operator: Client) -> None:
    answer = operator.get("/api/v1/links", {"kind": "string"})
    assert answer.status_code == 400
    assert answer.json()["error"]["field"] == "kind"


def test_relations_are_given_and_shown_by_key(operator: Client, fleet: None) -> None:
    status, rack = send(
        operator,
        "post",
        "racks",
        site="site-1",
        name="new",
        budget_w=1000,
        feed_a="site-1/feed-a1",
        cooling_zone="site-1/hall-1",
    )
    assert status == 201
    assert rack["key"] == "site-1/new"
    assert (rack["feed_a"], rack["feed_b"]) == ("site-1/feed-a1", None)
    status, node = send(operator, "post", "nodes", name="n", rack="site-1/new", labels={"a": "b"})
    assert (status, node["rack"], node["key"]) == (201, "site-1/new", "n")


@pytest.mark.parametrize("key", ["site-1/none", "none", "", "site-1\0/feed-a1", 5, ["site-1"]])
def test_a_relation_to_nothing_is_refused(key: Any, operator: Client, fleet: None) -> None:
    answer = send(operator, "post", "racks", site="site-1", name="r", budget_w=1, feed_a=key)
    if key == "":  # a form's way of saying null
        assert answer[0] == 201
    else:
        assert error_of(answer)[0] == "feed_a"


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("sites", {"name": "a/b"}, "name", "no slash"),
        ("sites", {"name": "site-1"}, "name", "already exists"),
        ("sites", {"name": "s", "time_zone": "Moon/Tycho"}, "time_zone", "not a time zone"),
        ("sites", {"name": "s", "budget_w": "nan"}, "budget_w", "valid number"),
        ("sites", {"name": "s", "budget_w": "1e400"}, "budget_w", "valid number"),
        (
            "hardware-models",
            {"name": "m", "kind": "gpu", "rated_w": 1, "mem_bytes": 10**400},
            "mem_bytes",
            "finite number",
        ),
        ("sites", {"name": "s", "budget_w": -1}, "budget_w", "greater than or equal to 0"),
        ("sites", {}, "name", "required"),
        (
            "power-domains",
            {"site": "site-1", "name": "x", "kind": "feed", "capacity_w": 1, "derating": 1.5},
            "derating",
            "less than or equal to 1",
        ),
        (
            "power-domains",
            {"site": "site-1", "name": "x", "kind": "feed", "capacity_w": -5},
            "capacity_w",
            "greater than or equal to 0",
        ),
        (
            "power-domains",
            {
                "site": "site-1",
                "name": "x",
                "kind": "feed",
                "capacity_w": 1,
                "parent": "site-2/utility",
            },
            "parent",
            "another site",
        ),
        (
            "power-domains",
            {"site": "site-1", "name": "x", "kind": "feed", "capacity_w": 1, "pair": "p"},
            "",
            "pair and side go together",
        ),
        (
            "racks",
            {"site": "site-1", "name": "x", "budget_w": 1, "feed_a": "site-2/feed-a1"},
            "feed_a",
            "another site",
        ),
        (
            "racks",
            {"site": "site-1", "name": "x", "budget_w": 1, "feed_a": "site-1/feed-b1"},
            "feed_a",
            "B side",
        ),
        ("racks", {"site": "site-1", "name": "R0001", "budget_w": 1}, "", "already exists"),
        (
            "nodes",
            {"name": "x", "rack": "site-1/R0001", "position_u": 2},
            "position_u",
            "site-1-r0001-n1 is there",
        ),
        (
            "nodes",
            {"name": "x", "rack": "site-1/R0001", "position_u": 45},
            "position_u",
            "U52 of a rack of 48 U",
        ),
        (
            "nodes",
            {"name": "x", "rack": "site-1/R0001", "model": "H100-SXM5-80GB"},
            "model",
            "not a model of a node",
        ),
        (
            "nodes",
            {"name": "x", "rack": "site-1/R0001", "storage_endpoint": "site-2/nvme-1"},
            "storage_endpoint",
            "another site",
        ),
        (
            "nodes",
            {"name": "x", "rack": "site-1/R0001", "labels": {"a": {"b": 1}}},
            "labels.a",
            "valid string",
        ),
        (
            "gpus",
            {"node": "site-1-r0001-n1", "index": 9, "model": "HGX-H100-host"},
            "model",
            "not a model of a GPU",
        ),
        (
            "gpus",
            {"node": "site-1-r0001-n1", "index": 0, "model": "H100-SXM5-80GB"},
            "",
            "already exists",
        ),
        (
            "links",
            {
                "name": "l",
                "kind": "rail",
                "site": "site-1",
                "node": "site-2-r0001-n1",
                "capacity_bits_per_s": 1,
            },
            "node",
            "another site",
        ),
        ("meters", {"name": "m"}, "", "measures one of"),
        (
            "meters",
            {"name": "m", "rack": "site-1/R0001", "node": "site-1-r0001-n1"},
            "",
            "measures one of",
        ),
        (
            "hardware-models",
            {"name": "m", "kind": "gpu", "rated_w": 1, "idle_w": 2},
            "idle_w",
            "more when idle",
        ),
    ],
)
def test_what_the_models_refuse_is_a_400_with_its_field(
    path: str, body: dict[str, Any], field: str, says: str, operator: Client, fleet: None
) -> None:
    where, message = error_of(send(operator, "post", path, **body))
    assert where == field
    assert says in message


def test_a_power_domain_cannot_hang_on_itself(operator: Client, fleet: None) -> None:
    top = PowerDomain.objects.get(name="utility", site__name="site-1")
    answer = send(operator, "patch", f"power-domains/{top.pk}", parent="site-1/feed-a1")
    assert error_of(answer) == ("parent", "a power domain cannot be its own ancestor")


def test_a_rack_cannot_move_to_another_site(operator: Client, fleet: None) -> None:
    rack = Rack.objects.filter(site__name="site-1").first()
    assert rack is not None
    bare = {"feed_a": None, "feed_b": None, "cooling_zone": None}
    answer = send(operator, "patch", f"racks/{rack.pk}", site="site-2", **bare)
    assert error_of(answer)[0] == "site"


def test_a_rack_cannot_shrink_below_its_nodes(operator: Client, fleet: None) -> None:
    rack = Rack.objects.get(site__name="site-1", name="R0001")
    answer = send(operator, "patch", f"racks/{rack.pk}", height_u=31)
    assert error_of(answer) == ("height_u", "site-1-r0001-n4 would stand out of the rack")


def test_a_node_cannot_leave_its_links_behind(operator: Client, fleet: None) -> None:
    node = Node.objects.get(name="site-1-r0001-n1")
    Link.objects.create(
        name="rail", kind="rail", site=node.rack.site, node=node, capacity_bits_per_s=1
    )
    change = {"rack": "site-2/R0001", "storage_endpoint": None, "position_u": 40}
    answer = send(operator, "patch", f"nodes/{node.pk}", **change)
    assert error_of(answer)[0] == "rack"


def test_a_model_in_use_keeps_its_kind(operator: Client, fleet: None) -> None:
    model = HardwareModel.objects.get(kind="gpu")
    answer = send(operator, "patch", f"hardware-models/{model.pk}", kind="node")
    assert error_of(answer)[0] == "kind"


@pytest.mark.parametrize(
    ("resource", "key"),
    [("power-domains", "site-1/feed-a1"), ("cooling-zones", "site-1/hall-1"),
     ("hardware-models", "H100-SXM5-80GB")],
)  # fmt: skip
def test_what_is_in_use_is_not_deleted(
    resource: str, key: str, operator: Client, fleet: None
) -> None:
    (row,) = [each for each in get(operator, resource)["results"] if each["key"] == key]
    status, answer = send(operator, "delete", f"{resource}/{row['id']}")
    assert (status, answer["error"]["code"]) == (409, "in_use")
    assert not AuditEntry.objects.filter(action__endswith=".delete").exists()


def test_a_site_goes_with_all_that_it_has(operator: Client, fleet: None) -> None:
    site = Site.objects.get(name="site-1")
    assert send(operator, "delete", f"sites/{site.pk}")[0] == 204
    assert set(Rack.objects.values_list("site__name", flat=True)) == {"site-2"}


def test_writes_are_audited_with_who_and_what(operator: Client, fleet: None) -> None:
    rack = Rack.objects.get(site__name="site-1", name="R0001")
    send(operator, "patch", f"racks/{rack.pk}", budget_w=39_000)
    entry = AuditEntry.objects.get(action="fleet.rack.change")
    assert (entry.actor, entry.target) == ("a-operator", "site-1/R0001")
    assert entry.detail == {"before": {"budget_w": 44_000}, "after": {"budget_w": 39_000}}
    send(operator, "post", "sites", name="new")
    assert AuditEntry.objects.get(action="fleet.site.create").target == "new"


@pytest.mark.django_db(transaction=True)
def test_a_write_that_cannot_be_audited_is_not_done(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise OSError("the audit log is full")

    monkeypatch.setattr("accounts.audit.record", fail)
    with pytest.raises(OSError, match="audit"):
        send(operator, "post", "sites", name="new")
    assert not Site.objects.exists()


@pytest.mark.parametrize("body", ["{", "[]", '"x"', "null"])
def test_bodies_that_are_no_objects_are_refused(body: str, operator: Client) -> None:
    answer = operator.post("/api/v1/sites", body, content_type="application/json")
    assert answer.status_code == 400


@pytest.mark.django_db(transaction=True)
def test_two_writers_at_once_do_not_take_the_same_place(operator: Client) -> None:
    import_fleet(make_inventory(gpus=8))
    start = threading.Barrier(8)

    def add(number: int) -> int:
        try:
            start.wait()
            body = {"name": f"n{number}", "rack": "site-1/R0001", "position_u": 40 - number % 2}
            return send(operator, "post", "nodes", **body)[0]
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(add, range(8)))
    assert statuses == [201] + [400] * 7
