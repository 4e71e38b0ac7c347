"""Jobs that do what they can against a real agent, its machine and the others on it.

Each runs beside a job of another project that only does its work. That one must end as it should
while the agent goes round; and when all is over, nothing of any job may be left.
"""

from __future__ import annotations

import hashlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headroom.work.contract import Input, Output, SignalKind, SignalOrder
from headroom.work.inputs import WHOLE, digest_of
from headroom.work.launch import why_no_view
from headroom.work.users import can_change_user
from tests.integration.agent.processes import wait_for
from tests.integration.agent.workplace import Workplace, workplace

pytestmark = pytest.mark.skipif(
    not can_change_user(), reason="only root can give jobs users of their own: run this as root"
)
#: Says what it has, writes its result, and waits to be let go.
_GOOD = """
echo secret-result > result; echo '{"checkpoint_at": 1000.5, "done": 0}' > "$HEADROOM_STATUS"
while [ ! -e go ]; do sleep 0.05; done; cat result
"""
_LIMITS = "pids = 64\ndisk_gb = 0.02\nmemory_gb = 0.4\n"
#: of a limit of the server's, in force all the while
_CAP_W = 350.0


@pytest.fixture(scope="module")
def place() -> Iterator[Workplace]:
    if why := why_no_view():
        pytest.skip(f"this machine does not let jobs have a view of their own: {why}")
    with workplace(_LIMITS, "--allow-actuation") as made:
        made.server.limit(_CAP_W)
        good = made.run("good", _GOOD, project="vision", env={"SECRET": "of-vision"})
        made.until(good, "running")
        wait_for((made.place(good) / "work/result").exists)
        yield made


@pytest.fixture(autouse=True)
def others_are_unharmed(place: Workplace) -> Iterator[None]:
    """After each attack: the agent goes round, and the good job runs on as it was."""
    yield
    if place.is_finished:
        return
    place.goes_round()
    report = place.server.told["good/run/1"]
    assert (report.state, report.checkpoint_at, report.text) == ("running", 1000.5, "")
    assert place.machine.limit_w() == _CAP_W
    assert "round of work failed" not in place.log.read_text()


def attack(place: Workplace, name: str, script: str, **given: Any) -> str:
    """Run a hostile job, and return its key once it has done its worst: it says "done"."""
    key = place.run(name, script, project="evil", **given)
    wait_for(lambda: "done" in place.log_of(key))
    return key


def ended(place: Workplace, key: str) -> Any:
    place.stop(key)
    return place.until(key, "ended")


STATUS_FILES = {
    "pipe": 'mkfifo "$HEADROOM_STATUS"',
    "folder": 'mkdir "$HEADROOM_STATUS"',
    "link": 'ln -s /etc/shadow "$HEADROOM_STATUS"',
    "endless": 'ln -s /dev/zero "$HEADROOM_STATUS"',
    "loop": 'ln -s "$HEADROOM_STATUS" "$HEADROOM_STATUS"',
    "garbage": 'head -c 100000 /dev/urandom > "$HEADROOM_STATUS"',
    "deep": 'head -c 60000 /dev/zero | tr "\\0" "[" > "$HEADROOM_STATUS"',
    "sparse": 'truncate -s 8T "$HEADROOM_STATUS"; [ -e "$HEADROOM_STATUS" ]',
    "socket": "import socket; socket.socket(socket.AF_UNIX).bind('.headroom-status.json')",
}
STATUS_FILES = {
    kind: script
    + (
        "\nprint('done', flush=True)\nimport time; time.sleep(60)"
        if "import" in script
        else "\necho done; sleep 60"
    )
    for kind, script in STATUS_FILES.items()
}


def test_a_status_that_is_no_plain_file_holds_nobody_up(place: Workplace) -> None:
    keys = [attack(place, f"status-{kind}", script) for kind, script in STATUS_FILES.items()]
    place.goes_round()
    for key in keys:
        report = place.server.told[key]
        assert (report.state, report.checkpoint_at, report.signals_done) == ("running", None, 0)
        assert "root:" not in repr(report)
    for key in keys:
        place.stop(key)
    assert {place.until(key, "ended").outcome for key in keys} == {"stopped"}


