from __future__ import annotations

from textwrap import dedent
from typing import get_args

import msgspec
import pytest
from django.db.models import TextChoices

from fleet.inventory import InventoryError, document, parse
from fleet.inventory.document import GpuEntry, GpuGroup
from fleet.models import CoolingKind, HardwareKind, LinkKind, MeterKind, PowerDomainKind, Side
from tests.builders.inventory import make_inventory


def problems_of(text: str) -> list[str]:
    with pytest.raises(InventoryError) as caught:
        parse(dedent(text).strip(), "fleet.yaml")
    return str(caught.value).splitlines()


def test_it_reads_a_generated_fleet() -> None:
    fleet = parse(make_inventory(gpus=70, sites=2)).document
    assert [site.name for site in fleet.sites] == ["site-1", "site-2"]
    nodes = [node for site in fleet.sites for rack in site.racks for node in rack.nodes]
    counts = [node.gpus.count for node in nodes if isinstance(node.gpus, GpuGroup)]
    assert sum(counts) == 70
    assert fleet.links[0].capacity_bits_per_s == 3.2e12


def test_an_empty_file_speaks_for_no_site() -> None:
    assert parse("").document.sites == []


def test_gpus_may_be_listed_one_by_one() -> None:
    text = """
    sites:
      - name: oslo
        racks:
          - name: A01
            budget_w: 1
            nodes:
              - {name: n, gpus: [{index: 3, model: H100, uuid: GPU-1}]}
    """
    node = parse(dedent(text)).document.sites[0].racks[0].nodes[0]
    assert node.gpus == [GpuEntry(index=3, model="H100", uuid="GPU-1")]


def test_it_reports_all_problems_at_once_with_their_lines() -> None:
    found = problems_of(
        """
        sites:
          - name: oslo
            colour: red
            power_domains:
              - {name: u, kind: volcano, capacity_w: -5, derating: 1.2}
              - name: feed
                kind: feed
            racks:
              - name: A01
                budget_w: lots
                nodes:
                  - {name: n1, gpus: {model: H100, count: many}}
        links: 5
        """
    )
    assert found == [
        "fleet.yaml:3: sites[0].colour: unknown; known: name, budget_w, time_zone, power_domains, "
        "cooling_zones, storage_endpoints, racks",
        "fleet.yaml:5: sites[0].power_domains[0].kind: 'volcano' is none of: utility, "
        "feed, panel, pdu",
        "fleet.yaml:5: sites[0].power_domains[0].capacity_w: Expected `float` >= 0.0, got '-5'",
        "fleet.yaml:5: sites[0].power_domains[0].derating: Expected `float` <= 1.0, got '1.2'",
        "fleet.yaml:6: sites[0].power_domains[1]: capacity_w is missing",
        "fleet.yaml:10: sites[0].racks[0].budget_w: Expected `float`, got 'lots'",
        "fleet.yaml:12: sites[0].racks[0].nodes[0].gpus.count: Expected `int`, got 'many'",
        "fleet.yaml:13: links: Expected `array`, got '5'",
    ]


@pytest.mark.parametrize("value", ["nan", ".nan", "inf", "-1", "1e400"])
def test_quantities_are_finite_and_not_negative(value: str) -> None:
    (found,) = problems_of(f"sites: [{{name: oslo, budget_w: {value}}}]")
    assert found.startswith("fleet.yaml:1: sites[0].budget_w: ")


@pytest.mark.parametrize("derating", ["0", "1.01", "-0.5"])
def test_derating_is_over_zero_and_at_most_one(derating: str) -> None:
    domain = f"{{name: f, kind: feed, capacity_w: 1, derating: {derating}}}"
    (found,) = problems_of(f"sites: [{{name: oslo, power_domains: [{domain}]}}]")
    assert "derating" in found


@pytest.mark.parametrize("name", ["a/b", "''", "x" * 201])
def test_names_of_sites_are_short_and_have_no_slash(name: str) -> None:
    (found,) = problems_of(f"sites: [{{name: {name}}}]")
    assert "sites[0].name" in found


@pytest.mark.parametrize("text", ["- a", "just words", "sites: {name: oslo}", "sites: [oslo]"])
def test_the_wrong_shape_is_refused(text: str) -> None:
    assert problems_of(text)


def test_problems_beyond_the_first_hundred_are_left_out() -> None:
    assert len(problems_of("sites: [" + "{}, " * 500 + "]")) == 100


@pytest.mark.parametrize(
    ("entry", "field", "choices"),
    [
        (document.HardwareEntry, "kind", HardwareKind),
        (document.PowerDomainEntry, "kind", PowerDomainKind),
        (document.CoolingZoneEntry, "kind", CoolingKind),
        (document.LinkEntry, "kind", LinkKind),
        (document.MeterEntry, "kind", MeterKind),
        (document.PowerDomainEntry, "side", Side),
    ],
)
def test_the_file_knows_the_same_kinds_as_the_models(
    entry: type[msgspec.Struct], field: str, choices: type[TextChoices]
) -> None:
    fields = {each.name: each.type for each in msgspec.structs.fields(entry)}
    assert set(get_args(fields[field])) - {""} == set(choices.values)
