"""The account of published traces and runs adds up, and sees what it can of evaluations.

Needs data sets that are found as tests/data_sets.py says; skipped where they are not there.
"""

from __future__ import annotations

import pytest

from admission.core.account import Cause
from admission.core.fleet_account import Unheld
from bench.accounts_published import Added, account_of_trace, metered_runs, run_of_meters
from bench.acme_like import CLUSTERS, FILE, acme_like
from lab.traces.philly import load
from tests.data_sets import data_set

#: All that is drawn of a trace has time in an hour of it.
DRAWN = {
    Cause.PRODUCTIVE, Cause.BUSY, Cause.IDLE, Cause.STARTING, Cause.PAUSED, Cause.DATA_WAIT,
    Cause.SYNCHRONIZATION, Cause.OUTSIDE_STEPS, Cause.LOW_DRAW, Unheld.FREE, Unheld.SILENT,
}  # fmt: skip


def adds_up(found: Added) -> None:
    assert found.off_us == 0
    assert sum(found.us.values()) == found.gpus * found.hours * 3600 * 1_000_000
    assert found.us.keys() >= DRAWN


def test_hours_of_philly_add_up_by_rack_attempt_and_project() -> None:
    adds_up(account_of_trace(load(data_set("philly-jobs")), first_h=720, hours=4))


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_hours_of_jobs_like_those_of_acme_add_up(cluster: str) -> None:
    path = data_set("acme-seren-distributions").parent / FILE
    adds_up(account_of_trace(acme_like(path, cluster, seed=1), first_h=20, hours=4))


def test_a_run_on_64_nodes_is_busy_but_for_evaluations_that_draw_little() -> None:
    folder = data_set("mlperf-train-h100-node-power")
    for run in metered_runs(folder, "64node_llama2_70b_lora"):
        us = run_of_meters(run)
        whole = 512 * round(run.lasts_s * 1e6)
        assert sum(us.values()) == whole
        evaluated = sum(until - since for since, until in run.evaluations) / run.lasts_s
        assert abs(us[Cause.LOW_DRAW] / whole - evaluated) < 0.05