READS = """
import glob, os
def tried(path):
    try:
        with open(path, "rb") as file:
            file.read(1)
        print("READ", path, flush=True)
    except OSError:
        pass
    try:
        with open(path, "ab") as file:
            pass
        print("WROTE", path, flush=True)
    except OSError:
        pass
for path in os.environ["TARGETS"].split():
    tried(path)
    for name in glob.glob(path + "/*") + glob.glob(path + "/.*"):
        print("LISTED", name, flush=True)
        tried(name)
for name in set(glob.glob("/proc/[0-9]*")) - {f"/proc/{os.getpid()}"}:
    for file in ("environ", "cmdline", "mem", "root/etc/shadow", "cwd/result"):
        try:
            with open(f"{name}/{file}", "rb") as opened:
                if b"of-vision" in opened.read(10000) or b"secret" in opened.read(10000):
                    print("READ", name, file, flush=True)
        except OSError:
            pass
print("pids", len(glob.glob("/proc/[0-9]*")), flush=True)
print("done", flush=True)
"""


def test_nothing_of_the_agent_or_of_another_job_can_be_read_or_written(place: Workplace) -> None:
    good, jobs = place.place("good/run/1"), place.jobs
    targets = [
        place.token, place.config, place.folder / "spool.sqlite", place.folder, jobs,
        jobs / "book.sqlite", jobs / "book.sqlite-wal", jobs / "lock", jobs / "attempts",
        jobs / "places", good, good / "work", good / "work/result", good / "tmp",
        good / "directives.json", "/etc/shadow",
        *(place.shims("good/run/1") / name for name in ("task.json", "control", "lock", "log")),
    ]  # fmt: skip
    key = attack(place, "reader", READS, env={"TARGETS": " ".join(map(str, targets))})
    said = place.log_of(key)
    touched = [line for line in said.splitlines() if line.startswith(("READ", "WROTE", "LISTED"))]
    assert touched == []
    # Itself and the first process of its space.
    assert "pids 2" in said
    ended(place, key)


KILLS = """
import os, signal
for number in (signal.SIGSTOP, signal.SIGKILL):
    for pid in [*range(2, 33000), *(int(p) for p in os.environ["PIDS"].split())]:
        if pid not in (os.getpid(), 1):
            try:
                os.kill(pid, number)
                print("TOLD", pid, flush=True)
            except OSError:
                pass
try:
    os.kill(1, signal.SIGKILL)
except OSError:
    pass
try:
    os.kill(-1, signal.SIGSTOP)
except OSError:
    pass
print("done", flush=True)
signal.pause()
"""


def test_no_signal_reaches_what_is_not_its_own(place: Workplace) -> None:
    assert place.process is not None
    agent = psutil.Process(place.process.pid)
    pids = [agent.pid, *(child.pid for child in agent.children(recursive=True)), *place.running()]
    key = attack(place, "killer", KILLS, env={"PIDS": " ".join(map(str, pids))})
    assert "TOLD" not in place.log_of(key)
    assert agent.status() != psutil.STATUS_STOPPED
    ended(place, key)


DAEMONS = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
for _ in range(4):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setpgid(0, 0)
            while True:
                time.sleep(60)
        os._exit(0)
