"""Jobs of ours, of Slurm and of Kueue that wait for the same thing are told of it alike.

On the queue page and their own, by the API and the command line, and where their schedulers show
why jobs wait. Slurm is an invented one; Kueue's order of conditions is played.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from django.test import Client as HttpClient

from accounts.models import User
from accounts.roles import Role
from admission.cycle import estimating, live
from admission.executors.schedulers import registered
from admission.jobs.catalog import CLASSES
from admission.queue import queue_status
from admission.queue.queue_status import PendingStatus
from headroom.cli import main
from headroom.jobs import words
from telemetry import stream
from tests.builders.accounts import api_client, make_token, make_user
from tests.builders.begun import begin_anew
from tests.builders.documents import put_in_force
from tests.builders.fleet import small_fleet
from tests.builders.jobs import make_project
from tests.builders.policies import lower_budget
from tests.builders.schedulers import NAME as SLURM
from tests.builders.schedulers import Invented
from tests.html import html_of
from tests.integration.admission.cycle.scenes import machines_of, queued, start
from tests.integration.dashboard.test_throttle_page import text_of
from tests.integration.headroom.test_jobs import Wire
from tests.kubernetes.server import ApiServer
from tests.kubernetes.site import Site, made

pytestmark = pytest.mark.django_db

CLASS = """\
name: alike
kind_of_work: runs
defaults:
  power: {lowest_cap_w: 300}
  throttling: {responses: [continue], max_slowdown: 0.3}
"""
SPEC = """\
name: NAME
project: vision
class: alike
phases:
  - name: job
    gang: {gpus: 4, gpus_per_node: 4}
    power: {expected_peak_w: 650}
    walltime_s: 3600
    command: [python, train.py]
