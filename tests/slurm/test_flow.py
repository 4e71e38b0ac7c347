"""Jobs of a real Slurm: held, explained, admitted, run, evicted, ended; and nobody is run twice."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from accounts.models import User
from accounts.roles import Role
from admission.directives import actions as directives
from admission.jobs import actions as jobs
from admission.jobs.models import JobEvent
from admission.learned import energy
from fleet.models import Rack
from headroom.schedulers.contract import WhenAway
from headroom.slurm.bridge import Bridge, BridgeSettings, let_all_go
from tests.builders.accounts import make_user
from tests.builders.fleet import SmallFleet
from tests.builders.policies import lift_all, lower_budget
from tests.slurm.cluster import is_installed, slurm_cluster, wait
from tests.slurm.conftest import NAME, Server, Site

pytestmark = pytest.mark.django_db

#: Of a rack: one of its two hosts may be at work. A whole one draws up to 4.8 kW.
_ONE_HOST_W = 6_500.0


def _scarce(site: Site) -> None:
    """Let power be enough for one host of each rack."""
    for rack in Rack.objects.select_related("site"):
        lower_budget("rack", f"{rack.site.name}/{rack.name}", _ONE_HOST_W)


def _operator() -> User:
    return User.objects.filter(username="olga").first() or make_user(Role.OPERATOR, username="olga")


def _close() -> None:
    """Leave no power for anything new."""
    lower_budget("site", "bergen", 1_000.0)


def _is_running(site: Site, ref: str) -> bool:
    return site.cluster.state(ref) == "RUNNING"


def test_a_job_is_held_adopted_admitted_run_and_ended(site: Site) -> None:
    ref = site.cluster.submit(script="echo ran on $SLURM_JOB_NODELIST; sleep 1")
    assert site.cluster.state(ref) == "PENDING"
    site.until(lambda: _is_running(site, ref))
    (attempt,) = site.attempts(ref)
    assert attempt.executor == NAME
    assert f"[headroom lease {attempt.key} 0]" in site.shown(ref)
    site.until(lambda: site.job(ref).state == "succeeded")
    (attempt,) = site.attempts(ref)
    assert (attempt.outcome, attempt.exit_code) == ("succeeded", 0)
    assert site.said(ref).split() == ["ran", "on", attempt.placement["nodes"][0]]
    kinds = JobEvent.objects.filter(job=site.job(ref)).values_list("kind", flat=True)
    assert list(kinds) == ["adopted", "dispatched", "started", "ended", "ended"]


def test_gpus_are_mapped_to_their_jobs_for_as_long_as_these_run(site: Site) -> None:
    ref = site.cluster.submit("-p", "debug", "--gpus-per-node=h100:2", script="sleep 2")
    wait(lambda: _is_running(site, ref))
    maps = site.cluster.folder / "maps" / site.cluster.job(ref)["nodes"]
    wait(lambda: len(list(maps.iterdir())) == 2)
    assert {path.read_text().strip() for path in maps.iterdir()} == {ref}
    wait(lambda: not list(maps.iterdir()))


def test_an_owner_cannot_let_a_job_go_that_waits_for_room(site: Site) -> None:
    ref = site.cluster.submit()
    site.cluster.as_user("scontrol", "release", ref, check=False)
    site.cluster.as_user("scontrol", "update", f"job={ref}", "priority=9", check=False)
    assert site.cluster.job(ref)["priority"] == 0
    own = site.cluster.submit("--hold")
    site.cluster.as_user("scontrol", "release", own)
    assert site.cluster.job(own)["priority"] == 0
    site.until(lambda: _is_running(site, own))


def test_who_waits_for_power_reads_so_and_starts_when_there_is_room(site: Site) -> None:
    _scarce(site)
    refs = [site.cluster.submit("--comment=headroom: peak_w=700") for _ in range(3)]
    site.until(lambda: [_is_running(site, ref) for ref in refs].count(True) == 2)
    (waits,) = (ref for ref in refs if not _is_running(site, ref))
    site.until(lambda: "kW" in site.shown(waits))
    phase = site.phase(waits)
    assert "PowerHeadroom" in phase.reason
    assert f"[headroom hold] {phase.reason}: needs" in site.shown(waits)
    assert "position 1 in the queue" in site.shown(waits)
    # Both run on other racks: neither holds more than one host.
    nodes = {site.cluster.job(ref)["nodes"].rpartition("-")[0] for ref in refs if ref != waits}
    assert len(nodes) == 2
    first = next(ref for ref in refs if ref != waits)
    site.cluster.run("scancel", first)
    site.until(lambda: _is_running(site, waits))
    site.until(lambda: site.job(first).state == "cancelled")


def test_what_has_to_give_way_waits_again_and_is_run_once_at_a_time(site: Site) -> None:
    ref = site.cluster.submit(script="echo start $SLURM_RESTART_COUNT; exec sleep 600")
    site.until(lambda: bool(site.said(ref)))
    site.until(lambda: site.phase(ref).state == "running")
    _close()
    (node,) = site.attempts(ref)[0].placement["nodes"]
    with site.cluster.hung(f"slurmd {node}"):
        directives.stop(
            site.attempts(ref), owner="response", cause="feed-1", why="the feed is overloaded",
            now=datetime.now(UTC),
        )  # fmt: skip
        # Slurm counts it as put back already; as submitted anew once the node has let go of it.
        site.until(lambda: site.cluster.state(ref) == "COMPLETING")
        time.sleep(2.0)
    site.until(lambda: site.phase(ref).state == "queued")
    assert site.attempts(ref)[0].outcome == "preempted"
    wait(lambda: site.cluster.state(ref) == "PENDING")
    for _ in range(3):
        site.round()
    assert site.cluster.state(ref) == "PENDING"
    assert "[headroom hold]" in site.shown(ref)
    lift_all()
    site.until(lambda: _is_running(site, ref))
    assert [attempt.number for attempt in site.attempts(ref)] == [1, 2]
    site.until(lambda: site.said(ref).count("start") == 2)


def test_what_ran_before_us_is_counted_and_left_alone(site: Site) -> None:
    """An exempt partition stands for the time before: its jobs nobody holds."""
    ref = site.cluster.submit("-p", "debug", "-N2")
    wait(lambda: _is_running(site, ref))
    began = site.cluster.job(ref)["start_time"]
    site.round()
    (attempt,) = site.attempts(ref)
    assert attempt.state == "running"
    assert sorted(attempt.placement["nodes"]) == sorted(site.fleet.nodes)[:2]
    assert attempt.placement["total_w"] == pytest.approx(2 * 4_800.0, rel=0.2)
    kept = site.cluster.submit("-N3")
    for _ in range(3):
        site.round()
    assert site.cluster.state(kept) == "PENDING"
    assert site.cluster.job(ref)["start_time"] == began
    site.cluster.run("scancel", ref)
    site.until(lambda: _is_running(site, kept))
    site.until(lambda: site.job(ref).state == "cancelled")


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_schedulers.py::"
    "test_a_bridge_that_begins_anew_is_asked_for_all_there_is"
)
def test_a_bridge_and_a_slurmctld_that_die_lose_nothing(site: Site) -> None:
    ref = site.cluster.submit(script="echo start; exec sleep 600")
    site.until(lambda: _is_running(site, ref))
    # What slurmctld has not written yet, it loses.
    kept = site.cluster.folder / "state" / "job_state"
    began = time.time()
    wait(lambda: kept.exists() and kept.stat().st_mtime > began)
    site.cluster.kill("slurmctld")
    site.cluster.start_slurmctld()
    site.restart_bridge()
    waits = site.cluster.submit("-N4")
    for _ in range(3):
        site.round()
    assert _is_running(site, ref)
    assert len(site.attempts(ref)) == 1
    assert site.phase(waits).state == "queued"
    assert site.said(ref) == "start\n"


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_schedulers.py::"
    "test_what_the_scheduler_puts_back_by_itself_is_lost_and_waits_again"
)
def test_a_job_that_slurm_puts_back_does_not_start_without_a_new_lease(site: Site) -> None:
    ref = site.cluster.submit(script="echo start; exec sleep 600")
    site.until(lambda: bool(site.said(ref)))
    site.until(lambda: site.phase(ref).state == "running")
    # As after a lost node: nobody of ours has asked for it, nor looks while it could start.
    _close()
    site.cluster.run("scontrol", "requeue", ref)
    wait(lambda: site.cluster.state(ref) == "PENDING")
    # Slurm lets two minutes pass before it starts it again: these are over at once.
    time.sleep(1.0)
    site.cluster.run("scontrol", "update", f"jobid={ref}", "StartTime=now")
    time.sleep(6.0)
    assert site.said(ref).count("start") == 1
    assert not _is_running(site, ref)
    site.until(lambda: site.phase(ref).state == "queued")
    assert site.attempts(ref)[0].outcome == "lost"
    lift_all()
    site.until(lambda: _is_running(site, ref))
    assert len(site.attempts(ref)) == 2


def test_turned_off_all_is_as_if_it_had_never_been_there(site: Site) -> None:
    _close()
    refs = [site.cluster.submit() for _ in range(3)]
    site.round()
    done = let_all_go(site.cluster.slurm, site.cluster.run_dir)
    assert done.jobs == 3
    wait(lambda: all(_is_running(site, ref) for ref in refs))
    assert "[headroom" not in site.shown(refs[0])


def test_what_is_cancelled_here_is_cancelled_there(site: Site) -> None:
    _close()
    ref = site.cluster.submit()
    site.round()
    jobs.cancel(site.job(ref), _operator(), why="not needed", now=datetime.now(UTC))
    site.until(lambda: site.cluster.state(ref) == "CANCELLED")


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_schedulers.py::"
    "test_no_node_gets_jobs_of_a_scheduler_that_is_silent_or_has_drained_it"
)
def test_what_may_still_run_on_a_silent_node_is_started_nowhere_else(site: Site) -> None:
    """Slurm gives up a node whose slurmd was killed; the payload does not know of it."""
    ref = site.cluster.submit(script="while :; do date +%s.%N >> $SLURM_JOB_ID.$$; sleep 0.1; done")
    site.until(lambda: site.phase(ref).state == "running")
    (node,) = site.attempts(ref)[0].placement["nodes"]
    site.cluster.kill(f"slurmd {node}")
    site.until(lambda: site.phase(ref).held_by == "its scheduler")
    assert node in site.phase(ref).hold_reason
    for _ in range(3):
        site.round()
    assert site.cluster.state(ref) == "PENDING"
    site.cluster.start_slurmd(node)
    site.until(lambda: len(site.spans(ref)) == 2)
    (_, ended), (began, _) = sorted(site.spans(ref))
    assert ended < began
    assert [attempt.outcome for attempt in site.attempts(ref)][:1] == ["lost"]


def _give(site: Site, ref: str, kind: str, value: float | None = None) -> None:
    now = datetime.now(UTC)
    directives.give(
        site.job(ref), _operator(), kind=kind, value=value, reason=f"{kind} for a while",
        until=now + timedelta(minutes=5), now=now,
    )  # fmt: skip


def test_a_running_job_is_told_to_work_on_less_and_to_stand_still(site: Site) -> None:
    path = site.cluster.folder / "shared"
    ref = site.cluster.submit(
        "--comment=headroom: signal=USR1 responses=shrink-batch,pause",
        script=f"trap 'cat {path}/$SLURM_JOB_ID.json' USR1; while :; do sleep 0.1; done",
    )
    site.until(lambda: site.phase(ref).state == "running")
    _give(site, ref, "set_batch_scale", 0.5)
    site.until(lambda: '"batch_scale":0.5' in site.said(ref))
    assert _is_running(site, ref)
    _give(site, ref, "pause")
    site.until(lambda: site.phase(ref).state == "paused")
    assert site.cluster.state(ref) == "SUSPENDED"
    _give(site, ref, "resume")
    site.until(lambda: site.phase(ref).state == "running")
    assert _is_running(site, ref)


def test_while_the_server_is_away_jobs_wait_where_the_operator_wants_it_closed(site: Site) -> None:
    ref = site.cluster.submit()
    site.server.is_away = True
    for _ in range(3):
        site.bridge.step()
    assert site.cluster.state(ref) == "PENDING"
    site.server.is_away = False
    site.until(lambda: _is_running(site, ref))


def test_while_the_server_is_away_jobs_start_where_the_operator_wants_it_open(
    fleet: SmallFleet, folder: Path
) -> None:
    if not is_installed():
        pytest.skip("Slurm is not installed: sh tests/slurm/ensure-slurm.sh as root")
    with slurm_cluster(folder, list(fleet.nodes), when_away="open") as cluster:
        server = Server(fleet.token)
        settings = BridgeSettings(
            name=NAME, run_dir=cluster.run_dir, when_away=WhenAway.OPEN, away_s=0.2
        )
        bridge = Bridge(settings, server, slurm=cluster.slurm)
        before = cluster.submit()
        wait(lambda: cluster.state(before) == "RUNNING")
        bridge.step()
        held = cluster.submit()
        assert cluster.job(held)["priority"] == 0
        server.is_away = True
        time.sleep(0.3)
        bridge.step()
        wait(lambda: cluster.state(held) == "RUNNING")
        later = cluster.submit()
        wait(lambda: cluster.state(later) == "RUNNING")


@pytest.mark.slow(
    beside="tests/integration/admission/executors/test_schedulers.py::"
    "test_who_has_to_give_way_is_evicted_and_waits_again"
)
def test_a_measured_overload_has_a_job_give_way_that_can_be_started_again(site: Site) -> None:
    """Its rack is fed less than what is read there: nobody asks, the readings do."""
    ref = site.cluster.submit(script="echo start; exec sleep 600")
    site.until(lambda: site.phase(ref).state == "running")
    (node,) = site.attempts(ref)[0].placement["nodes"]
    rack = site.fleet.nodes[node].rack
    busy = {"power_w": lambda name, _: 690.0 if name == node else 80.0, "util": 95.0}
    lower_budget("rack", f"{rack.site.name}/{rack.name}", 3_000.0)
    site.until(lambda: site.phase(ref).state == "queued", **busy)
    (attempt,) = site.attempts(ref)
    assert attempt.outcome == "preempted"
    wait(lambda: site.cluster.state(ref) == "PENDING")
    assert "[headroom hold]" in site.shown(ref)
    lift_all()
    site.until(lambda: len(site.attempts(ref)) == 2 and _is_running(site, ref))
    site.until(lambda: site.said(ref).count("start") == 2)


def test_what_ended_agrees_with_what_slurm_has_written_down(site: Site) -> None:
    """``sacct -c`` reads what jobcomp/filetxt wrote: the accounting that needs no database."""
    # Their GPUs have been read before they begin.
    site.round()
    well = site.cluster.submit(script="sleep 2")
    badly = site.cluster.submit(script="sleep 1; exit 3")
    site.until(lambda: all(site.job(ref).ended_at for ref in (well, badly)))
    # Their GPUs are read once more, and then nothing more is awaited.
    site.round()
    assert energy.measure(time.time() + 700.0) == 2
    for ref, state, outcome, code in (
        (well, "COMPLETED", "succeeded", 0),
        (badly, "FAILED", "failed", 3),
    ):
        told = _completed(site, ref)
        (attempt,) = site.attempts(ref)
        assert (told["JobState"], attempt.outcome, attempt.exit_code) == (state, outcome, code)
        assert told["ExitCode"] == f"{code}:0"
        assert told["NodeList"] == ",".join(attempt.placement["nodes"])
        assert attempt.started_at is not None
        assert attempt.ended_at is not None
        # Slurm has whole seconds.
        assert attempt.started_at.timestamp() == pytest.approx(_unix(told["StartTime"]), abs=1.1)
        assert attempt.ended_at.timestamp() == pytest.approx(_unix(told["EndTime"]), abs=1.1)
        assert f" {state} " in site.cluster.run("sacct", "-c", "-n", "-j", ref)
        # All GPUs of its node are at 80 W, before and after, too.
        ran_s = _unix(told["EndTime"]) - _unix(told["StartTime"])
        assert attempt.energy_j == pytest.approx(4 * 80.0 * ran_s, abs=4 * 80.0 * 1.1)
        assert attempt.energy_share == pytest.approx(1.0, abs=0.05)


def _completed(site: Site, ref: str) -> dict[str, str]:
    lines = (site.cluster.folder / "jobcomp.log").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"JobId={ref} "))
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _unix(text: str) -> float:
    return datetime.fromisoformat(text).astimezone().timestamp()
