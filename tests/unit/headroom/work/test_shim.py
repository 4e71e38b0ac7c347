"""The shim: real commands, started once, watched to their end, whoever dies meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.work import shim
from headroom.work.folder import Folder, Marks

SHIM = str(Path(shim.__file__))
_LIMIT_S = 60.0


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


class Herd:
    """Starts shims in folders, and leaves none behind."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path / "attempt")
        self.processes: list[subprocess.Popen[bytes]] = []

    def write(self, script: str, **given: Any) -> None:
        self.folder.work.mkdir(parents=True)
        task = {
            "command": ["/bin/sh", "-c", script], "env": {"PATH": os.environ["PATH"]},
            "cwd": str(self.folder.work), "walltime_s": None, "grace_s": 60.0,
            "log_bytes": 100_000, "cgroups": [], **given,
        }  # fmt: skip
        (self.folder.path / "task.json").write_text(json.dumps(task))

    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", SHIM, str(self.folder.path)], start_new_session=True
        )
        self.processes.append(process)
        return process

    def run(self, script: str, **given: Any) -> Marks:
        self.write(script, **given)
        assert self.start().wait(_LIMIT_S) == 0
        return self.folder.marks()

    def begin(self, script: str, **given: Any) -> subprocess.Popen[bytes]:
        """Start, and wait until the command says "ready"."""
        self.write(script, **given)
        process = self.start()
        until(lambda: "ready" in self.folder.log_tail())
        return process

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def herd(tmp_path: Path) -> Iterator[Herd]:
    made = Herd(tmp_path)
    yield made
    made.close()


def test_an_exit_code_is_written_down(herd: Herd) -> None:
    marks = herd.run("echo said; exit 3")
    assert marks.exit is not None
    assert (marks.exit.exit_code, marks.exit.stopped, marks.exit.timed_out) == (3, False, False)
    assert not marks.is_watched
    assert marks.started_at is not None
    assert herd.folder.log_tail() == "said\n"


def test_an_end_by_a_signal_is_written_as_shells_do(herd: Herd) -> None:
    marks = herd.run("kill -9 $$")
    assert marks.exit is not None
    assert marks.exit.exit_code == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [([], 127, "no command"), (["/no/such"], 127, "No such file"), (["/tmp"], 126, "denied")],
)
def test_a_command_that_cannot_be_started_says_why(
    herd: Herd, command: list[str], code: int, said: str
) -> None:
    marks = herd.run("", command=command)
    assert marks.exit is not None
    assert marks.exit.exit_code == code
    assert said in herd.folder.log_tail()


def test_of_several_shims_one_starts_the_command_and_no_later_one_does(herd: Herd) -> None:
    herd.write("echo started >> count; sleep 0.2")
    together = [herd.start() for _ in range(4)]
    for process in together:
        process.wait(_LIMIT_S)
    herd.start().wait(_LIMIT_S)
    assert (herd.folder.work / "count").read_text() == "started\n"


def test_a_command_does_not_outlive_a_shim_that_is_killed(herd: Herd) -> None:
    process = herd.begin("echo $$ > pid; echo ready; exec sleep 60")
    pid = int((herd.folder.work / "pid").read_text())
    assert herd.folder.marks().is_watched
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))
    marks = herd.folder.marks()
    assert (marks.is_watched, marks.exit) == (False, None)
    assert marks.started_at is not None
    # And another one does not start it again.
    assert herd.start().wait(_LIMIT_S) == 0
    assert herd.folder.marks().exit is None


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_what_a_command_leaves_behind_is_ended_with_it(herd: Herd) -> None:
    herd.run(
        "setsid sh -c 'echo $$ > pid; exec sleep 60' & while [ ! -s pid ]; do sleep 0.01; done"
    )
    assert not Path(f"/proc/{(herd.folder.work / 'pid').read_text().strip()}").exists()


def test_a_stop_lets_the_command_end_in_peace(herd: Herd) -> None:
    process = herd.begin("trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.02; done")
    assert herd.folder.tell("stop")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert (marks.exit.exit_code, marks.exit.stopped) == (0, True)
    assert "saved" in herd.folder.log_tail()
    assert not herd.folder.tell("stop")


