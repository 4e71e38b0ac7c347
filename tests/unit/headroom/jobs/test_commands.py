"""The commands about jobs, against a stand-in for the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from headroom.cli import main
from headroom.client import Client
from headroom.jobs import commands, words
from headroom.jobs.asking import Jobs
from tests.unit.headroom.fake_server import LOST, Answer, FakeServer, Request
from tests.unit.headroom.jobs.answers import (
    make_dry_run,
    make_event,
    make_explanation,
    make_fleet_goodput,
    make_job,
    make_losses,
    make_phase,
    make_queue,
    make_queued,
    make_reason,
    make_said,
    make_tried,
)

SPEC = """\
name: llama-ft-12
project: vision
class: high-density-training
phases:
  - name: train
    gang: {gpus: 64}
    walltime_s: 3600
    command: [python, train.py]
"""
JOB = "/api/v1/jobs/llama-ft-12"

Run = Callable[..., Result]


@pytest.fixture
def run(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADROOM_TOKEN", "hru_secret")
    monkeypatch.setattr(commands, "_WATCH_EVERY_S", 0.0)
    monkeypatch.setattr(commands, "_sleep", lambda seconds: None)

    def invoke(*args: str, **given: Any) -> Result:
        return CliRunner().invoke(main, [*args, "--server", server.url], **given)

    return invoke


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    return str(path)


def asked(server: FakeServer, path: str) -> Request:
    return next(each for each in server.requests if each.path == path)


def test_a_job_is_submitted_as_it_was_written(server: FakeServer, run: Run, spec: str) -> None:
    server.answers["POST", "/api/v1/jobs"] = make_job()
    result = run("submit", spec, "--key", "run-7")
    assert result.exit_code == 0, result.output
    assert "llama-ft-12 is queued: 1 phase, 64 GPUs at most." in result.output
    request = asked(server, "/api/v1/jobs")
    assert request.body.decode() == SPEC
    assert request.headers["Content-Type"] == "application/yaml"
    assert request.headers["Idempotency-Key"] == "run-7"
    assert request.headers["Authorization"] == "Bearer hru_secret"


def test_json_and_standard_input_are_taken(
    server: FakeServer, run: Run, spec: str, tmp_path: Path
) -> None:
    server.answers["POST", "/api/v1/jobs"] = make_job()
    assert run("submit", "-", input=SPEC).exit_code == 0
    path = tmp_path / "job.json"
    phase = {"name": "train", "gang": {"gpus": 8}, "walltime_s": 60}
    path.write_text(
        json.dumps({"project": "vision", "class": "checkpoint-heavy", "phases": [phase]})
    )
    assert run("submit", str(path)).exit_code == 0
    assert [each.headers["Content-Type"] for each in server.requests] == [
        "application/yaml", "application/json",
    ]  # fmt: skip


def test_array_and_needs_may_be_given_beside_the_file(
    server: FakeServer, run: Run, spec: str
) -> None:
    server.answers["POST", "/api/v1/jobs"] = make_job()
    given = (
        "--array", "0-9%2", "--needs", "prepare", "--needs", "other:started+600",
        "--needs-same", "sweep:ended",
    )  # fmt: skip
    assert run("submit", spec, *given).exit_code == 0
    request = asked(server, "/api/v1/jobs")
    assert request.headers["Content-Type"] == "application/json"
    sent = json.loads(request.body)
    assert (sent["name"], sent["array"]) == ("llama-ft-12", "0-9%2")
    assert sent["needs"] == [
        {"job": "prepare", "when": "succeeded", "after_s": 0.0},
        {"job": "other", "when": "started", "after_s": 600.0},
        {"job": "sweep", "when": "ended", "after_s": 0.0, "element": "same"},
    ]


@pytest.mark.parametrize(
    ("given", "status", "says"),
    [
        (("--array", "9-0"), 1, "ends before it begins"),
        (("--needs", "prepare:done"), 1, "done"),
        (("--needs", "prepare:ended+soon"), 2, "no number of seconds"),
        (("--needs-same", "prepare"), 1, "no array"),
    ],
)
def test_what_is_wrong_with_them_is_told_and_nothing_sent(
    server: FakeServer, run: Run, spec: str, given: tuple[str, str], status: int, says: str
) -> None:
    result = run("submit", spec, *given)
    assert (result.exit_code, server.requests) == (status, [])
    assert says in result.output


def test_elements_are_cancelled_alone(server: FakeServer, run: Run) -> None:
    server.answers["POST", f"{JOB}/cancel"] = make_job()
    result = run("cancel", "llama-ft-12", "--elements", "3,7-9", "--why", "wrong")
    assert result.output.startswith("llama-ft-12, elements 3,7-9, is cancelled")
    assert json.loads(asked(server, f"{JOB}/cancel").body) == {"why": "wrong", "elements": "3,7-9"}


def test_a_job_is_let_begin_without_what_it_waits_for(server: FakeServer, run: Run) -> None:
    server.answers["POST", f"{JOB}/waive"] = make_job()
    assert run("waive", "llama-ft-12").output == ("llama-ft-12 no longer waits for other jobs.\n")


def test_a_bad_specification_is_not_sent(server: FakeServer, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        SPEC.replace("gpus: 64", "gpus: 64, min_gpus: 128").replace("project", "projet")
    )
    result = run("submit", str(path))
    assert result.exit_code == 1
    assert "projet" in result.output
    assert "nothing was submitted" in result.output
    assert server.requests == []
    assert run("submit", str(tmp_path / "none.yaml")).exit_code == 1


def test_all_that_the_server_finds_wrong_is_told(server: FakeServer, run: Run, spec: str) -> None:
    errors = [
        {"code": "unknown_project", "message": "there is no project 'vision'", "field": "project",
         "hint": "do you mean 'visions'?"},
        {"code": "unknown_class", "message": "there is no class", "field": "class", "hint": ""},
    ]  # fmt: skip
    body = msgspec.json.encode({"error": errors[0], "errors": errors})
    server.answers["POST", "/api/v1/jobs"] = Answer(400, body)
    result = run("submit", spec)
    assert result.exit_code == 1
    assert "unknown_project at project: there is no project 'vision' (do you mean" in result.output
    assert "unknown_class at class: there is no class" in result.output


def test_a_dry_run_submits_nothing_and_says_by_its_status_whether_it_would_wait(
    server: FakeServer, run: Run, spec: str
) -> None:
    server.answers["POST", "/api/v1/jobs"] = make_dry_run()
    result = run("submit", spec, "--dry-run")
    assert result.exit_code == 0
    assert "train would begin at once" in result.output
    assert asked(server, "/api/v1/jobs").query == {"dry_run": "1"}
    waits = make_tried(starts=False, placement=None, reasons=[make_reason()], position=4)
    server.answers["POST", "/api/v1/jobs"] = make_dry_run(waits)
    result = run("submit", spec, "--dry-run")
    assert result.exit_code == 3
    assert "would wait at position 4" in result.output


def test_the_queue_is_shown(server: FakeServer, run: Run) -> None:
    server.answers["GET", "/api/v1/queue"] = make_queue(make_queued())
    result = run("queue", "--count", "1")
    assert result.exit_code == 0
    assert result.output.startswith("4 wait, 9 run")
    assert asked(server, "/api/v1/queue").query == {"count": "1"}
    assert json.loads(run("queue", "--json").output) == make_queue(make_queued())


def test_a_job_is_explained(server: FakeServer, run: Run) -> None:
    server.answers["GET", f"{JOB}/explain"] = make_explanation()
    server.answers["GET", JOB] = make_job()
    result = run("explain", "llama-ft-12")
    assert result.exit_code == 0
    assert "needs 41.2 kW on feed b2" in result.output
    assert "starts now at 550 W per GPU" in result.output
    assert json.loads(run("explain", "llama-ft-12", "--json").output) == make_explanation()


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_jobs_are_acted_on_one_after_the_other(server: FakeServer, run: Run, verb: str) -> None:
    for name in ("a", "b"):
        server.answers["POST", f"/api/v1/jobs/{name}/{verb}"] = make_job(name)
    why = ["--why", "too hot"] if verb != "release" else []
    result = run(verb, "a", "b", *why)
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()] == ["a", "b"]
    body = {"why": "too hot"} if why else {}
    assert json.loads(asked(server, f"/api/v1/jobs/a/{verb}").body) == body


def test_a_name_is_quoted(server: FakeServer, run: Run) -> None:
    run("cancel", "a/../b")
    assert server.requests[0].path == "/api/v1/jobs/a%2F..%2Fb/cancel"


def test_an_unknown_job_is_an_error_in_one_line(run: Run) -> None:
    result = run("explain", "nobody")
    assert result.exit_code == 1
    assert result.output.startswith("Error: 404")
    assert len(result.output.splitlines()) == 1


# --- watch ---------------------------------------------------------------------------------------


class Course:
    """A job that goes on each time that it is looked at."""

    def __init__(self, server: FakeServer, *states: str) -> None:
        self._states = list(states)
        self._server = server
        self._looks = 0
        self._told: list[dict[str, Any]] = []
        self._usual = server.answer
        server.answer = self.answer  # type: ignore[method-assign]

    def answer(self, request: Request) -> Answer:
        if request.path == JOB:
            state = self._states[min(self._looks, len(self._states) - 1)]
            self._looks += 1
            if state == "lost":
                return LOST
            number = len(self._told) + 1
            if self._looks <= len(self._states):
                self._told.insert(0, make_event(number, f"is {state} now", phase="train"))
            phases = [make_phase(state=state, reason="")]
            return Answer(200, msgspec.json.encode(make_job(state=state, phases=phases)))
        if request.path == f"{JOB}/events":
            page = {"next": None, "previous": None, "results": self._told}
            return Answer(200, msgspec.json.encode(page))
        return self._usual(request)


@pytest.mark.parametrize(("end", "status"), [("succeeded", 0), ("failed", 4), ("cancelled", 5)])
def test_a_job_is_followed_until_it_is_over(
    server: FakeServer, run: Run, end: str, status: int
) -> None:
    Course(server, "queued", "running", end)
    result = run("watch", "llama-ft-12")
    assert result.exit_code == status
    lines = result.output.splitlines()
    assert [line.partition("  ")[2] for line in lines[:3]] == [
        "train: is queued now", "train: is running now", f"train: is {end} now",
    ]  # fmt: skip
    assert f"llama-ft-12 {end}" in lines[3]


def test_a_server_that_is_away_is_waited_for(server: FakeServer) -> None:
    Course(server, "queued", "lost", "lost", "succeeded")
    complaints: list[str] = []
    with Client(server.url, "hru_secret", timeout_s=5) as client:
        told = list(
            Jobs(client).watch(
                "llama-ft-12", every_s=0.0, sleep=lambda seconds: None, complain=complaints.append
            )
        )
    assert [each["text"] for each in told] == ["is queued now", "is succeeded now"]
    assert len(complaints) == 1


def test_ctrl_c_ends_the_command_and_not_the_job(
    server: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: Any, **also: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Jobs, "watch", interrupted)
    result = run("watch", "llama-ft-12")
    assert result.exit_code == 130
    assert "goes on; to end it: headroom cancel llama-ft-12" in result.output
    assert not any("cancel" in each.path for each in server.requests)


def test_submitting_and_following_are_one_command(server: FakeServer, run: Run, spec: str) -> None:
    server.answers["POST", "/api/v1/jobs"] = make_job()
    Course(server, "running", "failed")
    result = run("submit", spec, "--watch")
    assert result.exit_code == 4
    assert "is running now" in result.output
    assert run("submit", spec, "--watch", "--json").exit_code == 2


# --- Lists, priorities, output --------------------------------------------------------------------


def test_jobs_are_listed_with_filters(server: FakeServer, run: Run) -> None:
    server.answers["GET", "/api/v1/me"] = {"username": "ada"}
    server.answers["GET", "/api/v1/jobs"] = {
        "next": None, "previous": None, "results": [make_job(), make_job("other", priority=-5)],
    }  # fmt: skip
    result = run("list", "--mine", "--open", "--project", "vision", "--state", "queued")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split() == [
        "job", "project", "class", "state", "priority", "GPUs", "submitted", "by",
    ]  # fmt: skip
    assert "other        vision   high-density-training  queued        -5    64" in result.output
    query = asked(server, "/api/v1/jobs").query
    assert query == {
        "state": "queued", "project": "vision", "open": "1", "submitted_by": "ada",
        "page_size": "20",
    }  # fmt: skip
    assert [row["name"] for row in json.loads(run("list", "--json").output)] == [
        "llama-ft-12", "other",
    ]  # fmt: skip
    assert len(json.loads(run("list", "--json", "--count", "1").output)) == 1
    server.answers["GET", "/api/v1/jobs"] = {"next": None, "previous": None, "results": []}
    assert run("list").output == "No such jobs.\n"


def test_a_long_list_is_read_page_by_page(server: FakeServer, run: Run) -> None:
    usual = server.answer

    def answer(request: Request) -> Answer:
        if request.path != "/api/v1/jobs":
            return usual(request)
        is_last = request.query.get("cursor") == "c2"
        following = None if is_last else "http://elsewhere.example/api/v1/jobs?cursor=c2"
        rows = [make_job(f"job-{'b' if is_last else 'a'}{at}") for at in range(1000)]
        body = {"next": following, "previous": None, "results": rows}
        return Answer(200, msgspec.json.encode(body))

    server.answer = answer  # type: ignore[method-assign]
    found = json.loads(run("list", "--json", "--count", "1500").output)
    assert len(found) == 1500
    assert found[1000]["name"] == "job-b0"


def test_a_priority_is_given(server: FakeServer, run: Run) -> None:
    server.answers["POST", f"{JOB}/priority"] = make_job(priority=-20)
    result = run("priority", "llama-ft-12", "--", "-20")
    assert result.exit_code == 2  # what comes after -- is no option
    result = CliRunner().invoke(
        main, ["priority", "--server", server.url, "llama-ft-12", "--", "-20"]
    )
    assert result.output == "llama-ft-12 has priority -20.\n"
    assert json.loads(asked(server, f"{JOB}/priority").body) == {"priority": -20}
    assert run("priority", "llama-ft-12", "101").exit_code == 2


class Talking:
    """A server on which a job says ``stretches``, one for each request."""

    def __init__(self, server: FakeServer, *stretches: dict[str, Any] | Answer) -> None:
        self._left = list(stretches)
        self.queries: list[dict[str, str]] = []
        self._usual = server.answer
        server.answer = self._answer  # type: ignore[method-assign]

    def _answer(self, request: Request) -> Answer:
        if request.path != f"{JOB}/logs":
            return self._usual(request)
        self.queries.append(request.query)
        found = self._left.pop(0) if len(self._left) > 1 else self._left[0]
        return found if isinstance(found, Answer) else Answer(200, msgspec.json.encode(found))


def test_the_end_of_a_running_job_is_printed_once_its_machine_has_answered(
    server: FakeServer, run: Run
) -> None:
    talking = Talking(
        server, make_said(pending=True), make_said("old\n", pending=True),
        make_said("old\nnew\n"),
    )  # fmt: skip
    result = run("logs", "llama-ft-12")
    assert (result.exit_code, result.stdout) == (0, "old\nnew\n")
    # Whose output it was first is read on.
    assert talking.queries == [{}, *[{"phase": "train", "attempt": "1", "rank": "0"}] * 2]


def test_following_goes_on_over_silence_and_a_server_that_is_away_until_the_end(
    server: FakeServer, run: Run
) -> None:
    talking = Talking(
        server, make_said("a\n"), make_said(offset=2), LOST, LOST, make_said("b", offset=2),
        make_said(offset=3, pending=True),
        make_said("\n", offset=3, state="ended", exit_code=3, why="exit code 3", over=True),
    )  # fmt: skip
    result = run("logs", "-f", "llama-ft-12")
    assert (result.exit_code, result.stdout) == (0, "a\nb\n")
    assert [each.get("offset") for each in talking.queries] == [
        None, "2", "2", "2", "2", "3", "3",
    ]  # fmt: skip
    assert result.stderr.count("waiting for the server") == 1
    assert "llama-ft-12/train/1 on oslo-a01-n1: exit code 3" in result.stderr


def test_all_of_it_is_read_from_the_beginning_piece_by_piece(server: FakeServer, run: Run) -> None:
    talking = Talking(
        server, make_said(pending=True), make_said("x" * 10, pending=True),
        make_said("y" * 5, offset=10, pending=True), make_said(offset=15),
    )  # fmt: skip
    result = run("logs", "--all", "--phase", "train", "--rank", "0", "llama-ft-12")
    assert result.stdout == "x" * 10 + "y" * 5
    assert [each["offset"] for each in talking.queries] == ["0", "0", "10", "15"]
    assert run("logs", "--rank", "0", "--node", "n", "llama-ft-12").exit_code == 2


def test_a_machine_that_never_answers_costs_seconds_and_leaves_its_last_words(
    server: FakeServer, run: Run
) -> None:
    talking = Talking(
        server,
        make_said(
            pending=True, tail="corpus\n", state="ended", why="exit code 3", ranks=8, rank=4,
            failed_ranks=[4, 2],
        ),
    )  # fmt: skip
    result = run("logs", "llama-ft-12")
    assert result.stdout == "corpus\n"
    assert "does not answer; this is the last that it told" in result.stderr
    assert "rank 4 of 8; others that failed: 2" in result.stderr
    assert len(talking.queries) < 40
    assert run("logs", "--all", "llama-ft-12").stdout == "corpus\n"


def test_a_job_that_has_not_begun_says_so(server: FakeServer, run: Run) -> None:
    nothing = make_said(attempt=None, phase="", node="", rank=None, ranks=0, pending=True)
    Talking(server, nothing)
    result = run("logs", "llama-ft-12")
    assert (result.stdout, result.exit_code) == ("", 0)
    assert "llama-ft-12 has not begun: headroom explain llama-ft-12" in result.stderr


def test_each_stretch_is_a_line_of_json(server: FakeServer, run: Run) -> None:
    Talking(server, make_said("a\n\x00"), make_said(offset=3, over=True))
    lines = run("logs", "-f", "--json", "llama-ft-12").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["a\n\x00", ""]


def test_a_terminal_obeys_nothing_that_a_job_says_but_colors() -> None:
    red, title, clear = "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b[2J\x00\x9b2J"
    assert words.harmless(f"{red} \tok\r\n") == f"{red} \tok\r\n"
    assert words.harmless(title) == "⟨U+001B⟩]0;title⟨U+0007⟩"
    assert words.harmless(f"{clear} \u202etxt") == "⟨U+001B⟩[2J⟨U+0000⟩⟨U+009B⟩2J ⟨U+202E⟩txt"


BOOKING = {
    "id": 3, "kind": "maintenance", "state": "ahead", "what": "rack oslo/A01", "project": None,
    "gpus": 64, "starts_at": "2026-12-01T14:00:00Z", "ends_at": "2026-12-01T16:00:00Z",
    "reason": "new pumps",
}  # fmt: skip
SPAN = ("--from", "2026-12-01T14:00Z", "--to", "2026-12-01T16:00Z", "--why", "new pumps")


def test_hosts_are_booked_listed_and_given_back(server: FakeServer, run: Run) -> None:
    server.answers["POST", "/api/v1/bookings"] = BOOKING
    result = run("book", *SPAN, "--place", "rack", "oslo/A01")
    assert result.output.startswith("Booking 3: rack oslo/A01, 64 GPUs, for maintenance, ")
    assert json.loads(asked(server, "/api/v1/bookings").body) == {
        "starts_at": "2026-12-01T14:00Z", "ends_at": "2026-12-01T16:00Z", "project": None,
        "reason": "new pumps", "scope_kind": "rack", "scope_name": "oslo/A01",
    }  # fmt: skip
    server.answers["GET", "/api/v1/bookings"] = {"results": [BOOKING], "next": None}
    assert "rack oslo/A01" in run("bookings").output
    server.answers["POST", "/api/v1/bookings/3/end"] = BOOKING
    assert run("unbook", "3").output == "Booking 3, rack oslo/A01, is ended.\n"


@pytest.mark.parametrize("place", [(), ("--gpus", "8", "--place", "rack", "oslo/A01")])
def test_a_booking_is_of_a_place_or_of_gpus(
    server: FakeServer, run: Run, place: tuple[str, ...]
) -> None:
    assert run("book", *SPAN, *place).exit_code == 2
    assert server.requests == []


def test_goodput_without_a_job_is_that_of_the_fleet(run: Run, server: FakeServer) -> None:
    server.answers["GET", "/api/v1/goodput"] = make_fleet_goodput(groups=[])
    result = run("goodput", "--project", "vision", "--by", "site", "--range", "2d")
    assert result.exit_code == 0, result.output
    assert "both 50.0 %" in result.output
    (request,) = server.requests
    assert request.query == {"range": "2d", "by": "site", "project": "vision"}


def test_goodput_of_a_job_takes_no_part_of_the_fleet(run: Run, server: FakeServer) -> None:
    result = run("goodput", "llama-ft-12", "--site", "oslo")
    assert result.exit_code == 2
    assert "--site is for the fleet" in result.output
    assert not server.requests


def test_losses_are_those_of_what_is_asked_for(run: Run, server: FakeServer) -> None:
    server.answers["GET", "/api/v1/losses"] = make_losses()
    result = run("losses", "--site", "oslo", "--range", "30d", "--rank", "money")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("What pays first: look at its cooling.\n")
    (request,) = server.requests
    assert request.query == {"site": "oslo", "range": "30d", "rank": "money"}
    assert run("losses", "--rank", "moon").exit_code == 2
