"""What a replay cannot know of headroom, and says so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policies.headroom.columns import FIELDS
from policies.headroom.evaluate import Headroom
from policies.headroom.inputs import Past, Reservations, Steps
from policies.headroom.tables import names_of
from policies.rules.recorded import not_recorded, without_reservations
from tests.builders.arrays import make_arrays
from tests.unit.policies.headroom.scenes import NOW, all_read, headroom_of

ALL = frozenset[str]().union(*FIELDS.values())


def differing(one: Headroom, other: Headroom) -> set[str]:
    """Return the fields that are not the same, of any kind of scope."""
    found = set()
    for kind in FIELDS:
        columns = other.table(kind).columns
        for name, values in one.table(kind).columns.items():
            is_float = values.dtype.kind == "f"
            if not np.array_equal(values, columns[name], equal_nan=is_float):
                found.add(name)
    return found


def test_the_fields_that_reservations_are_in_are_told() -> None:
    fleet = make_arrays(sites=2, racks=4)
    reserved = Reservations(
        rack_w=np.full(len(fleet.racks), 30_000.0),
        node_w=np.full(len(fleet.nodes), 11_000.0),
        link_bits_per_s=np.full(len(fleet.links), 9e10),
        storage_bytes_per_s=np.full(len(fleet.storage), 1e9),
        steps=Steps(np.array([1]), np.array([NOW + 60.0]), np.array([50_000.0])),
    )
    frame = all_read(fleet)
    slopes = {kind: np.ones(len(names_of(fleet, kind))) for kind in FIELDS}
    past = replace(Past.none(fleet), slopes=slopes)
    differ = differing(
        headroom_of(fleet, frame, past=past),
        headroom_of(fleet, frame, past=past, reservations=reserved),
    )
    told = {*without_reservations(ALL), *not_recorded(ALL, step_s=10.0)}
    assert differ <= told


def test_trends_of_minutes_are_not_known_of_hours() -> None:
    assert "power_slope_w_per_s" not in not_recorded(ALL, step_s=60.0)
    assert {"power_slope_w_per_s", "cooling_load_5m_w", "link_exhausted_in_s"} <= set(
        not_recorded(ALL, step_s=3_600.0)
    )