def test_who_does_not_end_in_peace_is_killed_after_the_grace(herd: Herd) -> None:
    process = herd.begin("trap '' TERM; echo ready; while :; do sleep 0.02; done", grace_s=0.2)
    herd.folder.tell("stop")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert marks.exit.exit_code == 128 + signal.SIGKILL


def test_a_paused_command_stands_still_and_its_walltime_too(herd: Herd) -> None:
    script = "echo ready; i=0; while [ $i -lt 10 ]; do i=$((i+1)); echo $i > at; sleep 0.02; done"
    process = herd.begin(script, walltime_s=1.0)
    herd.folder.tell("pause")
    until(lambda: herd.folder.marks().is_paused)
    time.sleep(0.1)
    stands_at = (herd.folder.work / "at").read_text()
    time.sleep(1.0)
    assert (herd.folder.work / "at").read_text() == stands_at
    herd.folder.tell("resume")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert not marks.is_paused
    assert marks.exit is not None
    assert (marks.exit.exit_code, marks.exit.timed_out) == (0, False)


def test_a_stop_reaches_a_paused_command(herd: Herd) -> None:
    process = herd.begin("echo ready; exec sleep 60")
    herd.folder.tell("pause")
    until(lambda: herd.folder.marks().is_paused)
    herd.folder.tell("stop")
    assert process.wait(_LIMIT_S) == 0


def test_after_its_walltime_a_command_is_ended(herd: Herd) -> None:
    marks = herd.run("exec sleep 60", walltime_s=0.1)
    assert marks.exit is not None
    assert (marks.exit.timed_out, marks.exit.stopped) == (True, False)


def test_a_signal_goes_to_those_that_wait_for_it_and_to_no_other(herd: Herd) -> None:
    """SIGUSR1 would end a command that does not know it, such as the sleep here."""
    script = (
        "trap 'echo told' USR1; echo ready; i=0;"
        " while [ $i -lt 40 ]; do i=$((i+1)); sleep 0.02 || exit 9; done"
    )
    process = herd.begin(script)
    herd.folder.tell("notify")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert marks.exit.exit_code == 0
    assert "told" in herd.folder.log_tail()


#: Its child is a copy until the parent is told, and then runs a program that knows no signal.
_FORKS_AND_RUNS = """
import os, signal, sys
told, tell = os.pipe()
signal.signal(signal.SIGUSR1, lambda *_: os.write(tell, b"told"))
child = os.fork()
if child == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.write(1, b"ready")
    os.read(told, 1)
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    os.execlp("sleep", "sleep", "1")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
#: Its child stays a copy, as the ranks of a gang do that one process forks.
_FORKS = """
import os, signal, sys
child = os.fork()
if child == 0:
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(5))
    os.write(1, b"ready")
    while True:
        signal.pause()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("script", "code"), [(_FORKS_AND_RUNS, 0), (_FORKS, 5)])
def test_a_copy_is_told_if_it_stays_one(herd: Herd, script: str, code: int) -> None:
    """Until it runs a program it has its parent's handlers, and the program would be told."""
    process = herd.begin("", command=[sys.executable, "-c", script])
    herd.folder.tell("notify")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert marks.exit.exit_code == code


def test_a_log_stays_within_its_size_and_keeps_the_end(herd: Herd) -> None:
    herd.run("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done", log_bytes=8000)
    sizes = [(herd.folder.path / name).stat().st_size for name in ("log", "log.1")]
    assert sum(sizes) <= 8000 + 65536
    tail = herd.folder.log_tail()
    assert tail.endswith("line 3000\n")
    assert len(tail) <= 4096


# --- The fence ------------------------------------------------------------------------------------

_TICKS = "echo ready; i=0; while :; do i=$((i+1)); echo $i > at.new; mv at.new at; sleep 0.02; done"


def confirm(herd: Herd, for_s: float) -> None:
    """Say what the runner says when the server was heard."""
    assert herd.folder.tell(f"until {shim.boottime() + for_s}")


def at(herd: Herd) -> str:
    return (herd.folder.work / "at").read_text()


