"""The twin's machines do what they are ordered, and tell of it as real ones do."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import numpy as np
import pytest

from headroom.client import Refused, Unavailable
from headroom.contracts import FieldError
from headroom.work.contract import (
    DesiredState,
    LogAsk,
    Order,
    SignalKind,
    SignalOrder,
    Task,
    WorkOrders,
    WorkOutcome,
    WorkReport,
    WorkReports,
    WorkState,
)
from lab.fleet import GPUS_PER_NODE, make_fleet
from lab.readings import Frame
from lab.twin import Twin
from lab.twin.network import Network
from lab.twin.storage import Storage
from lab.work import KILLED, LOST_GPU, PAUSE_WITHIN_S, Machines, WorkPolls

FLEET = make_fleet(gpus=64)
NODES = {name: number for number, name in enumerate(FLEET.nodes)}
FIRST, SECOND = FLEET.nodes[:2]
T = 1_790_000_000.0
KEY = "llama/train/1"


def make_task(**given: Any) -> Task:
    env = {
        "TWIN_WORK_S": "60",
        "TWIN_KIND": "train",
        "TWIN_ACTIVITY": "1.0",
        **given.pop("env", {}),
    }
    fields: dict[str, Any] = {
        "job": "llama", "phase": "train", "number": 1, "command": ["python", "train.py"],
        "env": env, "rank": 0, "nodes": [FIRST], "gpus": list(range(8)), "gpus_of_node": 8,
    }  # fmt: skip
    return Task(**{**fields, **given})


def order(wanted: DesiredState, *, node: str = FIRST, key: str = KEY, **given: Any) -> Order:
    return Order(attempt=key, node=node, wanted=wanted, **given)


class Bench:
    """A twin all of whose nodes are for the queue, and their machines."""

    def __init__(self) -> None:
        self.twin = Twin(FLEET, seed=3, queued=np.ones(len(NODES), dtype=bool))
        self.network = Network(self.twin, seed=3)
        self.storage = Storage(FLEET, self.twin.conditions)
        self.machines = Machines(NODES, store="store-1", clock=lambda: T + self.twin.now_s)

    def hear(self, *orders: Order) -> None:
        self.machines.hear(orders)

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.twin.workload.train(
                1.0, self.twin.pace_by_slot, network=self.network, storage=self.storage
            )
            self.machines.step(self.twin, 1.0)
            self.twin.advance(1.0)
            self.network.advance(1.0)

    def claim_and_run(self, task: Task | None = None, **given: Any) -> None:
        self.hear(order(DesiredState.CLAIM, task=task or make_task(**given)))
        self.run(1)
        self.hear(order(DesiredState.RUN))
        self.run(1)

    def report(self, node: str = FIRST, key: str = KEY) -> WorkReport:
        told = self.machines.reports()
        assert told is not None
        return next(each for each in told.reports if (each.node, each.attempt) == (node, key))

    def progress(self) -> list[dict[str, Any]]:
        return [dict(row) for row in self.machines.progress()]

    def gpus(self, node: str = FIRST) -> slice:
        first = NODES[node] * GPUS_PER_NODE
        return slice(first, first + GPUS_PER_NODE)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_claimed_does_not_run_yet(bench: Bench) -> None:
    bench.hear(order(DesiredState.CLAIM, task=make_task()))
    bench.run(3)
    assert bench.report().state is WorkState.CLAIMED
    assert not bench.twin.busy.any()


def test_what_runs_draws_power_under_the_name_of_its_job(bench: Bench) -> None:
    idle_w = bench.twin.power_w[bench.gpus()].sum()
    bench.claim_and_run(make_task(env={"TWIN_WORK_S": "1000"}))
    report = bench.report()
    assert (report.state, report.outcome) == (WorkState.RUNNING, None)
    assert report.started_at is not None
    bench.run(200)
    assert bench.twin.power_w[bench.gpus()].sum() > 3 * idle_w
    frame = Frame(bench.twin, Network(bench.twin, seed=1))
    gpus = frame.node(NODES[FIRST], T).gpus
    assert gpus is not None
    assert gpus.job == ["llama"] * GPUS_PER_NODE


def test_it_ends_by_itself_with_its_exit_code(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_EXIT_CODE": "3"})
    bench.run(58)
    assert bench.report().state is WorkState.RUNNING
    bench.run(10)
    report = bench.report()
    assert (report.state, report.outcome, report.exit_code) == (
        WorkState.ENDED, WorkOutcome.EXITED, 3,
    )  # fmt: skip
    assert report.ended_at is not None
    assert "100% of the work" in report.log_tail
    assert not bench.twin.busy.any()


def test_what_it_says_is_told_when_somebody_reads_it_also_once_it_is_over(bench: Bench) -> None:
    def read(start: int | None) -> tuple[int, str]:
        bench.machines.tell_logs([LogAsk(attempt=KEY, node=FIRST, start=start)])
        told = bench.machines.reports()
        assert told is not None
        (part,) = told.logs
        assert part.size == part.start + len(part.data)
        return part.start, part.data.decode()

    bench.claim_and_run(env={"TWIN_CHECKPOINT_S": "20"})
    bench.run(30)
    start, said = read(None)
    assert start == 0
    assert said.splitlines()[0].startswith("begins on ")
    assert "checkpoint: computed 2" in said
    bench.run(60)
    assert "ends with 0: computed" in read(len(said))[1]
    for node in {part.node for part in bench.machines.reports().reports}:  # type: ignore[union-attr]
        bench.hear(order(DesiredState.FORGET, node=node))
    assert read(0)[1].startswith(said)
    told = bench.machines.reports()
    assert told is not None
    assert told.logs == []  # once


def test_a_capped_gpu_takes_longer(bench: Bench) -> None:
    bench.claim_and_run(make_task(power_cap_w=300.0, env={"TWIN_WORK_S": "300"}))
    bench.run(320)
    assert (bench.twin.power_w[bench.gpus()] <= 300.5).all()
    assert bench.report().state is WorkState.RUNNING
    bench.run(400)
    assert bench.report().state is WorkState.ENDED
    assert (bench.twin.power_limit_w[bench.gpus()] > 300.5).all()


def test_two_tasks_share_a_node(bench: Bench) -> None:
    other = "eval/run/1"
    bench.hear(
        order(DesiredState.CLAIM, task=make_task(gpus=[0, 1])),
        order(DesiredState.CLAIM, key=other, task=make_task(job="eval", gpus=[4, 5, 6])),
    )
    bench.hear(order(DesiredState.RUN), order(DesiredState.RUN, key=other))
    bench.run(2)
    frame = Frame(bench.twin, Network(bench.twin, seed=1))
    gpus = frame.node(NODES[FIRST], T).gpus
    assert gpus is not None
    assert gpus.job == ["llama", "llama", None, None, "eval", "eval", "eval", None]
    bench.hear(order(DesiredState.STOP))
    bench.run(20)
    assert bench.twin.busy[bench.gpus()].sum() == 3


def test_what_is_told_to_end_ends_soon_and_says_so(bench: Bench) -> None:
    bench.claim_and_run()
    bench.hear(order(DesiredState.STOP, why="cancelled"))
    bench.run(20)
    assert bench.report().outcome is WorkOutcome.STOPPED
    assert not bench.twin.busy.any()


def test_what_is_told_to_end_before_it_began_never_begins(bench: Bench) -> None:
    bench.hear(order(DesiredState.CLAIM, task=make_task()))
    bench.run(1)
    bench.hear(order(DesiredState.STOP))
    bench.run(1)
    assert bench.report().outcome is WorkOutcome.NEVER_STARTED
    bench.hear(order(DesiredState.RUN))
    bench.run(2)
    assert bench.report().state is WorkState.ENDED
    bench.hear(order(DesiredState.STOP, key="unheard/of/1"))
    assert bench.report(key="unheard/of/1").outcome is WorkOutcome.NEVER_STARTED


def test_an_order_that_comes_twice_does_nothing_twice(bench: Bench) -> None:
    bench.claim_and_run()
    bench.run(70)
    assert bench.report().state is WorkState.ENDED
    bench.hear(order(DesiredState.CLAIM, task=make_task()), order(DesiredState.RUN))
    bench.run(3)
    assert bench.report().state is WorkState.ENDED
    assert not bench.twin.busy.any()


def test_only_what_has_ended_is_forgotten(bench: Bench) -> None:
    bench.claim_and_run()
    bench.hear(order(DesiredState.FORGET))
    assert bench.report().state is WorkState.RUNNING
    bench.run(70)
    bench.hear(order(DesiredState.FORGET))
    told = bench.machines.reports()
    assert told is not None
    assert told.reports == []


def test_checkpoints_are_told_when_they_are_due_and_when_they_are_asked_for(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_CHECKPOINT_S": "30", "TWIN_WORK_S": "120"})
    assert bench.report().checkpoint_at is None
    bench.run(40)
    first = bench.report().checkpoint_at
    assert first == pytest.approx(T + 36, abs=5)
    signal = SignalOrder(seq=1, kind=SignalKind.CHECKPOINT)
    bench.hear(order(DesiredState.RUN, signals=[signal]))
    bench.run(1)
    # Its loop comes to it after one of the next steps, and then it has to be written.
    assert (bench.report().signals_seen, bench.report().signals_done) == (1, 0)
    bench.run(12)
    report = bench.report()
    assert report.checkpoint_at is not None
    assert report.checkpoint_at > (first or 0)
    assert report.signals_done == 1
    assert report.done_at_step
    bench.run(5)
    assert bench.report().checkpoint_at == report.checkpoint_at  # told again, done once


def test_its_loop_reports_steps_and_what_it_learns(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_WORK_S": "300", "TWIN_CHECKPOINT_S": "60"})
    bench.run(40)
    (early,) = bench.progress()
    bench.run(220)
    (late,) = bench.progress()
    assert early["job"] == late["job"] == "llama"
    assert late["step"] > early["step"] > 0
    assert late["loss"] < early["loss"]
    jobs = bench.twin.workload.jobs
    slot = int(bench.twin.job_of_gpu[bench.gpus()][0])
    assert late["step"] == int(jobs.steps[slot])
    assert late["step_time_s"] == pytest.approx(jobs.progress(slot).step_s, rel=0.1)
    assert 0.0 < late["lost_share"] < 0.1  # its checkpoints
    assert late["rank_mem_bytes"] is None
    assert bench.progress() == []  # told once


def test_what_does_not_train_has_steps_and_no_loss(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_KIND": "evaluate"})
    bench.run(30)
    (row,) = bench.progress()
    assert row["step"]
    assert row["loss"] is None


def test_what_begins_again_here_goes_on_from_its_last_checkpoint(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_WORK_S": "300", "TWIN_CHECKPOINT_S": "60"})
    bench.run(100)
    bench.hear(order(DesiredState.STOP))
    bench.run(20)
    (before,) = bench.progress()
    left = bench.report()
    assert (left.outcome, left.exit_code) == (WorkOutcome.STOPPED, 143)
    second, env = "llama/train/2", {"TWIN_WORK_S": "300", "TWIN_CHECKPOINT_S": "60"}
    bench.hear(order(DesiredState.CLAIM, key=second, task=make_task(number=2, env=env)))
    bench.run(1)
    bench.hear(order(DesiredState.RUN, key=second))
    bench.run(40)
    (after,) = bench.progress()
    assert after["step"] > before["step"]
    assert after["step"] < before["step"] + 40
    elsewhere = Bench()
    elsewhere.claim_and_run(env=env)
    elsewhere.run(40)
    (anew,) = elsewhere.progress()
    assert anew["step"] < before["step"]


def test_what_still_loads_has_nothing_to_save_and_ends_at_once(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_WORK_S": "3000"})
    bench.hear(order(DesiredState.STOP))
    bench.run(2)
    report = bench.report()
    assert (report.outcome, report.exit_code) == (WorkOutcome.STOPPED, 143)
    assert report.checkpoint_at is None


def test_what_cannot_save_in_its_grace_is_killed_and_says_so(bench: Bench) -> None:
    bench.claim_and_run(make_task(grace_s=5.0, env={"TWIN_WORK_S": "900"}))
    bench.run(300)
    # Nothing is stored any more.
    bench.twin.conditions.storage_share[:] = 0.0
    bench.hear(order(DesiredState.STOP))
    bench.run(20)
    report = bench.report()
    assert (report.outcome, report.exit_code) == (WorkOutcome.STOPPED, KILLED)
    assert "not in time" in report.text


def test_a_paused_task_keeps_its_gpus_and_makes_no_progress(bench: Bench) -> None:
    bench.claim_and_run()
    bench.hear(order(DesiredState.RUN, signals=[SignalOrder(seq=1, kind=SignalKind.PAUSE)]))
    bench.run(120)
    assert bench.report().state is WorkState.PAUSED
    assert bench.report().signals_done == 1
    assert bench.report().done_at_step
    assert bench.twin.busy[bench.gpus()].all()
    bench.hear(order(DesiredState.RUN, signals=[SignalOrder(seq=2, kind=SignalKind.RESUME)]))
    bench.run(30)
    assert bench.report().state is WorkState.RUNNING
    bench.run(40)
    assert bench.report().state is WorkState.ENDED


def test_what_makes_no_step_is_stopped_all_the_same(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_WORK_S": "3000"})
    bench.hear(order(DesiredState.RUN, signals=[SignalOrder(seq=1, kind=SignalKind.PAUSE)]))
    bench.run(int(PAUSE_WITHIN_S) - 3)
    assert bench.report().state is WorkState.RUNNING  # it still loads
    bench.run(6)
    assert (bench.report().state, bench.report().signals_done) == (WorkState.PAUSED, 0)


def test_half_a_batch_takes_twice_as_long_and_less_power(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_WORK_S": "400", "TWIN_KIND": "serve"})
    bench.run(100)
    before_w = bench.twin.power_w[bench.gpus()].mean()
    scale = SignalOrder(seq=1, kind=SignalKind.SET_BATCH_SCALE, value=0.5)
    bench.hear(order(DesiredState.RUN, signals=[scale]))
    bench.run(330)
    assert bench.report().state is WorkState.RUNNING
    assert bench.twin.power_w[bench.gpus()].mean() < 0.9 * before_w


def test_a_cap_is_set_while_it_runs(bench: Bench) -> None:
    bench.claim_and_run(env={"TWIN_WORK_S": "900"})
    bench.run(150)
    cap = SignalOrder(seq=1, kind=SignalKind.SET_POWER_CAP, value=250.0)
    bench.hear(order(DesiredState.RUN, signals=[cap]))
    bench.run(20)
    assert (bench.twin.power_w[bench.gpus()] <= 250.5).all()


def test_walltime_without_pauses_is_the_longest_that_it_runs(bench: Bench) -> None:
    bench.claim_and_run(make_task(walltime_s=20.0))
    bench.run(25)
    report = bench.report()
    assert (report.outcome, report.exit_code) == (WorkOutcome.TIMED_OUT, 143)


def test_a_lost_gpu_ends_it(bench: Bench) -> None:
    bench.claim_and_run()
    slot = int(bench.twin.job_of_gpu[bench.gpus()][0])
    bench.twin.workload.fail(slot, bench.twin.now_s)
    bench.run(2)
    report = bench.report()
    assert (report.outcome, report.exit_code) == (WorkOutcome.EXITED, LOST_GPU)
    assert not bench.twin.busy.any()


def test_a_gang_of_two_nodes_ends_on_both(bench: Bench) -> None:
    gang = [FIRST, SECOND]
    for rank, node in enumerate(gang):
        bench.hear(order(DesiredState.CLAIM, node=node, task=make_task(nodes=gang, rank=rank)))
    bench.run(1)
    bench.hear(*(order(DesiredState.RUN, node=node) for node in gang))
    bench.run(2)
    assert (
        bench.twin.job_of_gpu[bench.gpus(FIRST)][0] == bench.twin.job_of_gpu[bench.gpus(SECOND)][0]
    )
    bench.run(70)
    assert [bench.report(node).exit_code for node in gang] == [0, 0]


def test_a_silent_machine_says_nothing(bench: Bench) -> None:
    bench.claim_and_run()
    bench.twin.silent_until_s[NODES[FIRST]] = bench.twin.now_s + 60.0
    bench.run(1)
    told = bench.machines.reports()
    assert told is not None
    assert (FIRST in told.nodes, told.reports) == (False, [])
    bench.run(65)
    assert bench.report().state is WorkState.ENDED
    bench.twin.silent_until_s[:] = np.inf
    bench.run(1)
    assert bench.machines.reports() is None


def test_reports_are_what_the_server_takes(bench: Bench) -> None:
    bench.claim_and_run(walltime_s=10.0)
    bench.run(20)
    told = bench.machines.reports()
    assert msgspec.json.decode(msgspec.json.encode(told), type=WorkReports) == told


def test_pools_leave_the_nodes_that_are_for_the_queue_alone() -> None:
    queued = np.zeros(len(NODES), dtype=bool)
    queued[:2] = True
    twin = Twin(FLEET, seed=3, queued=queued)
    twin.advance(600.0)
    assert not twin.busy[: 2 * GPUS_PER_NODE].any()
    assert twin.busy.any()


# --- The polls -----------------------------------------------------------------------------------


class FakeServer:
    """Answers with orders, or fails as told."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.heard: list[WorkReports] = []

    def report_work(self, reports: WorkReports) -> WorkOrders:
        self.heard.append(reports)
        answer = self.answers.pop(0) if self.answers else []
        if isinstance(answer, Exception):
            raise answer
        return WorkOrders(now=T, orders=answer, poll_s=0.01, report_s=1.0)


