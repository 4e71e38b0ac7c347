from __future__ import annotations

from importlib import import_module

import pytest
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from accounts.models import AuditEntry
from fleet.inventory import StalePlanError, apply, export, parse, plan, read_state
from fleet.models import Gpu, HardwareModel, Node, PowerDomain, Rack, Site
from tests.builders.inventory import make_inventory
from tests.integration.fleet.conftest import import_fleet

pytestmark = pytest.mark.django_db

FLEET = make_inventory(gpus=96, sites=2)


def test_a_second_import_of_the_same_file_changes_nothing() -> None:
    assert import_fleet(FLEET)
    assert not import_fleet(FLEET)


def test_what_is_exported_is_what_is_there() -> None:
    import_fleet(FLEET)
    state = read_state()
    text = export(state.rows)
    assert not plan(parse(text), state, prune_sites=True)
    assert export(read_state().rows) == text


def test_gpus_of_a_node_have_consecutive_ids() -> None:
    import_fleet(FLEET)
    for node in Node.objects.all():
        ids = list(node.gpus.order_by("index").values_list("pk", flat=True))
        assert ids == list(range(ids[0], ids[0] + 8))


def test_rows_that_stay_keep_their_ids() -> None:
    import_fleet(FLEET)
    before = dict(Gpu.objects.values_list("node__name", "pk").filter(index=0))
    import_fleet(FLEET.replace("budget_w: 44000", "budget_w: 40000"))
    assert dict(Gpu.objects.values_list("node__name", "pk").filter(index=0)) == before
    assert set(Rack.objects.values_list("budget_w", flat=True)) == {40_000}


def test_it_writes_one_audit_entry_with_the_counts() -> None:
    import_fleet(FLEET)
    (entry,) = AuditEntry.objects.filter(action="fleet.apply")
    assert entry.target == "site-1, site-2"
    assert entry.detail["counts"]["gpus"] == {"created": 96, "changed": 0, "removed": 0}


def test_nothing_to_do_is_not_noted() -> None:
    import_fleet(FLEET)
    import_fleet(FLEET)
    assert AuditEntry.objects.filter(action="fleet.apply").count() == 1


def test_a_smaller_file_removes_the_rest() -> None:
    import_fleet(FLEET)
    import_fleet(make_inventory(gpus=8), prune_sites=True)
    assert [site.name for site in Site.objects.all()] == ["site-1"]
    assert Gpu.objects.count() == 8


def test_an_empty_file_with_pruning_removes_everything() -> None:
    import_fleet(FLEET)
    import_fleet("{}", prune_sites=True)
    assert not Site.objects.exists()
    assert not HardwareModel.objects.exists()


def test_a_pair_can_swap_its_sides() -> None:
    import_fleet(FLEET)
    swapped = FLEET.replace("feed_a: feed-a1", "feed_a: X").replace("feed_b: feed-b1", "feed_b: Y")
    swapped = swapped.replace("side: A}", "side: Z}").replace("side: B}", "side: A}")
    swapped = swapped.replace("side: Z}", "side: B}")
    import_fleet(
        swapped.replace("feed_a: X", "feed_a: feed-b1").replace("feed_b: Y", "feed_b: feed-a1")
    )
    sides = PowerDomain.objects.exclude(pair="").values_list("name", "side").distinct()
    assert set(sides) == {("feed-a1", "B"), ("feed-b1", "A")}


def test_a_feed_can_take_the_place_of_another() -> None:
    import_fleet(FLEET)
    import_fleet(
        FLEET.replace("feed-a1", "feed-a2")
        .replace("utility", "grid")
        .replace("kind: grid", "kind: utility")
    )
    assert set(PowerDomain.objects.values_list("name", flat=True)) == {"grid", "feed-a2", "feed-b1"}
    assert all(
        rack.feed_a is not None and rack.feed_a.name == "feed-a2" for rack in Rack.objects.all()
    )


def test_a_plan_of_another_inventory_is_refused() -> None:
    todo = plan(parse(FLEET), read_state())
    Site.objects.create(name="meanwhile")
    with pytest.raises(StalePlanError):
        apply(todo, "test")
    assert Site.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_it_tells_of_all_rows_that_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("fleet.inventory.apply"), "_BATCH", 5)
    import_fleet(FLEET)
    fewer = make_inventory(gpus=64, sites=2).replace("budget_w: 44000", "budget_w: 40000")
    todo = plan(parse(fewer), read_state())
    told: list[int] = []
    apply(todo, "olga", told=told.append)
    assert (sum(told), max(told)) == (todo.rows, 5)
    assert all(sum(each[what] for each in todo.counts.values()) for what in ("changed", "removed"))
    assert not plan(parse(fewer), read_state())


def test_it_is_all_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    todo = plan(parse(FLEET), read_state())

    def fail(*args: object, **kwargs: object) -> None:
        raise IntegrityError("the audit log is full")

    monkeypatch.setattr("accounts.audit.record", fail)
    with pytest.raises(IntegrityError):
        apply(todo, "test")
    assert not Site.objects.exists()


def test_its_queries_do_not_grow_with_the_fleet() -> None:
    def queries_of(gpus: int) -> int:
        text = make_inventory(gpus=gpus)
        import_fleet("{}", prune_sites=True)
        todo = plan(parse(text), read_state())
        with CaptureQueriesContext(
            connection,
        ) as queries:
            apply(todo, "test")
        return len(queries)

    assert queries_of(16) == queries_of(320)
