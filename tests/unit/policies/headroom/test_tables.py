"""Every kind has the columns that are promised, of the types that are promised."""

from __future__ import annotations

import numpy as np
import pytest

from policies.headroom.columns import FIELDS
from policies.scopes import Scope, ScopeKind
from tests.builders.arrays import make_arrays, make_frame
from tests.unit.policies.headroom.scenes import NOW, all_read, column, headroom_of

DTYPES = {"double": np.float64, "bool": np.bool_, "string": np.object_}


@pytest.mark.parametrize("kind", FIELDS, ids=str)
@pytest.mark.parametrize("racks", [0, 5])
def test_a_table_has_its_fields_and_no_others(kind: ScopeKind, racks: int) -> None:
    fleet = make_arrays(sites=2 if racks else 0, racks=racks)
    table = headroom_of(fleet, all_read(fleet)).table(kind)
    assert table.columns.keys() == FIELDS[kind].keys()
    for name, field in FIELDS[kind].items():
        assert table.columns[name].dtype == DTYPES[field.type], name
        assert len(table.columns[name]) == len(table) == len(table.names)


def test_classes_and_jobs_have_no_headroom() -> None:
    fleet = make_arrays()
    with pytest.raises(KeyError):
        headroom_of(fleet, all_read(fleet)).table(ScopeKind.JOB)


def test_names_are_those_of_scopes() -> None:
    fleet = make_arrays(sites=2, racks=1, nodes=1, gpus=2)
    headroom = headroom_of(fleet, all_read(fleet))
    names = {kind: headroom.table(kind).names.tolist() for kind in FIELDS}
    assert names[ScopeKind.SITE] == ["s1", "s2"]
    assert names[ScopeKind.RACK] == ["s1/A01", "s2/A01"]
    assert names[ScopeKind.GPU] == ["s1-A01-n1/0", "s1-A01-n1/1", "s2-A01-n1/0", "s2-A01-n1/1"]
    assert names[ScopeKind.STORAGE] == ["s1/nvme", "s2/nvme"]
    gpu = headroom.table(ScopeKind.GPU)
    assert gpu.columns["site"].tolist() == ["s1", "s1", "s2", "s2"]
    assert gpu.row("s2-A01-n1/1")["power_load_w"] == 400.0


def test_what_was_never_heard_is_bound_by_that() -> None:
    fleet = make_arrays()
    headroom = headroom_of(fleet, make_frame(fleet, now=NOW))
    rack = headroom.table(ScopeKind.RACK)
    assert set(rack.columns["binding"]) == {"TelemetryStale"}
    assert np.isnan(rack.columns["age_s"]).all()
    assert rack.columns["stale"].all()


def test_a_site_is_stale_when_more_than_a_tenth_of_its_nodes_is() -> None:
    fleet = make_arrays(racks=10, nodes=2, gpus=1)
    for silent, stale in ((2, False), (3, True)):
        ts = np.where(np.arange(20) < silent, NOW - 99, NOW)
        headroom = headroom_of(fleet, all_read(fleet, ts=ts))
        site = headroom.table(ScopeKind.SITE).row("s1")
        assert (site["stale"], site["stale_nodes"], site["age_s"]) == (stale, silent, 99.0)
        assert headroom.table(ScopeKind.RACK).row("s1/A01")["stale"]


def test_nodes_that_fell_silent_are_counted_and_those_never_heard_are_not() -> None:
    fleet = make_arrays(racks=2, nodes=2, gpus=2)
    # Of the first rack one node is silent and one was never heard; of the second, all is well.
    ts = np.repeat([NOW - 99.0, 0.0, NOW, NOW], 2)
    headroom = headroom_of(fleet, all_read(fleet, ts=ts))
    assert column(headroom, ScopeKind.NODE, "stale") == [True, True, False, False]
    assert column(headroom, ScopeKind.NODE, "stale_nodes") == [1.0, 0.0, 0.0, 0.0]
    assert column(headroom, ScopeKind.RACK, "stale_nodes") == [1.0, 0.0]
    assert column(headroom, ScopeKind.RACK, "stale_share") == [0.5, 0.0]
    assert column(headroom, ScopeKind.SITE, "stale_nodes") == [1.0]
    assert column(headroom, ScopeKind.SITE, "stale_share") == [0.25]
    assert headroom.summary.sites.stale_nodes.tolist() == [1]


def test_a_scope_names_what_binds_it_with_its_numbers() -> None:
    fleet = make_arrays(racks=4, pdu_w=60_000.0)
    headroom = headroom_of(fleet, all_read(fleet))
    found = headroom.binding(Scope(ScopeKind.RACK, "s1/A02"))
    assert found is not None
    # Four racks of two nodes, at 16 · 400 W and twice the host between idle and rated.
    rack_w = 16 * 400 + 2 * (1400 + 400 / 700 * 3200)
    assert found.token == "FeedRedundancy"
    assert found.load == pytest.approx(4 * rack_w)
    assert found.left == pytest.approx(60_000 - 4 * rack_w)
    assert found.where.name in ("s1/pdu-A-a", "s1/pdu-A-b")
    assert "failed" in found.sentence