def test_polls_bring_orders_and_take_reports(bench: Bench) -> None:
    server = FakeServer([order(DesiredState.CLAIM, task=make_task())])
    polls = WorkPolls([(server, bench.machines)], stop=threading.Event())
    polls.exchange(0)
    bench.run(1)
    polls.exchange(0)
    assert [len(each.reports) for each in server.heard] == [0, 1]
    assert server.heard[0].nodes == list(NODES)
    assert server.heard[0].store == server.heard[1].store == "store-1"


@pytest.mark.parametrize(
    "error", [Unavailable("away"), Refused(400, FieldError(code="bad", message="no"))]
)
def test_while_the_server_fails_what_runs_goes_on(bench: Bench, error: Exception) -> None:
    bench.claim_and_run()
    polls = WorkPolls([(FakeServer(error), bench.machines)], stop=threading.Event())
    polls.exchange(0)
    bench.run(5)
    assert bench.report().state is WorkState.RUNNING


def test_the_thread_polls_in_turn_until_it_is_stopped(bench: Bench) -> None:
    stop, server = threading.Event(), FakeServer()
    polls = WorkPolls([(server, bench.machines)] * 2, stop=stop)
    polls._poll_s = 0.01
    polls.start()
    for _ in range(200):
        if len(server.heard) > 3:
            break
        threading.Event().wait(0.01)
    stop.set()
    polls.join(2.0)
    assert len(server.heard) > 3
