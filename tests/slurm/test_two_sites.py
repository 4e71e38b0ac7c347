"""Two clusters at two sites: a job goes on in one when the other's feed is lost, never in both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from admission.cycle import loop
from headroom.contracts import MeterColumns, TelemetryBatch
from headroom.schedulers import words
from policies.loop import evaluate_once
from policies.restrictions.models import Restriction
from tests.builders.fleet import SmallFleet, push
from tests.builders.policies import make_rule
from tests.slurm.cluster import is_installed, slurm_cluster, wait
from tests.slurm.conftest import NAME, Site

pytestmark = pytest.mark.django_db

OTHER = "hall-b"
#: What a half of the pair carries, W: with the other one, and alone.
_HALF_W, _WHOLE_W = 950.0, 8_000.0
#: One half carries both: its site is left for as long as that lasts.
_RULE = """\
name: feed-lost-leave
description: Leaves a site of which half of the pair has failed.
scope: power_domain
severity: critical
summary: "{name} carries all of its site alone"
select:
  kinds: [feed]
when: power_measured_w > 0.6 * failover_load_w && power_measured_w > 0.1 * power_budget_w
for: 1s
clear: power_measured_w < 0.55 * failover_load_w
clear_for: 2m
effects:
  - restrict: {kind: drain, lease: 5m, most_of_site: 1.0}
"""
#: Steps, each told with where it was made. Asked to save, it saves and waits for its end.
_TRAIN = """
state={folder}/checkpoint log={folder}/steps status={shared}/$SLURM_JOB_ID
step=$(cat $state 2>/dev/null || echo 0)
save() {{
    echo $step >$state.new && mv $state.new $state
    seq=$(sed 's/.*"seq":\\([0-9]*\\).*/\\1/' $status.json)
    echo "{{\\"checkpoint_at\\": $(date +%s), \\"done\\": $seq}}" >$status.status
    exec sleep 600
}}
asked=
trap 'asked=1' USR1
while [ $step -lt {last} ]; do
    step=$((step + 1))
    echo "$SLURM_CLUSTER_NAME $step $(date +%s.%N)" >>$log
    sleep 0.2
    [ -z "$asked" ] || save
