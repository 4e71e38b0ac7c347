"""The runner with real shims and commands, against a server that says what a test wants."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.agent.devices import Row
from headroom.agent.sources.training import TrainingSource
from headroom.errors import Unavailable
from headroom.work.claim_journal import ClaimJournal, ClaimState, JournalError
from headroom.work.contract import (
    DesiredState,
    Order,
    SignalKind,
    SignalOrder,
    Task,
    WorkOrders,
    WorkOutcome,
    WorkReport,
    WorkReports,
)
from headroom.work.runner import Runner, RunnerSettings

REPOSITORY = Path(__file__).resolve().parents[4]
KEY = "llama/train/1"
_LIMIT_S = 60.0


class Server:
    """Wants what ``orders`` says, until that is changed."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.reports: dict[str, WorkReport] = {}
        self.looks = 0
        self.posts = 0
        self.is_away = False
        self.fence_s: float | None = None

    def work(self, node: str, store: str, *, timeout_s: float | None = None) -> WorkOrders:
        self.looks += 1
        return self._answer()

    def report_work(self, reports: WorkReports, *, timeout_s: float | None = None) -> WorkOrders:
        self.posts += 1
        answer = self._answer()
        self.reports = {report.attempt: report for report in reports.reports}
        return answer

    def _answer(self) -> WorkOrders:
        if self.is_away:
            raise Unavailable("away", retry_after_s=1.0)
        return WorkOrders(
            now=time.time(), orders=self.orders, poll_s=2.0, report_s=30.0, fence_s=self.fence_s
        )

    def wants(self, wanted: DesiredState, **given: Any) -> None:
        self.orders = [Order(attempt=KEY, node="n1", wanted=wanted, **given)]


def task(script: str, **given: Any) -> Task:
    fields: dict[str, Any] = {
        "job": "llama", "phase": "train", "number": 1, "command": ["/bin/sh", "-c", script],
        "rank": 0, "nodes": ["n1", "n2"], "gpus": [2, 0], "gpus_of_node": 8, "grace_s": _LIMIT_S,
    }  # fmt: skip
    return Task(**{**fields, **given})


class Machine:
    def __init__(self, folder: Path) -> None:
        self.server = Server()
        self.folder = folder / "jobs"
        self.training = TrainingSource()
        self.runner = self._open()

    def _open(self) -> Runner:
        settings = RunnerSettings(node="n1", folder=self.folder, limits=False)
        return Runner(settings, self.server, training=self.training, draw=lambda: 0.5)

    def restart(self) -> None:
        self.runner.close()
        self.runner = self._open()

    def start(self, script: str, **given: Any) -> None:
        self.server.wants(DesiredState.CLAIM, task=task(script, **given))
        self.runner.round()
        self.server.wants(DesiredState.RUN)
        self.runner.round()

    def until(self, state: str) -> WorkReport:
        end = time.monotonic() + _LIMIT_S
        while True:
            self.runner.round()
            report = self.server.reports.get(KEY)
            if report is not None and report.state == state:
                return report
            assert time.monotonic() < end, report
            time.sleep(0.02)

    def file(self, name: str) -> Path:
        return self.folder / "attempts" / "00000001" / name


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.server.wants(DesiredState.STOP)
    for claim in made.runner.held():
        if claim.state is ClaimState.STARTING:
            made.until("ended")
    made.runner.close()
    made.training.close()


def test_a_claim_is_on_disk_before_it_is_told_and_starts_nothing(machine: Machine) -> None:
    machine.server.wants(DesiredState.CLAIM, task=task("touch ../started-it"))
    assert machine.runner.round() < 1  # to say so at once
    assert [claim.state for claim in machine.runner.held()] == [ClaimState.CLAIMED]
    assert machine.server.reports == {}
    machine.runner.round()
    assert machine.server.reports[KEY].state == "claimed"
    assert not machine.file("started").exists()