def stands(herd: Herd) -> bool:
    """Say whether the command does nothing for a while."""
    before = at(herd)
    time.sleep(0.3)
    return at(herd) == before


def test_a_command_stands_still_once_its_time_is_up_and_goes_on_when_it_has_more(
    herd: Herd,
) -> None:
    process = herd.begin(_TICKS, frozen_s=60)
    confirm(herd, 0.2)
    until(lambda: herd.folder.marks().is_fenced)
    until(lambda: stands(herd))
    stands_at = at(herd)
    # One that comes too late does not count.
    confirm(herd, -1)
    time.sleep(0.2)
    assert at(herd) == stands_at
    confirm(herd, 60)
    until(lambda: at(herd) != stands_at)
    assert not herd.folder.marks().is_fenced
    herd.folder.tell("stop")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert (marks.exit.stopped, marks.exit.lost) == (True, False)


def test_what_stands_still_is_ended_without_a_line_more(herd: Herd) -> None:
    script = "trap 'echo went on; exit 0' TERM; " + _TICKS
    process = herd.begin(script, frozen_s=60)
    confirm(herd, 0.1)
    until(lambda: herd.folder.marks().is_fenced)
    herd.folder.tell("stop")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert (marks.exit.stopped, marks.exit.exit_code) == (True, 128 + signal.SIGKILL)
    assert "went on" not in herd.folder.log_tail()


def test_what_stands_still_for_too_long_is_ended_as_lost(herd: Herd) -> None:
    process = herd.begin(_TICKS, frozen_s=0.3)
    confirm(herd, 0.1)
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert marks.exit.lost
    assert "the server was not heard" in marks.exit.why


def test_whoever_is_told_to_end_has_no_longer_than_its_time(herd: Herd) -> None:
    script = "trap '' TERM; " + _TICKS
    process = herd.begin(script, frozen_s=60, grace_s=600)
    confirm(herd, 0.3)
    herd.folder.tell("stop")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert (marks.exit.stopped, marks.exit.exit_code) == (True, 128 + signal.SIGKILL)


def test_a_shim_that_comes_up_after_its_time_starts_nothing(herd: Herd) -> None:
    marks = herd.run("touch it-ran", until=shim.boottime() - 0.1, frozen_s=60)
    assert (marks.started_at, marks.exit) == (None, None)
    assert not (herd.folder.work / "it-ran").exists()


def test_all_of_a_command_stands_still_also_what_has_left_its_group(herd: Herd) -> None:
    script = f"setsid sh -c 'echo $$ > left; {_TICKS}' & echo ready; exec sleep 60"
    herd.begin(script, frozen_s=60)
    until((herd.folder.work / "at").exists)
    confirm(herd, 0.1)
    until(lambda: herd.folder.marks().is_fenced)
    time.sleep(0.1)
    stands_at = at(herd)
    time.sleep(0.2)
    assert at(herd) == stands_at
    # Without a control group nobody else ends what has left the group.
    os.kill(int((herd.folder.work / "left").read_text()), signal.SIGKILL)


# --- What lies in the way -------------------------------------------------------------------------


def test_an_end_is_written_down_whatever_the_command_has_put_there(herd: Herd) -> None:
    script = "mkdir -p ../exit.json/a ../exit.json.new/b; mkfifo ../log.1; exit 5"
    marks = herd.run(script)
    assert marks.exit is not None
    assert marks.exit.exit_code == 5


def test_a_flood_of_output_does_not_drown_a_stop(herd: Herd) -> None:
    process = herd.begin("exec yes ready", log_bytes=8000)
    herd.folder.tell("stop")
    process.wait(_LIMIT_S)
    marks = herd.folder.marks()
    assert marks.exit is not None
    assert marks.exit.stopped


def test_a_folder_that_grows_too_large_ends_the_command(herd: Herd) -> None:
    disk = {"folders": [str(herd.folder.work)], "bytes": 1_000_000, "files": 1000}
    marks = herd.run("head -c 5000000 /dev/zero > big; exec sleep 60", disk=disk)
    assert marks.exit is not None
    assert marks.exit.why == "its folder has grown over 0.001 GB"
    assert marks.exit.exit_code == 128 + signal.SIGKILL