done
"""


@dataclass
class Sites:
    """Two sites under one server."""

    a: Site
    b: Site
    folder: Path
    is_lost: bool = False

    def round(self) -> None:
        self._report()
        for each in (self.a, self.b):
            each.bridge.step()
        now = time.time()
        policies = evaluate_once(now)
        assert policies is not None
        assert not policies.failed
        done = loop.cycle_once(now)
        assert done is not None
        assert not done.failed
        for each in (self.a, self.b):
            each.bridge.step()

    def until(self, what: Callable[[], bool]) -> None:
        def look() -> bool:
            self.round()
            return what()

        wait(look, every_s=0.1)

    def _report(self) -> None:
        """Read GPUs, and what the half of each pair carries that there is still."""
        fleet, now = self.a.fleet, time.time()
        fleet.report(util=0.0, power_w=80.0, at=now)
        carried = {"bergen-feed-a1": _WHOLE_W if self.is_lost else _HALF_W, "oslo-feed-a1": _HALF_W}
        meters = MeterColumns(ts=[now] * 2, meter=list(carried), power_w=list(carried.values()))
        batch = TelemetryBatch(
            agent=fleet.agent.name, boot_id="boot-1", seq=fleet._next(), oldest_seq=1,
            sent_at=now, meters=meters,
        )  # fmt: skip
        push(fleet.agent, batch, received_at=now)

    def train(self, last: int) -> str:
        script = _TRAIN.format(
            folder=self.folder, shared=self.a.cluster.folder / "shared", last=last
        )
        return self.a.cluster.submit(
            f"--comment=run 7; headroom: move_to={OTHER} checkpoint_s=600 signal=USR1",
            script=script,
        )

    def steps(self) -> list[tuple[str, int, float]]:
        path = self.folder / "steps"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(where, int(step), float(at)) for where, step, at in map(str.split, lines)]

    def made_at(self, where: str) -> list[int]:
        return [step for site, step, _ in self.steps() if site == where]

    def at_b(self) -> list[str]:
        """Return the states of the jobs that came there."""
        rows = self.b.cluster.slurm.jobs()
        return [str(row["job_state"]) for row in rows if words.read(row["comment"]).moved]


@pytest.fixture
def sites(fleet_of_two: SmallFleet, folder: Path) -> Iterator[Sites]:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    folders = [folder / "a", folder / "b", folder / "storage"]
    for each in folders:
        each.mkdir()
        each.chmod(0o777)
    nodes = [fleet_of_two.nodes_of(f"{site}/A01") for site in ("bergen", "oslo")]
    make_rule("feed-lost-leave", text=_RULE)
    with (
        slurm_cluster(folders[0], nodes[0], slurmd_timeout_s=5, name=NAME) as a,
        slurm_cluster(folders[1], nodes[1], slurmd_timeout_s=5, name=OTHER) as b,
    ):
        # What jobs see is on storage of both.
        yield Sites(Site.of(fleet_of_two, a), Site.of(fleet_of_two, b, OTHER), folders[2])


def _lose_the_feed(sites: Sites) -> None:
    sites.is_lost = True
    sites.until(lambda: Restriction.objects.filter(kind="drain", ended_at=None).exists())


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_crossing.py::"
    "test_a_job_is_cancelled_in_one_and_then_submitted_in_the_other_and_stays_one"
)
def test_a_job_goes_on_at_its_next_step_in_the_other_cluster_and_in_one_at_a_time(
    sites: Sites,
) -> None:
    ref = sites.train(last=10_000)
    sites.until(lambda: len(sites.steps()) > 3)
    sites.until(lambda: sites.a.phase(ref).state == "running")
    assert sites.at_b() == []
    _lose_the_feed(sites)
    sites.until(lambda: bool(sites.at_b()))
    # What has come is held there, and its bridge dies before it says so.
    sites.b.restart_bridge()
    assert sites.at_b() == ["PENDING"]
    assert sites.a.cluster.state(ref) == "CANCELLED"
    sites.until(lambda: len(sites.made_at(OTHER)) > 3)
    assert sites.at_b() == ["RUNNING"]
    sites.until(lambda: sites.a.phase(ref).state == "running")
    before, after = sites.made_at(NAME), sites.made_at(OTHER)
    # Each step once: the first of one cluster follows the last of the other.
    assert before + after == list(range(1, len(before) + len(after) + 1))
    assert [where for where, _, _ in sites.steps()] == [NAME] * len(before) + [OTHER] * len(after)
    where = [(row.executor, row.outcome) for row in sites.a.attempts(ref)]
    assert where == [(NAME, "preempted"), (OTHER, "")]
    kinds = sites.a.job(ref).events.values_list("kind", flat=True)
    assert {"fallback", "leaves", "left", "arrived"} <= set(kinds)
    # It is one job to its end.
    (there,) = (row for row in sites.b.cluster.slurm.jobs() if row["job_state"] == "RUNNING")
    assert there["user_name"] == "nobody"
    sites.b.cluster.run("scancel", str(there["job_id"]))
    sites.until(lambda: sites.a.job(ref).state == "cancelled")


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_crossing.py::"
    "test_nothing_is_submitted_while_the_first_is_silent"
)
def test_nothing_starts_in_the_other_cluster_while_the_first_is_not_heard(sites: Sites) -> None:
    ref = sites.train(last=10_000)
    sites.until(lambda: len(sites.steps()) > 3)
    sites.until(lambda: sites.a.phase(ref).state == "running")
    _lose_the_feed(sites)
    sites.a.server.is_away = True
    until = time.monotonic() + 15.0
    sites.until(lambda: time.monotonic() > until)
    assert sites.a.job(ref).fallback_state == "regional-fallback"
    assert sites.at_b() == []
    assert sites.a.cluster.state(ref) == "RUNNING"
    assert sites.made_at(OTHER) == []
    sites.a.server.is_away = False
    sites.until(lambda: bool(sites.made_at(OTHER)))
    steps = [step for _, step, _ in sites.steps()]
    assert steps == list(range(1, len(steps) + 1))