def test_a_job_runs_and_its_end_is_told_until_it_is_known(machine: Machine) -> None:
    machine.start("echo $HEADROOM_RANK of $HEADROOM_NODES; exit 3")
    report = machine.until("ended")
    assert (report.outcome, report.exit_code) == ("exited", 3)
    assert report.log_tail == "0 of n1,n2\n"
    machine.runner.round()
    assert machine.server.reports[KEY] == report
    machine.server.wants(DesiredState.FORGET)
    machine.runner.round()
    assert machine.runner.held() == []
    assert not machine.file("work").exists()
    assert machine.file("log").exists()


def test_what_was_here_once_is_never_taken_again(machine: Machine) -> None:
    machine.start("exit 0")
    machine.until("ended")
    machine.server.wants(DesiredState.FORGET)
    machine.runner.round()
    machine.server.wants(DesiredState.CLAIM, task=task("exit 0"))
    machine.runner.round()
    machine.runner.round()
    report = machine.server.reports[KEY]
    assert (report.state, report.outcome) == ("ended", "never_started")
    machine.server.wants(DesiredState.RUN)
    machine.runner.round()
    assert machine.runner.held() == []


def test_what_is_to_run_and_was_not_claimed_is_refused_for_good(machine: Machine) -> None:
    machine.server.wants(DesiredState.RUN)
    machine.runner.round()
    machine.runner.round()
    assert machine.server.reports[KEY].outcome == "never_started"
    machine.server.wants(DesiredState.CLAIM, task=task("exit 0"))
    machine.runner.round()
    assert [claim.state for claim in machine.runner.held()] == [ClaimState.ENDED]


def test_a_claim_that_is_stopped_before_it_starts_never_starts(machine: Machine) -> None:
    machine.server.wants(DesiredState.CLAIM, task=task("exit 0"))
    machine.runner.round()
    machine.server.wants(DesiredState.STOP, why="withdrawn")
    machine.runner.round()
    machine.server.wants(DesiredState.RUN)
    machine.runner.round()
    machine.runner.round()
    report = machine.server.reports[KEY]
    assert (report.outcome, report.text) == ("never_started", "withdrawn")
    assert not machine.file("started").exists()


def test_a_job_outlives_its_runner_and_its_exit_code_too(machine: Machine) -> None:
    machine.start("echo up; while [ ! -e go ]; do sleep 0.02; done; exit 7")
    machine.until("running")
    machine.restart()
    assert machine.until("running").started_at is not None
    machine.runner.close()
    machine.file("work/go").touch()
    end = time.monotonic() + _LIMIT_S
    while not machine.file("exit.json").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    machine.runner = machine._open()
    assert machine.until("ended").exit_code == 7


def test_a_runner_that_was_killed_before_it_could_start_a_job_starts_it_in_its_next_life(
    machine: Machine,
) -> None:
    machine.server.wants(DesiredState.CLAIM, task=task("exit 0"))
    machine.runner.round()
    machine.runner.close()
    journal = ClaimJournal(machine.folder / "book.sqlite")
    assert journal.start(KEY)
    journal.close()
    machine.runner = machine._open()
    machine.server.wants(DesiredState.RUN)
    assert machine.until("ended").exit_code == 0


def test_a_job_whose_shim_is_killed_is_lost_and_leaves_nothing(machine: Machine) -> None:
    machine.start("setsid sleep 60 & echo $! > pids; echo $PPID >> pids; exec sleep 60")
    machine.until("running")
    end = time.monotonic() + _LIMIT_S
    while not machine.file("work/pids").exists() or len(pids(machine)) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    left, shim = pids(machine)
    os.kill(shim, signal.SIGKILL)
    report = machine.until("ended")
    assert (report.outcome, report.exit_code) == ("lost", None)
    assert not is_alive(left)


def pids(machine: Machine) -> list[int]:
    return [int(word) for word in machine.file("work/pids").read_text().split()]


