from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet import snapshot
from fleet.models import (
    Gpu,
    HardwareModel,
    InventoryGeneration,
    Link,
    Meter,
    Node,
    PowerDomain,
    Rack,
    Site,
    StorageEndpoint,
)
from tests.builders.inventory import make_inventory
from tests.integration.fleet.conftest import import_fleet

pytestmark = pytest.mark.django_db


def test_an_empty_fleet_has_empty_arrays() -> None:
    fleet = snapshot.load()
    assert len(fleet.sites) == len(fleet.gpus) == len(fleet.meters) == 0
    assert fleet.gpu_bounds.tolist() == [0]


def test_tables_point_at_each_other_by_row() -> None:
    import_fleet(make_inventory(gpus=70, sites=2))
    fleet = snapshot.load()
    gpu = fleet.gpu_index_by_node["site-2-r0001-n1", 3]
    node = fleet.gpus.node[gpu]
    rack = fleet.nodes.rack[node]
    assert fleet.nodes.names[node] == "site-2-r0001-n1"
    assert fleet.racks.paths[rack] == "site-2/R0001"
    assert fleet.sites.names[fleet.racks.site[rack]] == "site-2"
    assert fleet.domains.paths[fleet.racks.feed_a[rack]] == "site-2/feed-a1"
    assert fleet.zones.paths[fleet.racks.zone[rack]] == "site-2/hall-1"
    assert fleet.gpus.rated_w[gpu] == 700
    assert fleet.nodes.host_rated_w[node] == 4600
    assert fleet.gpus.ids[gpu] == Gpu.objects.get(node__name="site-2-r0001-n1", index=3).pk


def test_parts_of_one_whole_are_one_run_of_rows() -> None:
    import_fleet(make_inventory(gpus=70, sites=2))
    fleet = snapshot.load()
    for bounds, parents in (
        (fleet.rack_bounds, fleet.racks.site),
        (fleet.node_bounds, fleet.nodes.rack),
        (fleet.gpu_bounds, fleet.gpus.node),
    ):
        for parent, (start, end) in enumerate(pairwise(bounds.tolist())):
            assert (parents[start:end] == parent).all()
        assert bounds[-1] == len(parents)


def test_gpus_are_in_the_order_of_their_nodes_and_indexes() -> None:
    site = Site.objects.create(name="oslo")
    model = HardwareModel.objects.create(name="H100", kind="gpu", rated_w=700)
    racks = [
        Rack.objects.create(site=site, name=name, row=row, position=position, budget_w=1)
        for name, row, position in (("last", "B", 0), ("second", "A", 1), ("first", "A", 0))
    ]
    for rack in racks:
        for position in (9, 1):
            node = Node.objects.create(
                name=f"{rack.name}-{position}", rack=rack, position_u=position
            )
            Gpu.objects.bulk_create(Gpu(node=node, index=i, model=model) for i in (1, 0))
    fleet = snapshot.load()
    assert fleet.racks.names.tolist() == ["first", "second", "last"]
    assert fleet.nodes.names.tolist() == [
        f"{rack}-{position}" for rack in ("first", "second", "last") for position in (1, 9)
    ]
    assert fleet.gpus.index.tolist() == [0, 1] * 6
    assert fleet.gpus.node.tolist() == [row for row in range(6) for _ in range(2)]


def test_the_halves_of_a_pair_know_each_other() -> None:
    import_fleet(make_inventory(gpus=8, sites=2))
    domains = snapshot.load().domains
    for row, other in enumerate(domains.pair.tolist()):
        if domains.names[row] == "utility":
            assert (other, domains.side[row], domains.parent[row]) == (-1, -1, -1)
        else:
            assert domains.pair[other] == row
            assert domains.site[other] == domains.site[row]
            assert domains.names[domains.parent[row]] == "utility"


def test_nodes_know_their_storage_and_labels_are_read_when_asked_for() -> None:
    import_fleet(make_inventory(gpus=16, sites=2))
    for site in ("site-1", "site-2"):
        endpoint = StorageEndpoint.objects.get(site__name=site)
        Node.objects.filter(rack__site__name=site).update(storage_endpoint=endpoint)
    Node.objects.filter(rack__site__name="site-1").update(labels={})
    Node.objects.filter(rack__site__name="site-2").update(labels={"team": "vision"})
    fleet = snapshot.load()
    assert fleet.storage.paths.tolist() == ["site-1/nvme-1", "site-2/nvme-1"]
    assert fleet.storage.capacity_bytes_per_s.tolist() == [2e11, 2e11]
    assert fleet.nodes.storage.tolist() == fleet.racks.site[fleet.nodes.rack].tolist()
    assert fleet.nodes.switch_domain.tolist() == ["leaf-row-01"] * 2
    assert fleet.node_labels == [{}, {"team": "vision"}]


