"""The judge of the runs beside a real Slurm finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.judging import Stay, over_budget_s, overlaps, stays
from tests.slurm.whole import Machines

#: A rack of two nodes that feeds one at its peak, and the other idle.
MACHINES = Machines(site="s", nodes=2, gpus=4, nodes_per_rack=2, carried=0.6)
FIRST, SECOND = MACHINES.names


def test_two_nodes_at_their_peak_are_over_for_as_long_as_both_are() -> None:
    one, other = Stay("1", FIRST, 4, 0.0, 10.0), Stay("2", SECOND, 4, 7.0, 12.0)
    assert over_budget_s(MACHINES, [one, other]) == {"R01": 3.0, "s": 3.0}


def test_one_that_begins_as_another_ends_is_not() -> None:
    one, other = Stay("1", FIRST, 4, 0.0, 10.0), Stay("2", SECOND, 4, 10.0, 12.0)
    assert over_budget_s(MACHINES, [one, other]) == {"R01": 0.0, "s": 0.0}


def test_a_stay_is_from_prolog_to_epilog(tmp_path: Path) -> None:
    (tmp_path / FIRST).write_text("node_prolog 7 0,1 5.5\nnode_epilog 7 - 9.25\n")
    assert stays(tmp_path) == [Stay("7", FIRST, 2, 5.5, 9.25)]
    for line in ("node_prolog 7 0,1 5.5\n", "node_prolog 7 - 5.5\n"):
        (tmp_path / FIRST).write_text(line)
        with pytest.raises(ValueError, match="7"):
            stays(tmp_path)


def test_two_runs_of_a_job_at_one_time_are_found() -> None:
    assert overlaps({"a": [(5.0, 6.0), (0.0, 4.0)], "b": [(0.0, 4.0), (3.9, 6.0)]}) == ["b"]
