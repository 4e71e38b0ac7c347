"""The arrays that worlds decide on are those that the server reads of the same inventory."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from fleet import snapshot
from fleet.tables import AnyTable
from lab.fleet import inventory_yaml, make_fleet
from lab.world.fleet_arrays import arrays_of
from tests.integration.fleet.conftest import import_fleet

pytestmark = pytest.mark.django_db


def test_they_are_the_same_but_for_ids() -> None:
    fleet = make_fleet(gpus=128)
    import_fleet(inventory_yaml(fleet))
    ours, theirs = arrays_of(fleet), snapshot.load()
    for table in fields(theirs):
        there = getattr(theirs, table.name)
        if not isinstance(there, AnyTable):
            continue
        here = getattr(ours, table.name)
        for column in fields(there):
            if column.name == "ids":
                continue
            mine, read = getattr(here, column.name), getattr(there, column.name)
            assert mine.dtype == read.dtype, f"{table.name}.{column.name}"
            np.testing.assert_array_equal(mine, read, err_msg=f"{table.name}.{column.name}")
