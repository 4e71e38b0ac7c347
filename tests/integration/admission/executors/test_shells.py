"""Terminals in jobs: who may open one, how it is asked of the machine, and how it ends."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from accounts.models import AuditEntry, User
from accounts.roles import Role
from admission.executors import relay
from admission.executors.models import NodeAssignment, Shell
from admission.executors.relay import Standing
from admission.jobs.models import Attempt, Job, Project
from admission.shells import opening
from telemetry import stream
from tests.builders.accounts import make_user
from tests.integration.admission.executors.conftest import NODES, Scene
from tests.integration.admission.jobs.conftest import client_as

NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def attempt(scene: Scene) -> Attempt:
    stream.connection().flushall()
    return scene.running()


@pytest.fixture
def owner(attempt: Attempt) -> User:
    user = make_user(Role.ML_USER, username="owner")
    job = attempt.phase.job
    Job.objects.filter(pk=job.pk).update(submitted_by="owner")
    Project.objects.get(pk=job.project_id).members.add(user)
    return user


def ask(user: User, attempt: Attempt, **given: Any) -> Any:
    url = f"/api/v1/jobs/{attempt.phase.job.name}/shells"
    return client_as(user).post(url, given, content_type="application/json")


def test_the_owner_of_a_running_job_opens_a_terminal_on_its_machine(
    scene: Scene, attempt: Attempt, owner: User
) -> None:
    answer = ask(owner, attempt, command=["nvidia-smi"], rows=50, columns=132)
    assert answer.status_code == 201, answer.content
    found = answer.json()
    assert found["node"] == NODES[0]
    (told,) = scene.machines[0].post().json()["shells"]
    assert told["session"] == found["session"]
    assert told["secret"] != found["secret"]
    assert (told["attempt"], told["command"]) == (attempt.key, ["nvidia-smi"])
    assert (told["rows"], told["columns"], told["is_terminal"]) == (50, 132, True)
    # Nobody else is told of it.
    assert scene.machines[1].post().json()["shells"] == []
    entry = AuditEntry.objects.get(action="shell.open")
    assert (entry.actor, entry.target) == ("owner", attempt.phase.job.name)
    assert entry.detail["node"] == NODES[0]
    assert found["secret"] not in str(entry.detail)


def test_another_member_of_the_project_may_not_and_neither_may_an_operator(
    attempt: Attempt, owner: User
) -> None:
    other = make_user(Role.ML_USER, username="other")
    Project.objects.get(pk=attempt.phase.job.project_id).members.add(other)
    assert ask(other, attempt).status_code == 403
    assert ask(make_user(Role.OPERATOR), attempt).status_code == 403
    assert ask(make_user(Role.ML_USER, username="stranger"), attempt).status_code == 404
    assert not Shell.objects.exists()
    # It is granted with a capability of its own.
    assert ask(make_user(Role.ADMIN), attempt).status_code == 201


def test_one_is_opened_in_what_runs_alone(attempt: Attempt, owner: User) -> None:
    NodeAssignment.objects.update(state="claimed")
    answer = ask(owner, attempt)
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "not_running"


def test_a_user_has_only_so_many_open(attempt: Attempt, owner: User) -> None:
    codes = [ask(owner, attempt).status_code for _ in range(opening.MOST_PER_USER + 1)]
    assert codes == [201] * opening.MOST_PER_USER + [409]


@pytest.mark.parametrize(
    "given", [{"rows": 0}, {"term": "a b"}, {"command": ["x"] * 101}, {"rank": -1}, {"rank": 7}]
)
def test_a_request_that_makes_no_sense_is_refused(
    attempt: Attempt, owner: User, given: dict[str, Any]
) -> None:
    answer = ask(owner, attempt, **given)
    assert answer.status_code == 400, answer.content
    assert next(iter(given)) in answer.content.decode()


def test_a_machine_is_asked_for_half_a_minute(scene: Scene, attempt: Attempt, owner: User) -> None:
    ask(owner, attempt)
    Shell.objects.update(asked_at=timezone.now() - timedelta(seconds=31))
    assert scene.machines[0].post().json()["shells"] == []
    assert opening.follow(timezone.now() + timedelta(seconds=10)) == 1
    shell = Shell.objects.get()
    assert shell.why == "its machine did not come for it"
    entry = AuditEntry.objects.get(action="shell.end")
    assert entry.detail["why"] == shell.why
    assert (entry.detail["seconds"], entry.detail["bytes_out"]) == (0.0, 0)


def test_the_end_of_the_command_is_written_down_with_how_much_was_said(
    attempt: Attempt, owner: User
) -> None:
    session = ask(owner, attempt).json()["session"]
    now = time.time()
    stream.connection().hset(
        relay._key(session),
        mapping={"begun": now - 60, "node_seen": now, "bytes_user": 12, "bytes_node": 3400,
                 "exit": 3, "over": ""},
    )  # fmt: skip
    assert opening.follow(datetime.fromtimestamp(now, UTC)) == 1
    assert opening.follow(datetime.fromtimestamp(now, UTC)) == 0
    shell = Shell.objects.get()
    assert (shell.exit_code, shell.bytes_in, shell.bytes_out, shell.why) == (3, 12, 3400, "")
    detail = AuditEntry.objects.get(action="shell.end").detail
    assert (detail["seconds"], detail["bytes_in"], detail["exit_code"]) == (60.0, 12, 3)


@pytest.mark.parametrize(
    ("stands", "state", "why"),
    [
        ({}, "running", None),
        ({"begun_at": -8 * 3600 - 1}, "running", "it was open for 28800 s"),
        ({"data_at": -1801}, "running", "nothing was said for 1800 s"),
        ({"user_seen_at": -61}, "running", "whoever had opened it was not heard any more"),
        ({"node_seen_at": -61}, "running", "its machine was not heard any more"),
        ({"node_seen_at": -4}, "ended", None),
        ({"node_seen_at": -6}, "ended", "the job has ended"),
        ({"is_known": False}, "running", "what was kept of it is gone"),
        ({"over": "as it says"}, "running", "as it says"),
    ],
)
def test_a_terminal_ends_with_its_time_its_ends_and_its_job(
    settings: Settings, stands: dict[str, Any], state: str, why: str | None
) -> None:
    at = NOW.timestamp()
    given: dict[str, Any] = {"is_known": True}
    for name in ("begun_at", "data_at", "user_seen_at", "node_seen_at"):
        given[name] = at + stands.get(name, -1)
    given |= {name: stands[name] for name in ("is_known", "over") if name in stands}
    found = opening.why_over(Standing(**given), NOW, state, NOW)
    assert found == why or (why is not None and found is not None and found.startswith(why))


def test_an_end_without_its_secret_is_told_nothing(client: Client) -> None:
    # Django knows nothing of them: they are the door's.
    answer = client.get("/api/v1/shells/0a0a0a0a-0000-0000-0000-000000000000/user")
    assert answer.status_code == 404


class TestInteractiveJobs:
    @pytest.fixture
    def job(self, attempt: Attempt, owner: User) -> Job:
        Job.objects.update(interactive=True)
        return attempt.phase.job

    def begin(self, monkeypatch: pytest.MonkeyPatch, **stands: Any) -> None:
        """Have all terminals stand as given."""
        at = timezone.now().timestamp()
        known = {"begun_at": at, "data_at": at, "user_seen_at": at, "node_seen_at": at}
        found = Standing(is_known=True, **known | stands)
        monkeypatch.setattr(relay, "standing", lambda session: found)

    def is_stopped(self, job: Job) -> bool:
        return Attempt.objects.open().filter(phase__job=job).exclude(outcome="").exists()

    def test_one_ends_with_its_last_terminal(
        self, attempt: Attempt, owner: User, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = (ask(owner, attempt).json()["session"] for _ in range(2))
        self.begin(monkeypatch)
        assert opening.follow(timezone.now()) == 0
        Shell.objects.filter(pk=second).update(ended_at=timezone.now())
        assert not self.is_stopped(job)
        self.begin(monkeypatch, over="")
        assert opening.follow(timezone.now()) == 1
        assert Shell.objects.get(pk=first).ended_at is not None
        assert self.is_stopped(job)
        assert job.events.get(kind="terminal-ended").text == "Ends: its terminal was left"

    @pytest.mark.parametrize(
        ("command", "stands", "ends"),
        [
            # Of a shell it is the status of whatever came last in it.
            ([], {"over": "", "exit_code": 130}, ("succeeded", 130)),
            (["train"], {"over": "", "exit_code": 0}, ("succeeded", 0)),
            (["train"], {"over": "", "exit_code": 3}, ("failed", 3)),
            ([], {"user_seen_at": 1.0}, ("failed", None)),
        ],
    )
    def test_it_is_done_when_its_terminal_is_left_and_has_failed_when_that_breaks_off(
        self, scene: Scene, attempt: Attempt, owner: User, job: Job,
        monkeypatch: pytest.MonkeyPatch, command: list[str], stands: dict[str, Any],
        ends: tuple[str, int | None],
    ) -> None:  # fmt: skip
        ask(owner, attempt, command=command)
        self.begin(monkeypatch, **stands)
        opening.follow(timezone.now())
        for _ in range(3):
            scene.reconcile()
            scene.go_round()
        scene.reconcile()
        found = Attempt.objects.get()
        assert (found.outcome, found.exit_code) == ends
        job.refresh_from_db()
        assert job.state == ends[0]
        assert (found.lost_gpu_s > 0) == (ends[0] == "failed")

    def test_a_cancel_of_its_owner_cancels_it_unless_it_has_ended_before(
        self, attempt: Attempt, owner: User, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask(owner, attempt)
        self.begin(monkeypatch, over="", exit_code=0)
        opening.follow(timezone.now())
        cancel = f"/api/v1/jobs/{job.name}/cancel"
        assert client_as(owner).post(cancel, {}).status_code == 200
        assert Attempt.objects.get().outcome == "succeeded"
        Attempt.objects.update(outcome="", exit_code=None)
        assert client_as(owner).post(cancel, {}).status_code == 200
        assert Attempt.objects.get().outcome == "cancelled"

    def test_one_goes_on_while_another_terminal_is_open(
        self, attempt: Attempt, owner: User, job: Job, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ask(owner, attempt)
        self.begin(monkeypatch, over="")
        ask(owner, attempt)
        rows = list(Shell.objects.order_by("asked_at"))
        opening._follow(rows[0], timezone.now())
        assert not self.is_stopped(job)

    def test_one_in_which_nobody_opens_a_terminal_ends(self, job: Job) -> None:
        begun = Attempt.objects.get().started_at
        assert begun is not None
        opening.follow(begun + timedelta(seconds=290))
        assert not self.is_stopped(job)
        opening.follow(begun + timedelta(seconds=310))
        assert self.is_stopped(job)

    def test_other_jobs_go_on(self, attempt: Attempt, job: Job) -> None:
        Job.objects.update(interactive=False)
        begun = Attempt.objects.get().started_at
        assert begun is not None
        opening.follow(begun + timedelta(seconds=310))
        assert not self.is_stopped(job)
