"""What a team is told of its job, where another one is in its way: never whose job that is.

The same answers to the command line, the API and the pages, once to a member of one project and
once to somebody who sees all.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from django.test import Client as HttpClient

from accounts.models import User
from accounts.roles import Role
from admission.cycle import live
from admission.jobs.catalog import CLASSES
from admission.queue import queue_status
from headroom.cli import main
from headroom.jobs import commands
from tests.builders.accounts import make_token, make_user
from tests.builders.documents import put_in_force
from tests.builders.jobs import make_project
from tests.integration.admission.cycle.scenes import cycle, idle_fleet
from tests.integration.headroom.test_jobs import Wire, clean_stores

__all__ = ["clean_stores"]

pytestmark = pytest.mark.django_db

HIDDEN = "sphinx"
SPEC = """\
name: {name}
project: {project}
class: {job_class}
phases:
  - name: {phase}
    gang: {{gpus: {gpus}}}
    power: {{expected_peak_w: 500}}
    walltime_s: 3600
    command: [python, train.py]
"""
BOOKED = ["--from", "2100-01-01T00:00Z", "--to", "2100-01-02T00:00Z", "--gpus", "4"]
#: The arguments of every command about jobs; ``{file}`` is a specification.
ARGUMENTS = {
    "queue": [],
    "explain": ["mine"],
    "goodput": ["mine"],
    "losses": [],
    "budgets": [],
    "diagnose": ["mine"],
    "artifacts": ["mine"],
    "list": [],
    "logs": ["mine"],
    "priority": ["mine", "0"],
    "submit": ["{file}", "--dry-run"],
    "hold": ["mine"],
    "release": ["mine"],
    "waive": ["mine"],
    # The name is taken, so that it waits for nothing.
    "run": ["--interactive", "--project", "vision", "--name", "mine"],
    # It has not begun: there is nothing to open one in.
    "shell": ["mine"],
    "limits": ["vision"],
    "bookings": [],
    "book": [*BOOKED, "--why", "more"],
    "unbook": ["1"],
    "cancel": ["mine"],
    # It is over by then.
    "watch": ["mine"],
}
#: What is asked about the job by other ways.
ADDRESSES = (
    "/jobs/mine/", "/live/jobs/mine/fixes", "/live/jobs/mine/why", "/queue/", "/live/queue/fixes",
    "/api/v1/jobs/mine", "/api/v1/jobs/mine/explain", "/api/v1/jobs/mine/goodput",
    "/api/v1/jobs/mine/diagnosis", "/live/jobs/mine/diagnosis",
    "/api/v1/jobs/mine/events", "/live/jobs/mine/goodput", "/api/v1/queue",
)  # fmt: skip

Run = Callable[..., Result]


@pytest.fixture
def people(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, User]:
    """A job of ours that waits behind one of another project, which it could go ahead of."""
    monkeypatch.setattr("urllib3.PoolManager", lambda **given: Wire())
    idle_fleet()
    member, operator = make_user(Role.ML_USER), make_user(Role.OPERATOR)
    make_project("vision").members.add(member)
    make_project(f"{HIDDEN}-team")
    for name, priority in (("slow", 0), ("middle", 40), ("fast", 80)):
        most = "max_running: 1\n" if name == "slow" else ""
        text = f"name: {name}\nkind_of_work: runs\npriority: {priority}\n{most}"
        put_in_force(CLASSES, text)
    runs = _run_as(operator, monkeypatch)
    for name, project, job_class, gpus in (
        ("runs", f"{HIDDEN}-team", "slow", 4), (f"{HIDDEN}-job", f"{HIDDEN}-team", "middle", 16),
        ("mine", "vision", "slow", 4),
    ):  # fmt: skip
        path = tmp_path / f"{name}.yaml"
        phase = f"{HIDDEN}-phase" if HIDDEN in name else "train"
        path.write_text(
            SPEC.format(name=name, project=project, job_class=job_class, gpus=gpus, phase=phase)
        )
        assert runs("submit", str(path)).exit_code == 0
        cycle()
    live.invalidate()
    kept = runs("book", *BOOKED, "--for", f"{HIDDEN}-team", "--why", f"{HIDDEN}-demo")
    assert kept.exit_code == 0
    (tmp_path / "file.yaml").write_text((tmp_path / "mine.yaml").read_text())
    return {"member": member, "operator": operator}


def _run_as(user: User, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADROOM_TOKEN", make_token(user))

    def invoke(*args: str) -> Result:
        return CliRunner().invoke(main, [*args, "--server", "http://headroom.example"])

    return invoke


def test_every_command_about_jobs_has_arguments_here() -> None:
    assert {each.name for each in commands.COMMANDS} == set(ARGUMENTS)


@pytest.mark.parametrize("who", ["member", "operator"])
def test_the_command_line_names_no_job_that_its_user_may_not_see(
    who: str, people: dict[str, User], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run, told = _run_as(people[who], monkeypatch), {}
    for name, arguments in ARGUMENTS.items():
        given = [each.format(file=tmp_path / "file.yaml") for each in arguments]
        told[name] = run(name, *given).output + run(name, *given, "--json").output
    if who == "member":
        assert not [name for name, text in told.items() if HIDDEN in text], told
        assert "ahead of a job of another project" in told["explain"]
        assert "goes ahead of 1 job that waits" in told["explain"]
    else:
        assert f"ahead of {HIDDEN}-job/{HIDDEN}-phase" in told["explain"]
        assert f"{HIDDEN}-team" in told["bookings"]


@pytest.mark.parametrize("who", ["member", "operator"])
def test_pages_and_api_say_whom_a_change_goes_ahead_of_to_those_alone_who_may_see_it(
    who: str, people: dict[str, User]
) -> None:
    client = HttpClient()
    client.force_login(people[who])
    told = {url: client.get(url).content.decode() for url in ADDRESSES}
    told |= {f"{url} again": client.get(url).content.decode() for url in ADDRESSES}
    named = {url.removesuffix(" again") for url, text in told.items() if HIDDEN in text}
    if who == "operator":
        assert {"/jobs/mine/", "/live/jobs/mine/fixes", "/api/v1/jobs/mine/explain"} <= named
    else:
        assert not named
        assert "ahead of a job of another project" in " ".join(told["/jobs/mine/"].split())
    (offer,) = [
        each
        for each in client.get("/api/v1/jobs/mine/explain").json()["phases"][0]["counterfactuals"]
        if "job_class" in each["change"] and each["change"]["job_class"] == "fast"
    ]
    assert offer["costs_others"]["own"] == 0
    assert len(offer["costs_others"]["jobs"]) == 1


def test_what_is_kept_of_a_decision_holds_its_names_apart_from_its_sentences(
    people: dict[str, User],
) -> None:
    """Sentences in Redis and in histories name nobody: who is meant stands beside them."""
    for status in queue_status.pending_statuses(["mine/train"]).values():
        texts = [each.sentence for each in status.reasons]
        texts += [each.sentence for each in status.trace]
        assert texts
        assert not [text for text in texts if HIDDEN in text]
