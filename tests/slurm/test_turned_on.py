"""Headroom is turned on beside a busy cluster: all is adopted at once, and nobody is disturbed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from admission.cycle import loop
from admission.jobs.models import Attempt, Job, Phase
from headroom.slurm.bridge import Bridge, BridgeSettings, let_all_go
from tests.builders.begun import begin_anew
from tests.builders.fleet import small_fleet
from tests.slurm.cluster import is_installed, slurm_cluster, wait
from tests.slurm.conftest import NAME, Server, Site

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

RUNNING, WAITING = 200, 500
#: All are to be adopted within this, s: what an operator waits for who has just turned it on.
WITHIN_S = 10.0
_SUBMIT = """
for i in $(seq {count}); do
    sbatch --parsable --gpus-per-node=h100:1 --requeue -p {partition} --output=/dev/null \
        --wrap='exec sleep 600' >/dev/null || exit 1
done
"""


@pytest.fixture
def busy(db: None, folder: Path) -> Iterator[Site]:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    fleet = small_fleet(sites=["bergen"], rows=["A", "B"], racks_per_row=8, nodes_per_rack=4,
                        budget_w=24_000.0)  # fmt: skip
    begin_anew()
    with slurm_cluster(folder, list(fleet.nodes)) as cluster:
        server = Server(fleet.token)
        settings = BridgeSettings(name=NAME, run_dir=cluster.run_dir, comments_per_s=20)
        bridge = Bridge(settings, server, slurm=cluster.slurm)
        yield Site(fleet, cluster, server, settings, bridge)


def states(site: Site) -> Counter[str]:
    rows = json.loads(site.cluster.run("squeue", "--json"))["jobs"]
    return Counter(row["job_state"] for row in rows)


def test_a_busy_cluster_is_adopted_within_seconds_and_let_go_as_it_was(busy: Site) -> None:
    busy.cluster.as_user("sh", "-c", _SUBMIT.format(count=RUNNING, partition="debug"))
    wait(lambda: states(busy)["RUNNING"] == RUNNING, 60.0)
    began = {row["job_id"]: row["start_time"] for row in busy.cluster.slurm.jobs()}
    busy.cluster.as_user("sh", "-c", _SUBMIT.format(count=WAITING, partition="gpu"))
    busy.fleet.report(util=0.0, power_w=80.0)
    start = time.monotonic()
    busy.bridge.step()
    done = loop.cycle_once(time.time())
    took_s = time.monotonic() - start
    assert done is not None
    assert not done.failed
    assert Job.objects.count() == RUNNING + WAITING
    assert Attempt.objects.filter(state="running").count() == RUNNING
    waiting = Phase.objects.filter(state="queued")
    assert waiting.count() + done.admitted == WAITING
    assert not waiting.filter(reason="").exists()
    print(f"adopted {RUNNING} running and {WAITING} waiting jobs in {took_s:.1f} s")
    assert took_s < WITHIN_S
    for _ in range(3):
        busy.round()
    now = {row["job_id"]: row["start_time"] for row in busy.cluster.slurm.jobs()}
    assert {ref: now[ref] for ref in began} == began
    assert let_all_go(busy.cluster.slurm, busy.cluster.run_dir).jobs > 0
    rows = busy.cluster.slurm.jobs()
    assert not [row for row in rows if "[headroom" in (row["admin_comment"] or "")]
    assert {row["job_id"]: row["start_time"] for row in rows if row["job_id"] in began} == began
