"""The supervisor over small services, real processes and real signals."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from config.backoff import Backoff
from config.supervisor import Output, Service, Supervisor
from tests.integration.embedded.helpers import REPOSITORY, running, until


def shell(name: str, script: str, *, stop_rank: int = 0, needs_ready: bool = False) -> Service:
    return Service(name, ("sh", "-c", script), stop_rank=stop_rank, needs_ready=needs_ready)


def logs_in(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir(exist_ok=True)
    return logs


def supervise(
    tmp_path: Path,
    services: list[Service],
    enough: Callable[[], bool],
    *,
    grace_s: float = 10.0,
    is_ready: Callable[[], bool] = lambda: True,
    stop_with: tuple[signal.Signals, ...] = (signal.SIGTERM,),
    color: bool = False,
) -> str:
    """Run until `enough`, then send the signals to ourselves; return what was shown."""
    shown = io.StringIO()
    output = Output(logs_in(tmp_path), shown, color=color)
    deadline = time.monotonic() + 60
    left = list(stop_with)

    def watch() -> None:
        if left and (enough() or time.monotonic() > deadline):
            os.kill(os.getpid(), left.pop(0))

    Supervisor(
        services,
        output,
        env=os.environ,
        cwd=tmp_path,
        is_ready=is_ready,
        watch=watch,
        backoff=lambda: Backoff(first_s=0.05),
        grace_s=grace_s,
    ).run()
    output.close()
    return shown.getvalue()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_what_services_say_is_shown_under_their_name_and_kept(tmp_path: Path) -> None:
    said = tmp_path / "said"
    service = shell("web", f"echo one; echo two >&2; printf three; touch {said}; sleep 600")
    log = tmp_path / "logs" / "web.log"

    shown = supervise(tmp_path, [service], lambda: said.exists() and "two" in lines(log))

    assert "web     | one\n" in shown
    assert "web     | two\n" in shown
    assert lines(log) == ["one", "two", "three"]
    assert "\x1b[" not in shown


def test_on_a_terminal_names_are_colored(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "web.log"

    shown = supervise(
        tmp_path, [shell("web", "echo one; sleep 600")], lambda: bool(lines(log)), color=True
    )

    assert "\x1b[36m" in shown
    assert "\x1b[0m one\n" in shown


def test_a_line_without_end_does_not_fill_memory(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "web.log"
    said = tmp_path / "said"
    service = shell("web", f"head -c 300000 /dev/zero | tr '\\0' x; touch {said}; sleep 600")

    supervise(tmp_path, [service], said.exists)

    assert sum(len(line) for line in lines(log)) == 300_000
    assert len(lines(log)) > 1


def test_a_service_that_dies_is_started_again_with_growing_waits(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    service = shell("web", f"date +%s.%N >> {starts}; exit 3")

    shown = supervise(tmp_path, [service], lambda: len(lines(starts)) >= 4)

    times = [float(line) for line in lines(starts)]
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert all(wait >= least for wait, least in zip(waits, (0.05, 0.1, 0.2), strict=False))
    assert "ended (status 3); again in 0.1 s" in shown


def test_what_a_dead_service_left_is_ended_before_it_starts_again(tmp_path: Path) -> None:
    """As web workers, which would go on holding the port."""
    marker = f"6{os.getpid()}"
    starts = tmp_path / "starts"
    service = shell("web", f"echo x >> {starts}; sleep {marker} & kill -9 $$")

    supervise(tmp_path, [service], lambda: len(lines(starts)) >= 3)

    assert until(lambda: not running("sleep", marker))


def test_a_service_runs_at_its_priority(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "web.log"
    service = Service("web", ("sh", "-c", "nice; sleep 600"), niceness=7)

    supervise(tmp_path, [service], lambda: bool(lines(log)))

    assert lines(log) == [str(os.nice(0) + 7)]


def test_services_stop_rank_by_rank(tmp_path: Path) -> None:
    order = tmp_path / "order"

    def slow_to_stop(name: str, rank: int) -> Service:
        script = (
            f"trap 'echo {name} stops >> {order}; sleep 0.2; echo {name} stopped >> {order}; exit'"
            f" TERM; echo {name} up >> {order}; while :; do sleep 0.02; done"
        )
        return shell(name, script, stop_rank=rank)

    services = [slow_to_stop("web", 1), slow_to_stop("worker", 2), slow_to_stop("demo", 0)]
    supervise(tmp_path, services, lambda: len(lines(order)) == 3)

    assert lines(order)[3:] == [
        f"{name} {what}" for name in ("demo", "web", "worker") for what in ("stops", "stopped")
    ]


def test_a_service_that_does_not_stop_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    marker = f"7{os.getpid()}"
    up = tmp_path / "up"
    service = shell("worker", f"trap '' TERM; sleep {marker} & echo x > {up}; wait; sleep {marker}")

    began = time.monotonic()
    supervise(tmp_path, [service], lambda: bool(lines(up)), grace_s=0.5)

    assert time.monotonic() - began >= 0.5
    assert until(lambda: not running("sleep", marker))


def test_a_second_signal_hurries(tmp_path: Path) -> None:
    up = tmp_path / "up"
    service = shell("worker", f"trap '' TERM; echo x > {up}; while :; do sleep 0.05; done")

    began = time.monotonic()
    supervise(
        tmp_path,
        [service],
        lambda: bool(lines(up)),
        grace_s=60,
        stop_with=(signal.SIGINT, signal.SIGINT),
    )

    assert time.monotonic() - began < 50


def test_some_services_wait_for_readiness(tmp_path: Path) -> None:
    order = tmp_path / "order"
    services = [
        shell("agent", f"echo agent >> {order}; exec sleep 600", needs_ready=True),
        shell("web", f"sleep 0.3; echo web >> {order}; exec sleep 600"),
    ]

    supervise(
        tmp_path,
        services,
        lambda: "agent" in lines(order),
        is_ready=lambda: "web" in lines(order),
    )

    assert lines(order) == ["web", "agent"]


def test_a_command_runs_once_and_its_status_counts(tmp_path: Path) -> None:
    shown = io.StringIO()
    output = Output(logs_in(tmp_path), shown)
    supervisor = Supervisor([], output, env=os.environ, cwd=tmp_path)

    assert supervisor.run_once(shell("prepare", "echo done")) == 0
    assert supervisor.run_once(shell("prepare", "echo no >&2; exit 4")) == 4
    output.close()
    assert "prepare | done\n" in shown.getvalue()
    assert "prepare | no\n" in shown.getvalue()


def test_a_terminal_that_went_away_is_no_reason_to_stop(tmp_path: Path) -> None:
    shown = io.StringIO()
    output = Output(logs_in(tmp_path), shown)
    shown.close()

    output.line("web", "one")
    output.close()

    assert lines(tmp_path / "logs" / "web.log") == ["one"]


_KILLED = """
import os, sys
from pathlib import Path
from config.supervisor import Output, Service, Supervisor
script = "trap 'kill $child; exit' TERM; sleep " + sys.argv[2] + " & child=$!; echo up; wait"
services = [Service("web", ("sh", "-c", script)), Service("beat", ("sleep", sys.argv[2]))]
Supervisor(services, Output(Path(sys.argv[1])), env=os.environ, cwd=Path.cwd()).run()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_killing_the_supervisor_leaves_no_orphan(tmp_path: Path) -> None:
    marker = f"8{os.getpid()}"
    command = [sys.executable, "-c", _KILLED, str(logs_in(tmp_path)), marker]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL) as supervisor:
        # The shell and both who sleep: a child of the shell that is not one yet hears no signal.
        assert until(lambda: len(running(f"sleep {marker}")) == 3)
        assert until(lambda: "up" in lines(tmp_path / "logs" / "web.log"))
        supervisor.kill()

    assert until(lambda: not running(marker))
