"""Terminals in running jobs, with real shims; the other end is played by the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.work import terminal
from headroom.work.contract import DesiredState, ShellAsk, ShellFrame, ShellKind, ShellSide
from headroom.work.runner import Runner, RunnerSettings
from tests.unit.headroom.work.test_runner import KEY, Machine, Server

SESSION = "0123abcd-0000-0000-0000-000000000000"
_LIMIT_S = 60.0


class End:
    """An end of a session in memory: what the machine says, and what the user does."""

    made: list[End] = []

    def __init__(self, server_url: str, session: str, side: ShellSide, secret: str) -> None:
        self.said: list[tuple[ShellKind, bytes]] = []
        self.typed: list[ShellFrame] = []
        self.more = threading.Condition()
        self.over: str | None = None
        End.made.append(self)

    def say(self, kind: ShellKind, data: bytes) -> bool:
        with self.more:
            self.said.append((kind, data))
            if kind == ShellKind.OVER:
                self.over = data.decode()
            self.more.notify_all()
            return True

    def listen(self) -> Iterator[ShellFrame]:
        while self.over is None:
            with self.more:
                self.more.wait(0.1)
                found, self.typed = self.typed, []
            yield from found

    def close(self) -> None:
        """Nothing is held."""

    def type(self, kind: ShellKind, data: bytes) -> None:
        with self.more:
            self.typed.append(ShellFrame(number=1, kind=kind, data=data))
            self.more.notify_all()

    @property
    def shown(self) -> bytes:
        return b"".join(data for kind, data in self.said if kind == ShellKind.DATA)

    @property
    def ended(self) -> tuple[int, str] | None:
        codes = [int(data) for kind, data in self.said if kind == ShellKind.EXIT]
        return (codes[0], self.over) if codes and self.over is not None else None


class Welcoming(Machine):
    """A machine whose agent lets people in."""

    allow_shell = True

    def _open(self) -> Runner:
        settings = RunnerSettings(
            node="n1", folder=self.folder, limits=False, allow_shell=self.allow_shell
        )
        return Runner(settings, self.server, draw=lambda: 0.5)

    def ask(self, script: str, *, is_terminal: bool = False) -> End:
        """Have a terminal opened that runs ``script``; return its other end."""
        ask = ShellAsk(
            session=SESSION, secret="s", attempt=KEY, node="n1", is_terminal=is_terminal,
            command=["/bin/sh", "-c", script], rows=31, columns=77,
        )  # fmt: skip
        self.runner._open_shell(ask)
        wait_until(lambda: bool(End.made))
        # Asked again, since the server has not heard of it, it is not opened again.
        self.runner._open_shell(ask)
        (end,) = End.made
        return end


def wait_until(is_so: object) -> None:
    assert callable(is_so)
    end = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < end, [each.said for each in End.made]
        time.sleep(0.02)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Welcoming]:
    End.made = []
    monkeypatch.setattr(terminal, "ShellEnd", End)
    made = Welcoming(tmp_path)
    made.start("sleep 60", env={"MARK": "of-the-job"})
    made.until("running")
    yield made
    made.server.wants(DesiredState.STOP)
    made.until("ended")
    made.runner.close()


def test_a_command_has_the_environment_of_the_job_and_its_exit_code_comes_back(
    machine: Welcoming,
) -> None:
    end = machine.ask("echo $MARK $CUDA_VISIBLE_DEVICES $HEADROOM_ATTEMPT_KEY; exit 7")
    wait_until(lambda: end.ended is not None)
    assert end.shown == b"of-the-job 0,2 llama/train/1\n"
    assert end.ended == (7, "")
    wait_until(lambda: not list(machine.file("").glob("shell-*")))


def test_a_person_has_a_terminal_of_the_size_of_the_window(machine: Welcoming) -> None:
    end = machine.ask("stty size; read line; stty size; echo got $line", is_terminal=True)
    wait_until(lambda: b"31 77" in end.shown)
    end.type(ShellKind.RESIZE, b"40 100")
    time.sleep(0.3)
    end.type(ShellKind.DATA, b"word\n")
    wait_until(lambda: end.ended is not None)
    assert b"40 100\r\ngot word\r\n" in end.shown


def test_any_bytes_pass_as_they_are_where_nobody_sits(machine: Welcoming) -> None:
    end = machine.ask(r"printf '\000\003\004\012\015\021\377'")
    wait_until(lambda: end.ended is not None)
    assert end.shown == b"\x00\x03\x04\n\r\x11\xff"


def test_what_runs_on_a_terminal_ends_when_nobody_is_there_any_more(machine: Welcoming) -> None:
    end = machine.ask("trap '' HUP; echo $$; sleep 55")
    wait_until(lambda: end.shown.endswith(b"\n"))
    pid = int(end.shown)
    end.over = "whoever had opened it was not heard any more"
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert machine.until("running").exit_code is None


def test_a_terminal_ends_with_its_job(machine: Welcoming) -> None:
    end = machine.ask("trap '' HUP TERM; echo in; sleep 55")
    wait_until(lambda: b"in" in end.shown)
    machine.server.wants(DesiredState.STOP)
    machine.until("ended")
    wait_until(lambda: end.ended is not None)
    assert end.ended == (137, "the job has ended")


def test_nothing_is_opened_in_a_job_that_stands_still(machine: Welcoming) -> None:
    machine.file("control").write_text("pause\n")
    machine.until("paused")
    end = machine.ask("echo in")
    wait_until(lambda: end.ended is not None)
    assert (end.shown, end.ended) == (b"", (126, ""))
    machine.file("control").write_text("resume\n")


def test_an_agent_that_did_not_opt_in_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    End.made = []
    monkeypatch.setattr(terminal, "ShellEnd", End)
    monkeypatch.setattr(Welcoming, "allow_shell", False)
    made = Welcoming(tmp_path)
    end = made.ask("echo in")
    wait_until(lambda: end.ended is not None)
    assert end.ended == (126, "its machine lets nobody in: allow_shell is off there")
    made.runner.close()


def test_the_server_of_this_test_asks_for_none() -> None:
    assert Server()._answer().shells == []