print("done", flush=True)
"""


def test_daemons_that_ignore_signals_end_with_their_job(place: Workplace) -> None:
    before = len(place.running())
    key = attack(place, "daemons", DAEMONS)
    report = place.until(key, "ended")
    assert (report.outcome, report.exit_code) == ("exited", 0)
    wait_for(lambda: len(place.running()) <= before)


def test_who_ignores_the_end_is_killed_with_all_it_has_forked(place: Workplace) -> None:
    before = len(place.running())
    key = attack(place, "deaf", DAEMONS + "while True: time.sleep(60)")
    assert ended(place, key).exit_code == 128 + signal.SIGKILL
    wait_for(lambda: len(place.running()) <= before)


BOMB = """
import os, time
print("done", flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""


def test_a_fork_bomb_stays_within_its_processes_and_is_ended(place: Workplace) -> None:
    before = len(place.running())
    key = attack(place, "bomb", BOMB)
    wait_for(lambda: len(place.running()) > before + 10)
    time.sleep(0.3)
    # A look takes a while: who forks late in it may have the place of one that it has counted.
    assert min(len(place.running()) for _ in range(5)) <= before + 64
    ended(place, key)
    wait_for(lambda: len(place.running()) <= before)


def test_a_flood_of_output_keeps_neither_orders_nor_the_disk_waiting(place: Workplace) -> None:
    key = place.run("flood", "exec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", project="evil")
    # Its log is full soon, and the stop is heard all the same.
    wait_for((place.shims(key) / "log.1").exists)
    ended(place, key)
    size = sum(path.stat().st_size for path in place.shims(key).glob("log*"))
    assert size < 10 * 1024 * 1024


def test_output_that_a_daemon_keeps_open_does_not_keep_the_job(place: Workplace) -> None:
    key = attack(place, "handed", "setsid sleep 60 & echo done; exec >&- 2>&-; exit 4")
    assert place.until(key, "ended").exit_code == 4


def test_the_control_pipe_of_a_job_is_out_of_its_reach(place: Workplace) -> None:
    target = place.jobs / "attempts"
    script = (
        f"cd {target} 2>&1; for n in {target}/*/control {target}/00000001/control; do"
        ' echo stop > "$n"; done; echo done; sleep 60'
    )
    key = attack(place, "control", script)
    ended(place, key)


ENVIRONMENT = {
    "LD_PRELOAD": "/tmp/evil.so",
    "PYTHONSTARTUP": "/tmp/evil.py",
    "HEADROOM_DIRECTIVES": "/etc/shadow",
    "HEADROOM_STATUS": "/etc/passwd",
    "HEADROOM_ATTEMPT_KEY": "good/run/1",
    "BASH_ENV": "/tmp/evil.sh",
    "new\nline": "x\ny",
}


def test_no_variable_gets_behind_what_the_agent_sets(place: Workplace) -> None:
    script = 'echo "$HEADROOM_ATTEMPT_KEY $HEADROOM_STATUS"; echo done'
    key = attack(place, "environment", script, env=ENVIRONMENT)
    said = place.until(key, "ended").log_tail
    assert f"environment/run/1 {place.place(key)}/work/.headroom-status.json" in said
    assert "hra_" not in said


@pytest.mark.parametrize(
    ("path", "why"), [("{token}", "Permission denied"), ("/dev/zero", "no regular file")]
)
def test_inputs_are_read_by_the_job_and_tell_nothing_that_it_may_not_read(
    place: Workplace, path: str, why: str
) -> None:
    path = path.format(token=place.token)
    right = f"{WHOLE}{hashlib.sha256(place.token.read_bytes()).hexdigest()}"
    wanted = Input(name="data/secret", digest=right, path=path)
    key = place.run(f"reads-{why[:2].lower()}", "echo done", project="evil", inputs=[wanted])
    report = place.until(key, "ended")
    assert report.text.startswith(f"input data/secret: {path}")
    assert why in report.text
    assert report.exit_code == 126


def test_inputs_are_verified_in_the_view_of_the_job(place: Workplace) -> None:
    shared = place.folder / "data-set"
    shared.write_text("for all")
    shared.chmod(0o644)
    good = Input(name="data/good", digest=digest_of(shared), path=str(shared))
    key = attack(place, "inputs", 'cat "$HEADROOM_INPUTS"; echo done', inputs=[good])
    report = place.until(key, "ended")
    assert (report.exit_code, '"is_verified": true' in report.log_tail) == (0, True)


def test_outputs_are_measured_by_the_job_and_tell_nothing_that_it_may_not_read(
    place: Workplace,
) -> None:
    made = Output(name="model", path=f"/tmp/{place.folder.name}-model")
    secret = Output(name="secret", path=str(place.token))
    key = place.run("makes", f"printf weights > {made.path}", project="evil", outputs=[made])
    (found,) = place.until(key, "ended").outputs
    # Its own /tmp: nobody else has the file that was measured.
    assert not Path(made.path).exists()
    assert (found.name, found.size_bytes) == ("model", 7)
    assert found.digest == f"{WHOLE}{hashlib.sha256(b'weights').hexdigest()}"
    key = place.run("claims", "true", project="evil", outputs=[secret])
    report = place.until(key, "ended")
    assert (report.exit_code, report.outputs) == (126, [])
    assert report.text.startswith(f"output secret: {place.token} cannot be read: Permission denied")


RIGHTS = """
import ctypes, os, time
def tried(name, act):
    try:
        act()
        print("COULD", name, flush=True)
    except (OSError, AssertionError):
        pass
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *given):
    assert getattr(libc, name)(*given) == 0
tried("clock", lambda: time.clock_settime(time.CLOCK_REALTIME, 0))
tried("mount", lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None))
tried("unmount", lambda: call("umount2", b"/proc", 2))
tried("user", lambda: os.setuid(0))
tried("groups", lambda: os.setgroups([0]))
tried("device", lambda: os.mknod("kmem", 0o020600, os.makedev(1, 2)))
tried("trace", lambda: call("ptrace", 16, 1, 0, 0))
tried("nice", lambda: os.nice(-5))
tried("chown", lambda: os.chown(".", 0, 0))
tried("groups of control", lambda: open("/sys/fs/cgroup/pids/cgroup.procs", "w").write("0"))
tried("kernel", lambda: open("/proc/sys/kernel/core_pattern", "w").write("|/tmp/x"))
tried("hard link", lambda: os.link("/etc/shadow", "shadow"))
for path in ("/bin/su", "/usr/bin/passwd"):
    os.system(path + " --help > /dev/null 2>&1")
print("done", flush=True)
"""


def test_it_has_no_right_beside_those_of_its_user(place: Workplace) -> None:
    key = attack(place, "rights", RIGHTS)
    report = place.until(key, "ended")
    assert "COULD" not in report.log_tail
    assert report.exit_code == 0


def test_memory_beyond_its_share_costs_its_own_life_alone(place: Workplace) -> None:
    script = "import time\nprint('done', flush=True)\nx = bytearray(900_000_000)\ntime.sleep(60)"
    key = attack(place, "memory", script)
    assert place.until(key, "ended").exit_code == 128 + signal.SIGKILL


def test_a_folder_that_grows_too_large_ends_its_job_and_says_why(place: Workplace) -> None:
    key = place.run("disk", "head -c 60000000 /dev/zero > big; echo done; sleep 60", project="evil")
    report = place.until(key, "ended", 30.0)
    assert report.text == "its folder has grown over 0.02 GB"
    assert report.exit_code == 128 + signal.SIGKILL


def test_folders_in_folders_are_removed_and_hold_nobody_up(place: Workplace) -> None:
    script = """
import os
for _ in range(3000):
    os.mkdir("d")
    os.chdir("d")
print("done", flush=True)
"""
    key = attack(place, "deep", script)
    place.until(key, "ended")


def test_files_that_it_leaves_elsewhere_are_its_own_alone(place: Workplace) -> None:
    script = "for d in /tmp /var/tmp /dev/shm; do echo x > $d/left-by-a-job; done; echo done"
    key = attack(place, "elsewhere", script)
    place.until(key, "ended")
    for folder in ("/tmp", "/var/tmp", "/dev/shm"):
        assert not (Path(folder) / "left-by-a-job").exists()


def test_directives_reach_a_job_that_has_a_user_of_its_own(place: Workplace) -> None:
    script = (
        'trap \'cat "$HEADROOM_DIRECTIVES"; echo "{\\"done\\": 1}" > "$HEADROOM_STATUS"\' USR1;'
        " echo done; while :; do sleep 0.05; done"
    )
    key = attack(place, "told", script)
    place.release(key, [SignalOrder(seq=1, kind=SignalKind.CHECKPOINT)])
    wait_for(lambda: place.server.told[key].signals_done == 1)
    assert '{"seq":1,"checkpoint":1' in ended(place, key).log_tail


def test_a_shim_that_is_killed_takes_all_of_its_job_along(place: Workplace) -> None:
    before = len(place.running())
    key = attack(place, "orphan", DAEMONS + "while True: time.sleep(60)")
    folder = str(place.shims(key))
    shims = [p for p in psutil.process_iter(["cmdline"]) if folder in (p.info["cmdline"] or ())]
    min(shims, key=lambda p: p.pid).kill()
    assert place.until(key, "ended").outcome == "lost"
    wait_for(lambda: len(place.running()) <= before)


def test_in_the_end_the_other_job_has_its_result_and_nothing_is_left(place: Workplace) -> None:
    """The last of this module: it lets the good job go, and looks at what is left."""
    good = "good/run/1"
    (place.place(good) / "work/go").touch()
    report = place.until(good, "ended")
    assert (report.outcome, report.exit_code) == ("exited", 0)
    assert report.log_tail == "secret-result\n"
    place.finish()
    assert place.left_behind() == []
    # The agent gives back what it had set when it ends.
    assert place.machine.limit_w() != _CAP_W
