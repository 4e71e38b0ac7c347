from __future__ import annotations

import io
import threading
from argparse import Namespace
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import ApiToken, AuditEntry, User
from accounts.roles import Capability, Role
from admission.jobs import catalog
from admission.policy.catalog import POLICIES, policy_in_force
from admission.policy.models import AdmissionPolicyVersion
from config import machine, preparation, up
from config.machine import LocalGpu
from fleet.models import Gpu, Node, Rack, Site
from lab.teams import HABITS
from telemetry.models import Agent
from tests.builders.accounts import bearer, make_user
from tests.builders.documents import put_in_force

pytestmark = pytest.mark.django_db

H200 = LocalGpu(
    index=0,
    uuid="GPU-0",
    model="NVIDIA H200",
    power_limit_w=700,
    slowdown_c=87,
    slowdown_mem_c=None,
    shutdown_c=92,
    sm_max_mhz=1980,
    mem_bytes=150_754_820_096,
)


@pytest.fixture(autouse=True)
def state(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    settings.STATE_DIR = tmp_path
    monkeypatch.setattr(machine, "local_gpus", list)
    return tmp_path


def _prepare(*arguments: str, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    call_command("prepare", "--no-static", *arguments, stdout=out, skip_checks=True)
    return out.getvalue()


def _read(path: Path) -> str:
    assert path.stat().st_mode & 0o777 == 0o600
    return path.read_text().strip()


class TestAdmin:
    def test_the_first_start_makes_one(self, state: Path) -> None:
        output = _prepare()
        password = _read(state / "admin-password")
        assert len(password) >= 16
        user = User.objects.get()
        assert (user.username, user.role) == ("admin", Role.ADMIN)
        assert user.check_password(password)
        assert str(state / "admin-password") in output
        assert AuditEntry.objects.get(action="user.create").target == "admin"

    def test_the_password_is_not_said_where_it_may_be_kept(self, state: Path) -> None:
        output = _prepare()
        assert _read(state / "admin-password") not in output

    def test_a_person_at_a_terminal_is_shown_it(self, state: Path) -> None:
        class Terminal(io.StringIO):
            def isatty(self) -> bool:
                return True

        output = _prepare(out=Terminal())
        assert _read(state / "admin-password") in output

    def test_a_later_start_leaves_everything(self, state: Path) -> None:
        _prepare()
        password = _read(state / "admin-password")
        assert _prepare() == ""
        assert _read(state / "admin-password") == password
        assert User.objects.count() == 1

    def test_an_admin_of_another_name_is_enough(self, state: Path) -> None:
        make_user(Role.ADMIN, username="root")
        _prepare()
        assert not (state / "admin-password").exists()

    def test_nobody_is_raised_because_of_a_name(self) -> None:
        make_user(Role.VIEWER, username="admin")
        _prepare()
        assert User.objects.get(username="admin").role == Role.VIEWER
        assert User.objects.get(role=Role.ADMIN).username == "admin-"


class TestDemo:
    def test_its_token_works_and_is_an_operators(self, state: Path, client: Client) -> None:
        _prepare("--demo")
        secret = _read(state / "demo-token")
        me = client.get("/api/v1/me", headers=bearer(secret)).json()
        assert (me["username"], me["role"]) == ("demo", "operator")
        assert not User.objects.get(username="demo").has_usable_password()

    def test_its_teams_have_the_classes_that_they_use_by_a_document_that_people_may_replace(
        self, state: Path
    ) -> None:
        _prepare("--demo")
        for habit in HABITS:
            allowed = policy_in_force().grants.allowed(habit.project, catalog.current().values())
            assert habit.job_class in allowed, habit
        (ours,) = AdmissionPolicyVersion.objects.all()
        assert (ours.name, ours.author, ours.reviewer) == ("demo", "headroom", "system")
        put_in_force(POLICIES, "name: mine\n")
        _prepare("--demo")
        assert [each.name for each in AdmissionPolicyVersion.objects.active()] == ["mine"]

    def test_a_later_start_keeps_it(self, state: Path) -> None:
        _prepare("--demo")
        secret = _read(state / "demo-token")
        _prepare("--demo")
        assert _read(state / "demo-token") == secret
        assert ApiToken.objects.count() == 1

    @pytest.mark.parametrize("harm", ["file gone", "file wrong", "revoked"])
    def test_a_token_that_no_longer_works_is_replaced(self, state: Path, harm: str) -> None:
        _prepare("--demo")
        secret = _read(state / "demo-token")
        if harm == "file gone":
            (state / "demo-token").unlink()
        elif harm == "file wrong":
            (state / "demo-token").write_text("hru_other")
        else:
            ApiToken.objects.update(revoked_at="2026-01-01T00:00:00Z")
        _prepare("--demo")
        assert _read(state / "demo-token") != secret
        assert ApiToken.objects.usable().count() == 1

    def test_without_the_option_there_is_none(self, state: Path) -> None:
        _prepare()
        assert not (state / "demo-token").exists()


class TestReplay:
    def test_its_token_works_without_the_demo_and_is_for_its_site_and_agent_alone(
        self, state: Path, client: Client
    ) -> None:
        output = _prepare("--replay")
        secret = _read(state / "replay-token")
        assert secret not in output
        (token,) = ApiToken.objects.all()
        assert token.capabilities == frozenset({Capability.EDIT_FLEET, Capability.MANAGE_AGENTS})
        assert not User.objects.get(username="replay").has_usable_password()
        headers = bearer(secret)
        yaml, json = "application/yaml", "application/json"
        sites = "sites: [{name: replay-x}]"
        applied = client.post("/api/v1/fleet/apply", sites, content_type=yaml, headers=headers)
        agent = {"name": "replay-x", "sites": ["replay-x"]}
        enrolled = client.post("/api/v1/agents", agent, content_type=json, headers=headers)
        assert (applied.status_code, enrolled.status_code) == (200, 201)
        job = client.post("/api/v1/jobs", {}, content_type=json, headers=headers)
        assert job.status_code == 403

    def test_a_later_start_keeps_it_and_one_that_no_longer_works_is_replaced(
        self, state: Path
    ) -> None:
        _prepare("--replay")
        secret = _read(state / "replay-token")
        _prepare("--replay")
        assert _read(state / "replay-token") == secret
        (state / "replay-token").unlink()
        _prepare("--replay")
        assert _read(state / "replay-token") != secret
        assert ApiToken.objects.usable().count() == 1

    def test_the_demos_token_in_its_place_is_not_taken(self, state: Path) -> None:
        _prepare("--demo")
        (state / "replay-token").write_text(_read(state / "demo-token"))
        _prepare("--replay")
        assert _read(state / "replay-token") != _read(state / "demo-token")

    def test_a_servers_start_asks_for_it_whether_there_is_a_demo_or_not(self) -> None:
        for demo in (True, False):
            assert "--replay" in up._preparation(Namespace(demo=demo, services=()))

    def test_without_the_option_there_is_none(self, state: Path) -> None:
        _prepare()
        assert not (state / "replay-token").exists()


class TestMachine:
    def test_it_is_put_into_the_inventory_with_an_agent(self, state: Path) -> None:
        _prepare("--machine-agent", "laptop")
        node = Node.objects.get()
        assert (node.name, node.rack.name, node.rack.site.name) == ("laptop", "here", "local")
        assert node.rack.budget_w == preparation.CIRCUIT_W
        agent = Agent.objects.usable().get(name="laptop")
        assert list(agent.nodes.all()) == [node]
        assert _read(state / "agent-token").startswith("hra_")

    def test_its_gpus_come_with_what_the_driver_tells(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        gpus = [H200] * 8
        gpus = [LocalGpu(**{**vars(gpu), "index": index}) for index, gpu in enumerate(gpus)]
        monkeypatch.setattr(machine, "local_gpus", lambda: gpus)
        _prepare("--machine-agent", "server")
        assert Gpu.objects.count() == 8
        gpu = Gpu.objects.select_related("model").get(index=7)
        assert (gpu.model.name, gpu.model.rated_w, gpu.model.slowdown_c) == ("NVIDIA H200", 700, 87)
        assert Rack.objects.get().budget_w > 8 * 700

    def test_a_later_start_keeps_all_and_adds_new_gpus(
        self, state: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _prepare("--machine-agent", "server")
        secret = _read(state / "agent-token")
        monkeypatch.setattr(machine, "local_gpus", lambda: [H200])
        _prepare("--machine-agent", "server")
        assert _read(state / "agent-token") == secret
        assert Gpu.objects.count() == 1
        assert AuditEntry.objects.filter(action__startswith="agent.").count() == 1

    def test_a_node_stays_where_somebody_put_it(self) -> None:
        site = Site.objects.create(name="oslo")
        rack = Rack.objects.create(site=site, name="A01", budget_w=40_000)
        Node.objects.create(name="laptop", rack=rack)
        _prepare("--machine-agent", "laptop")
        assert Node.objects.get().rack == rack
        assert not Site.objects.filter(name="local").exists()

    def test_a_revoked_token_is_replaced(self, state: Path) -> None:
        _prepare("--machine-agent", "laptop")
        secret = _read(state / "agent-token")
        Agent.objects.update(revoked_at="2026-01-01T00:00:00Z")
        _prepare("--machine-agent", "laptop")
        assert _read(state / "agent-token") != secret
        assert Agent.objects.usable().count() == 1


def test_a_later_start_asks_little(django_assert_max_num_queries: DjangoAssertNumQueries) -> None:
    arguments = ("--demo", "--machine-agent", "laptop")
    _prepare(*arguments)
    with django_assert_max_num_queries(19):
        _prepare(*arguments)


class TestAssets:
    @pytest.fixture(autouse=True)
    def _folders(self, settings: Settings, tmp_path: Path) -> None:
        settings.BASE_DIR = tmp_path / "base"
        (settings.BASE_DIR / "static").mkdir(parents=True)
        (settings.BASE_DIR / "static" / "page.js").write_text("1")
        settings.STATICFILES_DIRS = [settings.BASE_DIR / "static"]
        settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
        settings.STATIC_ROOT = tmp_path / "collected"

    def test_they_are_collected_when_they_change(self, settings: Settings) -> None:
        assert preparation.collect_static()
        assert (settings.STATIC_ROOT / "page.js").exists()
        assert not preparation.collect_static()
        (settings.BASE_DIR / "static" / "new.js").write_text("2")
        assert preparation.collect_static()
        assert (settings.STATIC_ROOT / "new.js").exists()

    def test_they_are_collected_when_packages_change(self, settings: Settings) -> None:
        assert preparation.collect_static()
        (settings.BASE_DIR / "requirements.txt").write_text("plotly==8")
        assert preparation.collect_static()


@pytest.mark.django_db(transaction=True)
def test_two_at_once_take_turns() -> None:
    order: list[str] = []

    def second() -> None:
        with preparation.one_at_a_time():
            order.append("second")
        connection.close()

    thread = threading.Thread(target=second)
    with preparation.one_at_a_time():
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(60)
    assert order == ["first", "second"]
