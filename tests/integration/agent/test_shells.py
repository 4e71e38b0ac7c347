"""Shells in running jobs: real agents, a real server, the command line in a terminal of its own."""

from __future__ import annotations

import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bench.stack import REPOSITORY, Stack, running
from headroom.client import Client, HeadroomError
from tests.integration.agent.processes import wait_for
from tests.integration.faults.agents import RealAgent, enroll

_TEN_MB = 10_000_000
_SAYS = (
    "import sys; w = sys.stdout.buffer.write\n"
    "for i in range(10): w(bytes((i * 7 + j) & 255 for j in range(256)) * 3906 + b'x' * 64)\n"
)


class Scene:
    """A job that sleeps on an agent that lets people in, and one on an agent that does not."""

    def __init__(self, stack: Stack, agents: list[RealAgent], folder: Path) -> None:
        self.stack, self.folder = stack, folder
        self.open, self.closed = agents
        self.token_file = folder / "operator-token"
        self.client = Client(stack.url, stack.credential("operator_token"), timeout_s=30)
        self.client.post("/api/v1/projects", {"name": "shells"})

    def submit(self, name: str, node: RealAgent) -> None:
        """Have a job run on ``node``, the only one whose agent is up."""
        node.machine.gpu(util=0, power_mw=40_000)
        node.start()
        phase = {
            "name": "run", "gang": {"gpus": 2, "gpus_per_node": 2}, "walltime_s": 900,
            "power": {"expected_peak_w": 200}, "env": {"MARK": name},
            "command": ["/bin/sleep", "600"],
            "artifacts": {
                "image": "s@sha256:" + "0" * 64, "code_revision": "0" * 40, "data": {},
            },
        }  # fmt: skip
        spec = {
            "name": name, "project": "shells", "class": "low-power-experimentation",
            "phases": [phase],
        }  # fmt: skip
        self.client.post("/api/v1/jobs", spec)
        wait_for(lambda: self.state(name) == "running", 120.0)

    def state(self, name: str) -> str:
        return str(self.client.get(f"/api/v1/jobs/{name}")["phases"][0]["state"])

    def command(self, *words: str, verb: str = "shell") -> list[str]:
        given = ["--server", self.stack.url, "--token-file", str(self.token_file)]
        return [sys.executable, "-m", "headroom", verb, *given, *words]

    def run(
        self, *words: str, verb: str = "shell", limit_s: float = 60.0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command there, as a script would: no terminal."""
        return subprocess.run(
            self.command(*words, verb=verb), cwd=REPOSITORY, stdin=subprocess.DEVNULL,
            capture_output=True, timeout=limit_s, check=False,
        )  # fmt: skip

    def close(self) -> None:
        self.client.close()
        for agent in (self.open, self.closed):
            agent.close()
        for process in psutil.process_iter(["cmdline"]):
            if str(self.folder) in " ".join(process.info["cmdline"] or ()):
                process.kill()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("shells")
    allows = folder / "agent.toml"
    allows.write_text("[work]\nallow_shell = true\nshared_user = true\n")
    allows.chmod(0o600)
    with running() as stack:
        token_file = folder / "operator-token"
        # An admin's token owns what it submits.
        token_file.write_text(stack.credential("operator_token"))
        agents = enroll(stack, token_file, folder, 2, more=("--allow-jobs", "--shared-user"))
        agents[0].more = (*agents[0].more, "--config", str(allows))
        made = Scene(stack, agents, folder)
        try:
            made.submit("welcoming", made.open)
            made.open.stop()
            made.submit("closed", made.closed)
            made.open.start()
            yield made
        finally:
            made.close()


@pytest.mark.slow
def test_shells_in_running_jobs(scene: Scene) -> None:
    """One stack for all of it: to start one takes longer than all that is tried on it."""
    _a_command_has_what_the_job_has(scene)
    _its_exit_code_is_passed_on(scene)
    _a_terminal_is_one(scene)
    _ten_megabytes_of_any_bytes_arrive(scene)
    _output_that_nobody_reads_holds_up_nobody(scene)
    _who_has_no_token_or_comes_late_is_refused(scene)
    _an_agent_that_did_not_opt_in_lets_nobody_in(scene)
    _it_ends_with_the_job(scene)
    _a_job_for_a_terminal_opens_one_and_ends_with_it(scene)


def _a_command_has_what_the_job_has(scene: Scene) -> None:
    found = scene.run("welcoming", "--", "/bin/sh", "-c", "echo $MARK $CUDA_VISIBLE_DEVICES; pwd")
    assert found.returncode == 0, found.stderr
    mark, gpus, folder = found.stdout.decode().split()
    assert (mark, len(gpus.split(","))) == ("welcoming", 2)
    assert folder.startswith(str(scene.open.folder))


def _its_exit_code_is_passed_on(scene: Scene) -> None:
    assert scene.run("welcoming", "--", "/bin/sh", "-c", "exit 3").returncode == 3
    assert scene.run("welcoming", "--", "/bin/sh", "-c", "kill -9 $$").returncode == 137
    assert scene.run("welcoming", "--", "/no/such/program").returncode == 127


def _a_terminal_is_one(scene: Scene) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(REPOSITORY)
        os.execv(sys.executable, scene.command("welcoming", "--", "/bin/sh"))
    said = _until(terminal, rb"[$#] $")
    began = time.monotonic()
    os.write(terminal, b"tty; echo mark-$((40 + 2)); stty size\n")
    said = _until(terminal, rb"mark-42")
    print(f"a line comes back after {time.monotonic() - began:.2f} s")
    assert b"/dev/pts/" in said
    os.write(terminal, b"sleep 100\n")
    time.sleep(1.0)
    os.write(terminal, b"\x03")
    os.write(terminal, b"exit 5\n")
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 5
    os.close(terminal)


def _until(terminal: int, pattern: bytes) -> bytes:
    said, end = b"", time.monotonic() + 90.0
    while not re.search(pattern, said):
        assert time.monotonic() < end, said
        said += os.read(terminal, 65536)
    return said


def _ten_megabytes_of_any_bytes_arrive(scene: Scene) -> None:
    expected = subprocess.run([sys.executable, "-c", _SAYS], capture_output=True, check=True).stdout
    assert len(expected) == _TEN_MB
    began = time.monotonic()
    found = scene.run("welcoming", "--", sys.executable, "-c", _SAYS, limit_s=120.0)
    print(f"10 MB came in {time.monotonic() - began:.1f} s")
    assert found.returncode == 0, found.stderr
    assert hashlib.sha256(found.stdout).digest() == hashlib.sha256(expected).digest()


def _output_that_nobody_reads_holds_up_nobody(scene: Scene) -> None:
    stalled = subprocess.Popen(
        scene.command("welcoming", "--", "/bin/sh", "-c", "cat /dev/zero"), cwd=REPOSITORY,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        time.sleep(8.0)
        began = time.monotonic()
        assert scene.run("welcoming", "--", "/bin/echo", "here").stdout.strip() == b"here"
        assert time.monotonic() - began < 20.0
        assert scene.state("welcoming") == "running"
    finally:
        stalled.kill()
        stalled.wait()
        assert stalled.stdout is not None
        stalled.stdout.close()


def _who_has_no_token_or_comes_late_is_refused(scene: Scene) -> None:
    opened = scene.client.post("/api/v1/jobs/welcoming/shells", {"command": ["/bin/true"]})
    path = f"/api/v1/shells/{opened['session']}/node?connection={'0' * 16}"
    with Client(scene.stack.url, opened["secret"]) as user, pytest.raises(HeadroomError) as refused:
        user.get(path)
    assert "not the token of that shell" in str(refused.value)


def _an_agent_that_did_not_opt_in_lets_nobody_in(scene: Scene) -> None:
    found = scene.run("closed", "--", "/bin/echo", "hello")
    assert found.returncode == 126
    assert b"allow_shell is off" in found.stderr
    assert found.stdout == b""


def _it_ends_with_the_job(scene: Scene) -> None:
    waiting = subprocess.Popen(
        scene.command("welcoming", "--", "/bin/sh", "-c", "trap '' HUP TERM; sleep 777"),
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: _runs("sleep 777"), 30.0)
    scene.client.post("/api/v1/jobs/welcoming/cancel", {"why": "it is enough"})
    assert waiting.wait(60.0) == 137
    assert waiting.stderr is not None
    assert b"the job has ended" in waiting.stderr.read()
    waiting.stderr.close()
    assert not _runs("sleep 777")


def _runs(command: str) -> bool:
    found = psutil.process_iter(["cmdline", "status"])
    return any(
        " ".join(each.info["cmdline"] or ()) == command and each.info["status"] != "zombie"
        for each in found
    )


@pytest.mark.slow
def test_an_agent_that_is_killed_ends_its_terminals_and_not_the_job(scene: Scene) -> None:
    closed = scene.closed
    assert closed.process is not None
    # It is let in by an agent that is started anew, for a job that runs on.
    closed.process.send_signal(signal.SIGKILL)
    closed.process.wait()
    closed.more = (*closed.more, "--config", str(scene.folder / "agent.toml"))
    closed.start()
    assert scene.run("closed", "--", "/bin/echo", "in").stdout.strip() == b"in"
    waiting = subprocess.Popen(
        scene.command("closed", "--", "/bin/sleep", "778"), cwd=REPOSITORY,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(lambda: _runs("/bin/sleep 778"), 30.0)
    closed.process.kill()
    wait_for(lambda: not _runs("/bin/sleep 778"), 20.0)
    assert scene.state("closed") == "running"
    closed.start()
    assert waiting.wait(90.0) == 255
    assert waiting.stderr is not None
    assert b"its machine was not heard any more" in waiting.stderr.read()
    waiting.stderr.close()
    assert scene.state("closed") == "running"


def _a_job_for_a_terminal_opens_one_and_ends_with_it(scene: Scene) -> None:
    asked = ("--interactive", "--project", "shells", "--gpus", "2", "--name", "mine")
    given = (*asked, "--", "/bin/sh", "-c", "echo $HEADROOM_JOB; exit 5")
    found = scene.run(*given, verb="run", limit_s=150.0)
    assert found.returncode == 5, found.stderr
    assert b"mine" in found.stderr + found.stdout
    wait_for(lambda: scene.state("mine") == "failed", 60.0)