def is_alive(pid: int) -> bool:
    end = time.monotonic() + 30.0
    while time.monotonic() < end:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except FileNotFoundError:
            return False
        if stat.rpartition(")")[2].split()[0] == "Z":
            return False
        time.sleep(0.02)
    return True


def test_a_stop_ends_a_job_in_peace(machine: Machine) -> None:
    machine.start("trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done")
    machine.until("running")
    machine.server.wants(DesiredState.STOP)
    assert machine.until("ended").outcome == "stopped"


def test_directives_reach_the_job_and_what_it_says_of_them_the_server(machine: Machine) -> None:
    answer = '{\\"checkpoint_at\\": 1000.5, \\"done\\": 2}'
    machine.start(
        f'trap \'cp "$HEADROOM_DIRECTIVES" seen; echo "{answer}" > "$HEADROOM_STATUS"\' USR1;'
        " touch ready; while :; do sleep 0.02; done"
    )
    machine.until("running")
    end = time.monotonic() + _LIMIT_S
    while not machine.file("work/ready").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    signals = [
        SignalOrder(seq=1, kind=SignalKind.CHECKPOINT),
        SignalOrder(seq=2, kind=SignalKind.SET_BATCH_SCALE, value=0.5),
    ]
    machine.server.wants(DesiredState.RUN, signals=signals)
    machine.runner.round()
    while machine.server.reports[KEY].signals_done < 2:
        assert time.monotonic() < end
        machine.runner.round()
        time.sleep(0.02)
    report = machine.server.reports[KEY]
    assert (report.signals_seen, report.checkpoint_at) == (2, 1000.5)
    seen = machine.file("work/seen").read_text()
    assert seen == '{"seq":2,"checkpoint":1,"batch_scale":0.5,"power_cap_w":null,"paused":0}'


#: Makes steps until it is told to end; says on its standard output what it does.
_LOOP = """
import time
from headroom import training

def tell(what):
    print(what, flush=True)

with training.session(
    save=lambda step: tell(f"saved {step}"),
    free=lambda: tell("free"),
    restore=lambda: tell("restore"),
) as run:
    while True:
        time.sleep(0.01)
        run.step(loss=0.5, samples=4)
"""


def start_loop(machine: Machine) -> None:
    command = [sys.executable, "-c", _LOOP]
    machine.start("", command=command, env={"PYTHONPATH": str(REPOSITORY)})
    status = machine.file("work") / ".headroom-status.json"
    machine.until("running")
    wait_until(status.exists)


def said(machine: Machine) -> list[str]:
    log = machine.file("log")
    return log.read_text().splitlines() if log.exists() else []


def wait_until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_a_job_that_hears_stands_still_at_a_step_before_it_is_frozen(machine: Machine) -> None:
    start_loop(machine)
    machine.server.wants(DesiredState.RUN, signals=[SignalOrder(seq=1, kind=SignalKind.PAUSE)])
    report = machine.until("paused")
    assert report.signals_done == 1
    assert report.done_at_step
    wait_until(lambda: said(machine) == ["free"])
    resume = [SignalOrder(seq=2, kind=SignalKind.RESUME)]
    machine.server.wants(DesiredState.RUN, signals=resume)
    machine.until("running")
    wait_until(lambda: said(machine) == ["free", "restore"])
    wait_until(lambda: machine.until("running").signals_done == 2)


