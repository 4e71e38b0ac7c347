"""Energy of the published training runs by their node meters: jobs and idle GPUs come to all of it.

Needs the data set ``mlperf-train-h100-node-power``, found as tests/data_sets.py says; skipped where
it is not there. Of these nodes nothing but the power at the wall is known.
"""

from __future__ import annotations

import numpy as np
import pytest

from admission.core.energy.amounts import read
from admission.core.energy.closing import Account, close
from admission.core.energy.holders import Buckets, pieces_of
from telemetry import samples
from telemetry.rollups.compute import integrate
from telemetry.rollups.spec import ROLLUPS
from telemetry.store.columns import US
from tests.builders.arrays import make_arrays
from tests.builders.energy import held, reading, with_meters
from tests.data_sets import data_folder, data_set
from tests.integration.replay.runs import Run, load

DATA_SET = "mlperf-train-h100-node-power"
#: Of one run's energy.
TOLERANCE = 0.001
GPUS, HELD = 8, 6


def files() -> list[str]:
    found = sorted((data_folder() / DATA_SET).glob("power_*.csv.gz"))
    return [file.name for file in found] or ["missing"]


def used(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Return J and seconds of each node, by the code that rolls readings up."""
    rollup, found = ROLLUPS["meter_sample"], []
    for node, times_s in run.times_s.items():
        count = len(times_s)
        rows = {
            "ts": np.rint(np.array(times_s) * US).astype(np.int64),
            samples.METER.key: np.zeros(count, dtype=np.int32),
            "power_w": np.array(run.powers_w[node]),
            "energy_j": np.full(count, np.nan),
        }
        made = integrate(rollup, rows)
        found.append((np.nansum(made["used_j"]), np.nansum(made["covered_s"])))
    used_j, covered_s = np.array(found).T
    return used_j, covered_s


def closed(run: Run) -> Account:
    """Close a run: one job held six of the eight GPUs of each node, all of the time."""
    used_j, covered_s = used(run)
    nodes, span_s = len(used_j), run.length_s
    fleet = make_arrays(racks=1, nodes=nodes, gpus=GPUS)
    fleet = with_meters(fleet, {("node", row): 0.0 for row in range(nodes)})
    gpu = np.arange(nodes * GPUS)
    buckets = Buckets(
        gpu=gpu, start=np.zeros(len(gpu)), end=np.full(len(gpu), span_s), weight=np.ones(len(gpu))
    )
    spans = held(*((int(row), 0, 0.0, span_s) for row in gpu if row % GPUS < HELD))
    nothing = reading([None] * len(gpu))
    made = pieces_of(fleet, nothing, buckets, spans, np.zeros(len(gpu), dtype=bool))
    meters = read(used_j, covered_s, span_s)
    unread = reading([None] * nodes)
    return close(fleet, made, unread, meters, span_s, np.full(1, np.nan))


@pytest.mark.parametrize("name", files())
def test_jobs_and_idle_come_to_the_meter_on_every_run(name: str) -> None:
    for run in load([data_set(DATA_SET) / name], until_s=2e9):
        found = closed(run)
        used_j, covered_s = used(run)
        meters = read(used_j, covered_s, run.length_s)
        sites = found.sites
        assert found.nodes.metered.all(), (run.run_id, covered_s / run.length_s)
        # To the millijoule against the meters, and these, without what was bridged, to the file.
        assert (sites.jobs + sites.idle).tolist() == [int(meters.mj.sum())], run.run_id
        assert sites.residual.tolist() == [0]
        assert sites.jobs[0] / sites.total[0] == pytest.approx(HELD / GPUS, abs=1e-6)
        bridged_j = int(meters.bridged_mj.sum()) / 1000
        read_j = int(sites.jobs[0] + sites.idle[0]) / 1000 - bridged_j
        assert read_j == pytest.approx(run.energy_j, rel=TOLERANCE), run.run_id