def test_what_is_unknown_is_nan_and_what_is_missing_is_minus_one() -> None:
    site = Site.objects.create(name="oslo")
    rack = Rack.objects.create(site=site, name="A", budget_w=1)
    model = HardwareModel.objects.create(name="X", kind="gpu", rated_w=700)
    Gpu.objects.create(node=Node.objects.create(name="n", rack=rack), index=0, model=model)
    fleet = snapshot.load()
    assert np.isnan(fleet.sites.budget_w[0])
    assert np.isnan(fleet.nodes.host_rated_w[0])
    assert np.isnan(fleet.gpus.slowdown_c[0])
    assert fleet.nodes.model[0] == fleet.nodes.position_u[0] == fleet.racks.feed_a[0] == -1


def test_links_and_meters_know_what_they_hang_on() -> None:
    import_fleet(make_inventory(gpus=8))
    site, node = Site.objects.get(), Node.objects.get()
    domain = PowerDomain.objects.get(name="utility")
    Link.objects.create(name="rail", kind="rail", site=site, node=node, capacity_bits_per_s=4e11)
    Link.objects.create(name="wan", kind="wan", site=site, capacity_bits_per_s=1e11)
    Meter.objects.create(name="m-node", node=node)
    Meter.objects.create(name="m-rack", rack=node.rack, kind="temperature")
    fleet = snapshot.load()
    links = {name: row for row, name in enumerate(fleet.links.names)}
    assert fleet.links.rack[links["rail"]] == fleet.links.node[links["rail"]] == 0
    assert fleet.links.rack[links["wan"]] == fleet.links.peer_site[links["wan"]] == -1
    meters = fleet.meters
    found = {
        meters.names[row]: (snapshot.METER_TARGETS[meters.target_kind[row]], meters.target[row])
        for row in range(len(meters))
    }
    assert found["m-node"] == ("node", 0)
    assert found["m-rack"] == ("rack", 0)
    assert found["site-1/feed-a1"][0] == "power_domain"
    assert fleet.domains.ids[fleet.domains.index_by_path["site-1/utility"]] == domain.pk


def test_arrays_cannot_be_written() -> None:
    import_fleet(make_inventory(gpus=8))
    with pytest.raises(ValueError, match="read-only"):
        snapshot.load().gpus.rated_w[0] = 1


@pytest.mark.parametrize("gpus", [8, 320])
def test_it_takes_thirteen_queries_whatever_the_size(gpus: int) -> None:
    import_fleet(make_inventory(gpus=gpus))
    with CaptureQueriesContext(connection) as queries:
        snapshot.load()
    assert len(queries) == 13


def test_it_is_kept_until_the_inventory_changes() -> None:
    import_fleet(make_inventory(gpus=8))
    first = snapshot.current(max_age_s=0)
    assert snapshot.current(max_age_s=0) is first
    Node.objects.update(switch_domain="other")
    second = snapshot.current(max_age_s=0)
    assert second is not first
    assert second.generation > first.generation


def test_within_its_age_it_asks_nothing() -> None:
    snapshot.current(max_age_s=0)
    with CaptureQueriesContext(connection) as queries:
        snapshot.current(max_age_s=60)
    assert not queries.captured_queries


def test_an_import_is_seen_at_once_by_its_own_process() -> None:
    snapshot.current(max_age_s=60)
    import_fleet(make_inventory(gpus=8))
    assert len(snapshot.current(max_age_s=60).gpus) == 8


@pytest.mark.parametrize("write", ["insert", "update", "delete"])
def test_every_way_of_writing_makes_a_new_generation(write: str) -> None:
    Site.objects.create(name="oslo")
    before = InventoryGeneration.current()
    with connection.cursor() as cursor:
        cursor.execute(
            {
                "insert": "INSERT INTO fleet_site (name, time_zone) VALUES ('x', 'UTC')",
                "update": "UPDATE fleet_site SET name = 'x'",
                "delete": "DELETE FROM fleet_site",
            }[write]
        )
    assert InventoryGeneration.current() > before


def test_each_table_of_the_inventory_has_the_trigger() -> None:
    from django.apps import apps

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'fleet_generation'"
        )
        watched = {table for (table,) in cursor.fetchall()}
    models = set(apps.get_app_config("fleet").get_models()) - {InventoryGeneration}
    assert watched == {model._meta.db_table for model in models}
