"""A lookup of many values, which are one in the statement."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from fleet.models import Node, Rack
from tests.builders.fleet import SmallFleet, small_fleet

pytestmark = pytest.mark.django_db


@pytest.fixture
def fleet() -> SmallFleet:
    return small_fleet(sites=("bergen", "oslo"), rows=("A",), racks_per_row=1, nodes_per_rack=2)


def test_it_finds_what_in_finds(fleet: SmallFleet) -> None:
    names = list(Node.objects.values_list("name", flat=True))
    racks = set(Rack.objects.values_list("pk", flat=True)[:1])
    for column, values in (
        ("name", names[:3]),
        ("name", ["none"]),
        ("name", []),
        ("rack_id", racks),
        ("pk", dict.fromkeys(Node.objects.values_list("pk", flat=True)[:2])),
        ("rack__name", list(Rack.objects.values_list("name", flat=True))),
    ):
        among = Node.objects.filter(**{f"{column}__among": values})
        same = Node.objects.filter(**{f"{column}__in": list(values)})
        assert set(among) == set(same)
        others = Node.objects.exclude(**{f"{column}__among": values})
        assert set(others) == set(Node.objects.all()) - set(same)


def test_a_value_longer_than_the_column_is_not_cut_off(fleet: SmallFleet) -> None:
    node = Node.objects.all()[0]
    length = Node._meta.get_field("name").max_length or 0
    Node.objects.filter(pk=node.pk).update(name="n" * length)
    assert Node.objects.filter(name__among=["n" * length]).exists()
    assert not Node.objects.filter(name__among=["n" * (length + 1)]).exists()


def test_the_statement_is_as_long_for_many_values(fleet: SmallFleet) -> None:
    with CaptureQueriesContext(connection):
        few = str(Node.objects.filter(pk__among=[1]).query.sql_with_params()[0])
        many = str(Node.objects.filter(pk__among=range(10_000)).query.sql_with_params()[0])
    assert few == many
