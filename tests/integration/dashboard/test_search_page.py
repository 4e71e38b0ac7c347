"""Search by name."""

from __future__ import annotations

import pytest
from django.test import Client

from fleet.models import Gpu, Node
from tests.builders.fleet import SmallFleet
from tests.html import html_of


def find(client: Client, query: str) -> str:
    response = client.get("/search", {"q": query})
    assert response.status_code == 200
    return html_of(response)


def test_nobody_searches_without_logging_in(client: Client) -> None:
    assert client.get("/search?q=x").status_code == 302


def test_without_a_query_it_says_what_can_be_found(viewer: Client) -> None:
    assert "Search by name" in find(viewer, "")
    assert "What can be found" in find(viewer, "   ")


def test_parts_of_names_are_found_by_kind(viewer: Client, small: SmallFleet) -> None:
    assert "Nodes" in find(viewer, "oslo-")
    assert "Links" in find(viewer, "uplink")
    assert "Sites" in find(viewer, "osl")


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("oslo-a01-n1", "node"),
        ("OSLO-A01-N1", "node"),
        ("oslo/A01", "rack"),
        ("oslo-a01-n1/gpu2", "gpu"),
        ("oslo/A01/uplink", "link"),
        ("oslo/feed-a1", "power_domain"),
        ("oslo/hall-1", "zone"),
    ],
)
def test_a_name_of_one_thing_leads_there(
    viewer: Client, small: SmallFleet, query: str, kind: str
) -> None:
    node = small.nodes["oslo-a01-n1"]
    urls = {
        "node": f"/nodes/{node.pk}/",
        "rack": f"/racks/{small.racks['oslo/A01'].pk}/",
        "link": "/places/link/oslo/A01/uplink/",
        "power_domain": "/places/power_domain/oslo/feed-a1/",
        "zone": "/places/zone/oslo/hall-1/",
        "gpu": f"/gpus/{small.gpu('oslo-a01-n1', 2).pk}/",
    }
    response = viewer.get("/search", {"q": query})
    assert response.status_code == 302
    assert response["Location"] == urls[kind]


def test_a_site_leads_to_its_part_of_the_fleet(viewer: Client, small: SmallFleet) -> None:
    assert viewer.get("/search?q=oslo")["Location"] == "/?site=oslo"


def test_a_gpu_is_found_by_its_uuid(viewer: Client, small: SmallFleet) -> None:
    gpu = small.gpu("oslo-a01-n1", 1)
    Gpu.objects.filter(pk=gpu.pk).update(uuid="GPU-1234-abcd")
    assert viewer.get("/search?q=gpu-1234-ABCD")["Location"] == f"/gpus/{gpu.pk}/"


def test_a_name_that_several_have_lists_them(viewer: Client, small: SmallFleet) -> None:
    html = find(viewer, "A01")
    assert html.count(">A01</a>") == 2


def test_at_most_fifty_are_listed(viewer: Client, small: SmallFleet) -> None:
    rack = small.racks["oslo/A01"]
    Node.objects.bulk_create(Node(name=f"many-{i}", rack=rack) for i in range(80))
    html = find(viewer, "many")
    assert html.count('href="/nodes/') == 50
    assert "type more of the name" in html


@pytest.mark.parametrize("query", ["%", "_", "\x7f", "'; --", "<script>", "x" * 500, "/gpu1"])
def test_odd_queries_find_nothing_and_break_nothing(
    viewer: Client, small: SmallFleet, query: str
) -> None:
    html = find(viewer, query)
    assert "<script>" not in html.replace("<script src", "")
