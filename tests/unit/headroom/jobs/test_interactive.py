"""``headroom run --interactive``: waiting, saying why, the shell, and the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headroom.cli import main
from headroom.contracts import FieldError
from headroom.errors import Refused
from headroom.jobs import commands, interactive, terminal
from headroom.jobs.asking import Jobs
from headroom.jobs.reading import SpecError, convert
from tests.unit.headroom.fake_server import FakeServer
from tests.unit.headroom.jobs.answers import make_explanation, make_job, make_phase

JOB = "/api/v1/jobs/llama-ft-12"
Run = Callable[..., Result]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Have terminals open and end at once, with status 7."""
    found: list[tuple[str, ...]] = []

    def run(jobs: Jobs, job: str, command: Sequence[str], chosen: Mapping[str, Any]) -> int:
        found.append((job, *command))
        return 7

    monkeypatch.setattr(terminal, "run", run)
    return found


@pytest.fixture
def run(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADROOM_TOKEN", "hru_secret")
    server.answers["POST", "/api/v1/jobs"] = make_job()
    server.answers["POST", f"{JOB}/cancel"] = make_job()
    server.answers["GET", f"{JOB}/explain"] = make_explanation()

    def invoke(*args: str) -> Result:
        given = ("--interactive", "--project", "vision", "--server", server.url)
        return CliRunner().invoke(main, ["run", *given, *args])

    return invoke


def goes_through(server: FakeServer, monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
    """Have the job go from state to state while the command sleeps."""
    left: Iterator[str] = iter(states)

    def sleep(seconds: float) -> None:
        state = next(left)
        phase = make_phase(state=state)
        server.answers["GET", JOB] = make_job(state=state, phases=[phase])

    sleep(0.0)
    monkeypatch.setattr(commands, "_sleep", sleep)


def cancels(server: FakeServer) -> int:
    return sum(each.path == f"{JOB}/cancel" for each in server.requests)


def test_it_waits_says_why_and_opens_a_shell_with_which_the_job_ends(
    server: FakeServer, run: Run, opened: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_through(server, monkeypatch, "queued", "queued", "running")
    result = run("--gpus", "2", "--model", "H100", "--", "nvidia-smi", "-L")
    assert result.exit_code == 7, result.output
    # What keeps it is said once, and not each two seconds.
    assert result.output.count("llama-ft-12 waits: ") == 1
    assert opened == [("llama-ft-12", "nvidia-smi", "-L")]
    # Its terminal was left: the server ends it, as one that is done.
    assert cancels(server) == 0
    sent = json.loads(next(each.body for each in server.requests if each.path == "/api/v1/jobs"))
    assert (sent["interactive"], sent["project"]) == (True, "vision")
    assert sent["phases"][0]["gang"] == {"gpus": 2, "models": ["H100"]}
    convert(sent)


def test_what_needs_no_terminal_is_sent_to_submit(server: FakeServer) -> None:
    result = CliRunner().invoke(main, ["run", "--project", "vision", "--server", server.url])
    assert result.exit_code == 2
    assert "headroom submit" in result.output
    assert not server.requests


def test_one_that_ends_before_it_began_opens_nothing(
    server: FakeServer, run: Run, opened: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_through(server, monkeypatch, "queued", "cancelled")
    result = run()
    assert result.exit_code == interactive.NOT_OPENED
    assert "llama-ft-12 is cancelled before it began" in result.output
    assert (cancels(server), opened) == (0, [])


def test_who_gives_up_while_it_waits_takes_the_job_back(
    server: FakeServer, run: Run, opened: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_through(server, monkeypatch, "queued")

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_sleep", interrupted)
    result = run()
    assert result.exit_code == commands.STOPPED
    assert (cancels(server), opened) == (1, [])


def test_a_machine_that_tells_a_little_later_that_it_runs_is_asked_again(
    server: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_through(server, monkeypatch, "running", "running", "running")
    tries: list[int] = []

    def not_yet(*args: object) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise Refused(409, FieldError(code="not_running", message="not yet"))
        return 0

    monkeypatch.setattr(terminal, "run", not_yet)
    assert run().exit_code == 0
    assert (len(tries), cancels(server)) == (3, 0)


def test_a_terminal_that_breaks_off_takes_the_job_back(
    server: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_through(server, monkeypatch, "running")
    monkeypatch.setattr(terminal, "run", lambda *args: terminal.BROKEN)
    assert run().exit_code == terminal.BROKEN
    assert cancels(server) == 1


def test_a_job_for_a_terminal_takes_a_slice() -> None:
    spec = interactive.spec_of(
        project="vision", job_class="c", gpus=1, models=(), walltime_s=60.0, name="",
        part="1g.10gb",
    )  # fmt: skip
    assert convert(spec).phases[0].gang.slice == "1g.10gb"


def test_a_job_for_a_terminal_has_one_phase_and_is_no_array() -> None:
    spec = interactive.spec_of(
        project="vision", job_class="c", gpus=1, models=(), walltime_s=60.0, name="mine"
    )
    phases = [spec["phases"][0], spec["phases"][0] | {"name": "other"}]
    for wrong in (spec | {"array": "0-3"}, spec | {"phases": phases}):
        with pytest.raises(SpecError) as caught:
            convert(wrong)
        assert [each.code for each in caught.value.problems] == ["not_interactive"]