"""
#: What only a job of ours can be changed in: its scheduler starts what was submitted there.
_OF_SCHEDULERS = {"gpus", "walltime_s"}


@dataclass
class Scene:
    """Three jobs that wait for the same, by where they were submitted, and who looks at them."""

    site: Site
    slurm: Invented
    names: dict[str, str]
    readers: dict[str, User]
    folder: Path

    def decide(self) -> None:
        """Estimate and decide, and have what is told reach those who are to read it."""
        self.site.round()
        live.invalidate()
        estimating.estimate_once(time.time())
        self.site.round()
        self.slurm.tell(complete=True)
        self.site.step()

    def line(self, where: str) -> PendingStatus:
        key = f"{self.names[where]}/job"
        return queue_status.pending_statuses([key])[key]

    def message(self, where: str) -> str:
        """Return what stands where the owner of an adopted job looks."""
        if where == "kueue":
            return str(self.site.check("theirs")["message"])
        self.slurm.session = f"s-{time.time_ns()}"
        return str(self.slurm.tell(complete=True)["comments"]["7"])

    def page(self, reader: str, path: str) -> str:
        client = HttpClient()
        client.force_login(self.readers[reader])
        return text_of(html_of(client.get(path)))

    def api(self, reader: str, path: str) -> Any:
        token = make_token(self.readers[reader])
        return HttpClient(headers={"Authorization": f"Bearer {token}"}).get(path).json()

    def said(self, reader: str, *command: str) -> str:
        """Return what the command line says."""
        env = {"HEADROOM_TOKEN": make_token(self.readers[reader])}
        given = [*command, "--server", "http://headroom.example"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("urllib3.PoolManager", lambda **given: Wire())
            return CliRunner().invoke(main, given, env=env).output


@pytest.fixture
def scene(db: None, api_server: ApiServer, tmp_path: Path) -> Iterator[Scene]:
    # What another test has estimated is not of these jobs.
    stream.connection().flushall()
    fleet = small_fleet(sites=["bergen"], rows=["A"], racks_per_row=3)
    begin_anew()
    nodes = sorted(fleet.nodes)
    machines_of(fleet)
    put_in_force(CLASSES, CLASS)
    slurm = Invented(fleet, fleet.token, has=nodes[2:4])
    readers = {"member": make_user(Role.ML_USER), "operator": make_user(Role.OPERATOR)}
    make_project("vision").members.add(readers["member"])
    with made(fleet, api_server, nodes=nodes[4:]) as site:
        site.choose(giveBack={"enabled": False})
        site.begin()
        names = {"ours": "ours", "slurm": f"{SLURM}-7", "kueue": ""}
        yield Scene(site, slurm, names, readers, tmp_path)
    registered.invalidate()


@pytest.fixture
def waiting(scene: Scene) -> Scene:
    """One job runs, and there is power for no other."""
    _submit(scene, "runs")
    scene.site.round()
    start("runs")
    lower_budget("site", "bergen", 12_000.0)
    _submit_all(scene)
    return scene


def _submit_all(scene: Scene) -> None:
    """Submit a job in each place, and have all be looked at."""
    _submit(scene, "ours")
    words_of_owner = {"headroom.dev/class": "alike", "headroom.dev/peak-w": "650"}
    scene.site.submit("theirs", annotations=words_of_owner)
    scene.slurm.submit("7", comment="headroom: class=alike peak_w=650")
    scene.site.until(lambda: scene.site.check("theirs").get("message"))
    scene.slurm.tell()
    scene.decide()
    scene.names["kueue"] = scene.site.ours("theirs")


def _submit(scene: Scene, name: str) -> None:
    path = scene.folder / f"{name}.yaml"
    path.write_text(SPEC.replace("NAME", name))
    assert "is queued" in scene.said("operator", "submit", str(path))


def test_all_are_told_the_same_reason_in_the_same_numbers(waiting: Scene) -> None:
    first = [waiting.line(where).reasons[0] for where in waiting.names]
    assert {each.token for each in first} == {"SitePowerHeadroom"}
    assert len({(each.need, each.have, each.short, each.scope_name) for each in first}) == 1
    (sentence,) = {each.sentence for each in first}
    for part in ("needs ", "site bergen", "which has ", "short "):
        assert part in sentence


@pytest.mark.parametrize("where", ["ours", "slurm", "kueue"])
def test_what_is_told_of_a_job_is_the_same_wherever_one_looks(waiting: Scene, where: str) -> None:
    name, line = waiting.names[where], waiting.line(where)
    first = line.reasons[0]
    assert line.p10_s is not None
    when = words.likely(words.between(line.p10_s, line.p90_s))
    page = waiting.page("member", f"/jobs/{name}/")
    assert f"{name} is waiting" in page
    assert f": {first.sentence} " in page
    assert f"{when[0].upper()}{when[1:]} (with 80 % confidence)" in page
    assert f"position {line.position} of 3" in page
    need, have, short = (f"{each / 1000:.2f} kW" for each in (first.need, first.have, first.short))
    assert f"{first.token} {need} {have} {short} site bergen {first.sentence}" in page
    row = re.search(rf"{line.position} {name}/job (.*?) alike vision", waiting.page(*_QUEUE))
    assert row
    assert row[1].startswith(f"{first.token} {first.sentence} {_span(when)} ")
    said = waiting.said("member", "explain", name)
    assert f": {first.sentence} ({first.token})." in said
    assert f"  otherwise {when.removeprefix('likely to start ')}\n" in said
    assert f"position {line.position} in the queue" in said
    listed = re.search(rf"{name}/job +alike .*? s  (.*)", waiting.said("member", "queue"))
    assert listed
    assert re.split("  +", listed[1]) == [_span(when), f"{first.token}: {first.sentence}"]
    (explained,) = waiting.api("member", f"/api/v1/jobs/{name}/explain")["phases"]
    for field in ("token", "need", "have", "short", "scope_name", "sentence"):
        assert explained["reasons"][0][field] == getattr(first, field)
    assert explained["estimate"]["p90_s"] == line.p90_s
    if where != "ours":
        whole = f"{first.token}: {first.sentence}; {when}; position {line.position} in the queue"
        assert waiting.message(where) == whole


_QUEUE = ("member", "/queue/")


def _span(when: str) -> str:
    return when.removeprefix("likely to start ").removeprefix("in ")


def test_what_nobody_can_say_is_said_wherever_one_looks(scene: Scene) -> None:
    lower_budget("site", "bergen", 6_000.0)
    _submit_all(scene)
    unknown = "when it will start cannot be said"
    for where in ("ours", "slurm", "kueue"):
        assert scene.line(where).p50_s is None
        if where != "ours":
            assert f"; {unknown}; position " in scene.message(where)
        assert unknown in scene.said("member", "explain", scene.names[where])
        page = scene.page("member", f"/jobs/{scene.names[where]}/")
        assert f"{unknown[0].upper()}{unknown[1:]}" in page


def test_changes_are_offered_alike_where_headroom_carries_them_out(waiting: Scene) -> None:
    offered = {}
    for where, name in waiting.names.items():
        (explained,) = waiting.api("member", f"/api/v1/jobs/{name}/explain")["phases"]
        offered[where] = [
            (set(each["change"]), each["sentence"])
            for each in explained["counterfactuals"]
            if not each["begins_at"]
        ]
        said = waiting.said("member", "explain", name)
        for _, sentence in offered[where]:
            assert sentence in said
    ours = [each for each in offered["ours"] if not _OF_SCHEDULERS & each[0]]
    assert ours
    assert offered["slurm"] == offered["kueue"] == ours


def test_a_name_of_others_is_hidden_from_whom_it_is_everywhere(waiting: Scene) -> None:
    make_project("sphinx")
    secret = queued("sphinx-job", project="sphinx").phases.get()
    client = api_client(Role.OPERATOR)
    given = {"kind": "no_new_launches", "scope": {"kind": "class", "name": "alike"}, "for_s": 600,
             "reason": f"{secret.key} is to end first"}  # fmt: skip
    answer = client.post("/api/v1/restrictions", given, content_type="application/json")
    assert answer.status_code == 201, answer.content
    waiting.decide()
    for where, name in waiting.names.items():
        assert secret.key in waiting.line(where).reasons[0].sentence
        for told in (
            waiting.page("member", f"/jobs/{name}/"),
            waiting.page(*_QUEUE),
            waiting.said("member", "explain", name),
            waiting.said("member", "queue"),
            *([] if where == "ours" else [waiting.message(where)]),
        ):
            assert "sphinx" not in told
            assert "a job of another project is to end first" in told
        assert secret.key in waiting.said("operator", "explain", name)
