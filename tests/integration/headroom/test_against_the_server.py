"""The replay and the agent against the real server, over HTTP, with a writer beside it."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, connections
from django.test import Client as DjangoClient
from pytest_django.live_server_helper import LiveServer

from accounts.models import AuditEntry, User
from accounts.roles import Role
from fleet import snapshot
from fleet.inventory import parse, plan, read_state
from fleet.models import Meter, Node, Site
from headroom.agent.delivery import Delivery
from headroom.agent.host import HostSource
from headroom.agent.loop import AgentSettings, Sampler
from headroom.agent.spool import Spool
from headroom.client import Client, Refused, Unauthorized
from headroom.replay import command, player
from headroom.replay.command import ReplayOptions, run_replay
from headroom.replay.fleet import make_fleet
from headroom.replay.formats import load
from telemetry.models import Agent
from telemetry.writer import Writer
from tests.builders.accounts import make_token, make_user
from tests.unit.headroom.recordings import write_training

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def clean_stores(clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the test's own database, and a replay that runs in a thread."""
    # A server thread that kept its connection would keep the tests' database from being dropped.
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", 0)
    # Only the main thread may handle signals, and the replay runs in another here.
    monkeypatch.setattr(command, "call_on_stop", lambda stop: None)
    monkeypatch.setattr(player, "_TICK_S", 0.05)
    monkeypatch.setattr(player, "_GIVE_UP_S", 10.0)


@pytest.fixture
def token() -> str:
    return make_token(make_user(Role.OPERATOR))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_training(tmp_path)
    return tmp_path