def test_a_job_that_hears_and_does_not_stand_still_is_frozen_all_the_same(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headroom.work.runner._PAUSE_WITHIN_S", 0.2)
    hears = """echo '{"hears": true}' > .headroom-status.json; echo up; sleep 60"""
    machine.start(hears)
    machine.until("running")
    wait_until(lambda: said(machine) == ["up"])
    machine.server.wants(DesiredState.RUN, signals=[SignalOrder(seq=1, kind=SignalKind.PAUSE)])
    machine.runner.round()
    assert machine.until("paused").signals_done == 0


def test_a_job_that_hears_saves_when_it_is_stopped_and_reports_its_progress(
    machine: Machine,
) -> None:
    start_loop(machine)
    rows: list[Row] = []

    def is_heard() -> bool:
        machine.runner.round()
        # What it says first is that it has begun.
        rows.extend(row for row in machine.training.read() if row["loss"] is not None)
        return bool(rows)

    wait_until(is_heard)
    assert rows[0]["job"] == "llama/train"
    assert rows[0]["loss"] == 0.5
    assert float(rows[0]["samples_per_s"] or 0) > 1
    machine.server.wants(DesiredState.STOP)
    report = machine.until("ended")
    assert report.outcome == WorkOutcome.STOPPED
    assert said(machine)[-1].startswith("saved ")
    assert report.checkpoint_at is not None


def test_a_pause_holds_over_a_restart_of_the_runner(machine: Machine) -> None:
    machine.start("while :; do sleep 0.02; done")
    machine.until("running")
    machine.server.wants(DesiredState.RUN, signals=[SignalOrder(seq=1, kind=SignalKind.PAUSE)])
    machine.until("paused")
    machine.restart()
    machine.until("paused")
    machine.server.wants(DesiredState.RUN, signals=[SignalOrder(seq=2, kind=SignalKind.RESUME)])
    machine.until("running")


def test_an_idle_machine_looks_and_reports_only_now_and_then(machine: Machine) -> None:
    for _ in range(5):
        machine.runner.round()
    assert (machine.server.posts, machine.server.looks) == (1, 4)


def test_while_the_server_is_away_jobs_run_on_and_their_ends_are_kept(machine: Machine) -> None:
    machine.start("exit 5")
    machine.runner.round()
    machine.server.is_away = True
    end = time.monotonic() + _LIMIT_S
    while machine.runner.held()[0].state is not ClaimState.ENDED:
        assert time.monotonic() < end
        assert machine.runner.round() >= 1.0
        time.sleep(0.02)
    machine.server.is_away = False
    assert machine.until("ended").exit_code == 5


def test_an_order_for_another_node_is_not_obeyed(machine: Machine) -> None:
    machine.server.orders = [
        Order(attempt=KEY, node="n2", wanted=DesiredState.CLAIM, task=task("exit 0"))
    ]
    machine.runner.round()
    assert machine.runner.held() == []


def test_two_runners_do_not_share_a_folder(machine: Machine) -> None:
    with pytest.raises(JournalError, match="another process runs jobs"):
        machine._open()


# --- The server is away ---------------------------------------------------------------------------

_TICKS = "i=0; while :; do i=$((i+1)); echo $i > at.new; mv at.new at; sleep 0.02; done"


def test_a_job_of_which_the_server_is_not_heard_stands_still_and_goes_on_when_it_is(
    machine: Machine,
) -> None:
    machine.server.fence_s = 3.0
    machine.start(_TICKS)
    machine.until("running")
    machine.server.is_away = True
    end = time.monotonic() + _LIMIT_S
    # The runner may do as it likes, or nothing: it is the shim who stops the job.
    while not machine.file("fenced").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    machine.server.is_away = False
    assert "the server was not heard" in machine.until("paused").text
    assert machine.until("running").text == ""


def test_a_job_that_was_given_to_others_meanwhile_never_goes_on(machine: Machine) -> None:
    machine.server.fence_s = 3.0
    machine.start("trap 'touch went-on; exit 0' TERM; " + _TICKS)
    machine.until("running")
    end = time.monotonic() + _LIMIT_S
    while not machine.file("fenced").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    machine.server.wants(DesiredState.STOP)
    report = machine.until("ended")
    assert (report.outcome, report.exit_code) == ("stopped", 128 + signal.SIGKILL)
    assert not machine.file("work/went-on").exists()


def test_what_an_earlier_life_was_to_start_waits_until_the_server_says_so_again(
    machine: Machine,
) -> None:
    machine.server.wants(DesiredState.CLAIM, task=task("touch it-ran"))
    machine.runner.round()
    machine.server.wants(DesiredState.RUN)
    assert machine.runner._journal.start(KEY)
    machine.restart()
    machine.server.is_away = True
    for _ in range(5):
        machine.runner.round()
        time.sleep(0.02)
    assert not machine.file("started").exists()
    machine.server.is_away = False
    machine.server.wants(DesiredState.STOP, why="given to another machine")
    machine.runner.round()
    report = machine.until("ended")
    assert (report.outcome, report.text) == ("never_started", "given to another machine")
    assert not machine.file("work/it-ran").exists()


# --- What a job puts in the way -------------------------------------------------------------------

_IN_THE_WAY = {
    "a pipe as status": 'mkfifo "$HEADROOM_STATUS"',
    "a folder as status": 'mkdir "$HEADROOM_STATUS"',
    "a link as status": 'ln -s /dev/zero "$HEADROOM_STATUS"',
    "garbage as end": "echo nonsense > ../exit.json",
    "a folder as end": "mkdir ../exit.json",
    "a pipe as end": "mkfifo ../exit.json",
    "a false end": 'echo \'{"exit_code":0,"stopped":false,"timed_out":false,"ended_at":1}\''
    " > ../exit.json",
    "a pipe as log": "rm -f ../log; mkfifo ../log",
    "a folder as directives": "rm -f ../directives.json; mkdir -p ../directives.json/x",
    "a folder as control": "rm ../control; mkdir ../control",
    "a file as control": "rm ../control; echo > ../control",
}


@pytest.mark.parametrize("kind", _IN_THE_WAY)
def test_what_a_job_puts_in_the_way_is_its_own_trouble_alone(machine: Machine, kind: str) -> None:
    """Where jobs have no user of their own they reach the shim's files, too."""
    machine.start(f"{_IN_THE_WAY[kind]}; touch in-the-way; while [ ! -e go ]; do sleep 0.02; done")
    machine.until("running")
    end = time.monotonic() + _LIMIT_S
    while not machine.file("work/in-the-way").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    other = Order(attempt="other/run/1", node="n1", wanted=DesiredState.CLAIM, task=task("exit 0"))
    signals = [SignalOrder(seq=1, kind=SignalKind.CHECKPOINT)]
    run = Order(attempt=KEY, node="n1", wanted=DesiredState.RUN, signals=signals)
    machine.server.orders = [run, other]
    machine.runner.round()
    machine.server.orders = [run, Order(attempt="other/run/1", node="n1", wanted=DesiredState.RUN)]
    while (report := machine.server.reports.get("other/run/1")) is None or report.state != "ended":
        assert time.monotonic() < end
        machine.runner.round()
        time.sleep(0.02)
    assert report.exit_code == 0
    assert machine.server.reports[KEY].state == "running"
    machine.file("work/go").touch()
    assert machine.until("ended").exit_code == 0


def test_jobs_of_a_second_project_wait_where_all_have_one_user(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    orders = [
        Order(attempt=f"{project}/run/1", node="n1", wanted=DesiredState.CLAIM,
              task=task("exit 0", project=project))
        for project in ("vision", "speech")
    ]  # fmt: skip
    machine.server.orders = orders
    machine.runner.round()
    machine.runner.round()
    first, second = (machine.server.reports[order.attempt] for order in orders)
    assert first.state == "claimed"
    assert (second.state, second.outcome) == ("ended", "never_started")
    assert "jobs of another project run here" in second.text
    machine.runner.close()


def test_the_books_of_a_machine_are_for_nobody_else(machine: Machine) -> None:
    machine.start("exit 0")
    machine.until("ended")
    for name in ("book.sqlite", "book.sqlite-wal", "attempts/00000001/task.json"):
        assert (machine.folder / name).stat().st_mode & 0o077 == 0
