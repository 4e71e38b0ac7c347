"""The commands about jobs against the real server and the real cycle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result
from django.test import Client as HttpClient

from accounts.roles import Role
from admission.jobs.models import Job, Phase
from headroom.cli import main
from headroom.jobs import commands
from tests.builders.accounts import make_token, make_user
from tests.builders.fleet import SmallFleet
from tests.builders.jobs import make_project
from tests.integration.admission.cycle.scenes import cycle, end, idle_fleet, start

pytestmark = pytest.mark.django_db

SPEC = """\
name: {name}
project: vision
class: low-power-experimentation
phases:
  - name: train
    gang: {{gpus: {gpus}}}
    power: {{expected_peak_w: 500}}
    walltime_s: 3600
    command: [python, train.py]
"""

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def clean_stores(clean_stores: None) -> None:
    """Each test begins with nothing but its own database."""


@pytest.fixture
def fleet() -> SmallFleet:
    """Two racks of two nodes of four idle GPUs; every machine runs jobs."""
    return idle_fleet()


class Wire:
    """Carries requests to the server in this process, as a pool of connections would."""

    def request(self, method: str, url: str, **given: Any) -> Any:
        parts = urlsplit(url)
        headers = dict(given["headers"])
        answer = HttpClient().generic(
            method,
            f"{parts.path}?{parts.query}",
            given["body"] or b"",
            content_type=headers.pop("Content-Type", ""),
            headers=headers,
        )
        return SimpleNamespace(
            status=answer.status_code,
            data=answer.content,
            headers=answer.headers,
            reason=answer.reason_phrase,
        )


@pytest.fixture
def run(fleet: SmallFleet, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command as an ML user of the project vision."""
    user = make_user(Role.ML_USER)
    make_project("vision").members.add(user)
    monkeypatch.setenv("HEADROOM_TOKEN", make_token(user))
    monkeypatch.setattr("urllib3.PoolManager", lambda **given: Wire())

    def invoke(*args: str, **given: Any) -> Result:
        return CliRunner().invoke(main, [*args, "--server", "http://headroom.example"], **given)

    return invoke


def write(folder: Path, name: str, gpus: int = 4) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(SPEC.format(name=name, gpus=gpus))
    return str(path)


def test_a_job_is_submitted_and_begins(run: Run, tmp_path: Path) -> None:
    result = run("submit", write(tmp_path, "trial-1"), "--key", "k1")
    assert result.exit_code == 0, result.output
    assert "trial-1 is queued: 1 phase, 4 GPUs" in result.output
    assert run("submit", write(tmp_path, "trial-1"), "--key", "k1").exit_code == 0
    assert Job.objects.count() == 1
    taken = run("submit", write(tmp_path, "trial-1"))
    assert (taken.exit_code, "name_taken" in taken.output) == (1, True)
    cycle()
    assert Phase.objects.get().state == Phase.State.STARTING
    explained = run("explain", "trial-1")
    assert explained.output == "trial-1/train is starting.\n"


def test_a_dry_run_says_what_the_next_cycle_would_do(run: Run, tmp_path: Path) -> None:
    result = run("submit", write(tmp_path, "trial-1"), "--dry-run")
    assert result.exit_code == 0, result.output
    assert "train would begin at once: 4 GPUs on 1 node in oslo/A0" in result.output
    waits = run("submit", write(tmp_path, "huge", gpus=64), "--dry-run")
    assert waits.exit_code == 3, waits.output
    assert "train would wait" in waits.output
    assert not Job.objects.exists()


def test_what_waits_is_told_with_its_reason(run: Run, tmp_path: Path) -> None:
    for number in range(5):
        assert run("submit", write(tmp_path, f"trial-{number}")).exit_code == 0
    cycle()
    waiting = Phase.objects.filter(state="queued").select_related("job").get()
    queue = run("queue").output
    assert queue.startswith("1 wait, ")
    assert waiting.reason in queue
    assert waiting.key in queue
    explained = run("explain", waiting.job.name).output
    assert explained.startswith(f"{waiting.key} waits, for ")
    assert f"({waiting.reason})" in explained
    told = json.loads(run("explain", waiting.job.name, "--json").output)
    assert told["phases"][0]["reasons"][0]["token"] == waiting.reason


def test_a_job_is_held_released_and_cancelled(run: Run, tmp_path: Path) -> None:
    run("submit", write(tmp_path, "trial-1"))
    assert run("hold", "trial-1", "--why", "data").exit_code == 0
    cycle()
    assert "OnHold" in run("explain", "trial-1").output
    assert run("release", "trial-1").output == "trial-1 may begin.\n"
    again = run("release", "trial-1")
    assert (again.exit_code, "not_held" in again.output) == (1, True)
    assert run("cancel", "trial-1", "--why", "wrong rate").exit_code == 0
    assert Job.objects.get().state == "cancelled"
    assert run("explain", "trial-1").output == "trial-1 is over: cancelled.\n"


def test_a_job_is_followed_to_its_end(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on while the command sleeps."""

    def finish() -> None:
        end("trial-1", "succeeded")
        Phase.objects.update(state="succeeded")
        Job.objects.update(state="succeeded")

    course: Iterator[Callable[[], object]] = iter([cycle, lambda: start("trial-1"), finish])
    monkeypatch.setattr(commands, "_sleep", lambda seconds: next(course)())
    result = run("submit", write(tmp_path, "trial-1"), "--watch")
    assert result.exit_code == 0, result.output
    told = [line.partition("  ")[2] for line in result.output.splitlines()[1:-1]]
    assert told[0].startswith("Submitted by ml_user")
    assert any(line.startswith("train: ") for line in told[1:])
    assert "trial-1 succeeded" in result.output


def test_jobs_of_other_projects_are_nobodys(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = make_user(Role.ML_USER)
    monkeypatch.setenv("HEADROOM_TOKEN", make_token(stranger))
    result = run("cancel", "trial-1")
    assert (result.exit_code, result.output[:10]) == (1, "Error: 404")