def write_while(work: Callable[[], object]) -> None:
    """Do ``work`` in a thread, and meanwhile what a Celery worker would."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=run)
    thread.start()
    writer = Writer(0)
    while thread.is_alive():
        writer.step()
        thread.join(0.02)
    if failures:
        raise failures[0]


def play(url: str, folder: Path, token: str) -> str:
    token_file = folder / "token"
    token_file.write_text(token)
    options = ReplayOptions(
        path=folder,
        speed=1000,
        server=url,
        token_file=token_file,
        run=None,
        meter="ac",
        limit_s=None,
        loop=False,
    )
    out = io.StringIO()
    write_while(lambda: run_replay(options, out))
    return out.getvalue()


def stored_power() -> list[float]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT power_w FROM meter_sample ORDER BY ts")
        return [row[0] for row in cursor.fetchall()]


def test_a_recording_is_stored_as_published_and_can_be_played_again(
    live_server: LiveServer, folder: Path, token: str
) -> None:
    told = play(live_server.url, folder, token)
    assert "5 sent, 5 durable" in told
    assert stored_power() == [100, 1000, -1, 0, 2000]
    assert Node.objects.count() == Meter.objects.count() == 2

    play(live_server.url, folder, token)
    assert stored_power() == [100, 1000, -1, 0, 2000] * 2
    assert Node.objects.count() == 2


def test_a_recording_that_is_over_is_no_part_of_the_fleet_until_it_is_played_again(
    live_server: LiveServer, folder: Path, token: str, client: DjangoClient
) -> None:
    oslo = Site.objects.create(name="oslo")
    play(live_server.url, folder, token)
    left = snapshot.fresh()
    assert left.sites.names.tolist() == [oslo.name]
    for table in (left.domains, left.zones, left.racks, left.nodes, left.gpus, left.meters):
        assert len(table) == 0
    assert Agent.objects.get().revoked_at is not None
    node = Node.objects.first()
    assert node is not None
    client.force_login(User.objects.get())
    page = client.get(f"/nodes/{node.pk}/", follow=True).content.decode()
    assert "was played from a recording, which is over" in " ".join(page.split())
    assert client.get("/search", {"q": node.rack.site.name}, follow=True).status_code == 200

    fleet = make_fleet(load(folder))
    with Client(live_server.url, token) as user:
        user.post_yaml("/api/v1/fleet/apply", fleet.inventory)
        user.post("/api/v1/agents", {"name": fleet.site, "sites": [fleet.site]}, {"rotate": "1"})
    again = snapshot.fresh()
    assert sorted(again.sites.names) == ["oslo", fleet.site]
    assert (len(again.nodes), len(again.meters)) == (2, 2)
    assert Agent.objects.get().revoked_at is None


def test_a_label_on_some_machines_hides_nothing(
    live_server: LiveServer, folder: Path, token: str
) -> None:
    play(live_server.url, folder, token)
    assert len(snapshot.fresh().nodes) == 0
    Node.objects.filter(pk__in=Node.objects.values("pk")[:1]).update(labels={})
    assert len(snapshot.fresh().nodes) == 2


def test_the_fleet_of_a_recording_is_an_inventory_that_stays_as_it_is(
    live_server: LiveServer, folder: Path, token: str
) -> None:
    inventory = make_fleet(load(folder)).inventory
    with Client(live_server.url, token) as client:
        client.post_yaml("/api/v1/fleet/apply", inventory)
    assert not plan(parse(inventory), read_state())


def test_a_viewer_may_not_replay(live_server: LiveServer, folder: Path) -> None:
    with pytest.raises(Unauthorized):
        play(live_server.url, folder, make_token(make_user(Role.VIEWER)))
    assert not Node.objects.exists()


def test_an_agent_hands_over_the_readings_of_its_machine(
    live_server: LiveServer, folder: Path, token: str
) -> None:
    fleet = make_fleet(load(folder))
    node = fleet.node_names[0]
    with Client(live_server.url, token) as user:
        user.post_yaml("/api/v1/fleet/apply", fleet.inventory)
        enrolled = user.post("/api/v1/agents", {"name": "a1", "nodes": [node]})
        client = user.with_token(enrolled["token"])
        sampler = Sampler(AgentSettings(agent="a1", node=node), [HostSource()])
        sampler.sample()
        spool = Spool(":memory:")
        spool.put(sampler.seal())
        delivery = Delivery(client, spool)
        write_while(delivery.round)
        Writer(0).step()
        delivery.ask_position()
        assert (len(spool), delivery.errors) == (0, 0)
    with connection.cursor() as cursor:
        cursor.execute("SELECT mem_total > 0 FROM host_sample")
        assert cursor.fetchall() == [(True,)]


def test_what_was_read_before_the_node_was_in_the_inventory_is_not_lost(
    live_server: LiveServer, folder: Path, token: str
) -> None:
    fleet = make_fleet(load(folder))
    late = fleet.node_names[0]
    with Client(live_server.url, token) as user:
        user.post_yaml("/api/v1/fleet/apply", fleet.inventory.replace(late, "another-node"))
        site = user.get("/api/v1/sites")["results"][0]["name"]
        enrolled = user.post("/api/v1/agents", {"name": "a1", "sites": [site]})
        spool = Spool(":memory:")
        delivery = Delivery(user.with_token(enrolled["token"]), spool, draw=lambda: 0.0)
        sampler = Sampler(AgentSettings(agent="a1", node=late), [HostSource()])
        for _ in range(2):
            sampler.sample()
            spool.put(sampler.seal())
        write_while(delivery.round)
        assert isinstance(delivery.obstacle, Refused)
        assert (len(spool), spool.dropped, delivery.accepted) == (2, 0, 0)

        user.post_yaml("/api/v1/fleet/apply", fleet.inventory)
        write_while(delivery.round)
        Writer(0).step()
        delivery.ask_position()
        assert len(spool) == 0
        assert not delivery.obstacle
    with connection.cursor() as cursor:
        node_id = Node.objects.get(name=late).pk
        cursor.execute("SELECT count(*) FROM host_sample WHERE node_id = %s", [node_id])
        assert cursor.fetchall() == [(2,)]


def test_a_batch_about_another_agents_node_is_refused_and_on_record(
    live_server: LiveServer, folder: Path, token: str
) -> None:
    fleet = make_fleet(load(folder))
    mine, other = fleet.node_names
    with Client(live_server.url, token) as user:
        user.post_yaml("/api/v1/fleet/apply", fleet.inventory)
        enrolled = user.post("/api/v1/agents", {"name": "a1", "nodes": [mine]})
        with pytest.raises(Refused, match="409"):
            user.post("/api/v1/agents", {"name": "a1", "nodes": [other]})
        sampler = Sampler(AgentSettings(agent="a1", node=other), [HostSource()])
        sampler.sample()
        with pytest.raises(Unauthorized, match="foreign_node"):
            user.with_token(enrolled["token"]).push(sampler.seal())
    assert AuditEntry.objects.filter(action="telemetry.refused").exists()
