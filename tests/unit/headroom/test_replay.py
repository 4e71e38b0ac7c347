from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from headroom.agent.delivery import DeliverySettings
from headroom.cli import main
from headroom.client import Client
from headroom.replay import command, player
from headroom.replay.command import ReplayOptions, run_replay
from headroom.replay.fleet import make_fleet
from headroom.replay.formats import load
from headroom.replay.player import Frame, Player, ReplayError
from headroom.replay.recording import JobPoint, Recording
from tests.unit.headroom.builders import Clock
from tests.unit.headroom.fake_server import Answer, FakeServer, refusal
from tests.unit.headroom.recordings import make_recording, write_training

QUICK = DeliverySettings(first_backoff_s=0.01, longest_backoff_s=0.02, resend_after_s=0.2)
POINTS = (JobPoint(t_s=1, step=3, step_time_s=10.5), JobPoint(t_s=2, loss=2.5))


class Shown:
    def __init__(self) -> None:
        self.frames: list[Frame] = []

    def show(self, frame: Frame) -> None:
        self.frames.append(frame)


@pytest.fixture
def recording() -> Recording:
    rows = [(t / 2, t % 2, 100.0 * (t % 5) - 100) for t in range(21)]
    return make_recording(rows, POINTS)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(player, "_POLL_S", 0.02)
    monkeypatch.setattr(player, "_GIVE_UP_S", 1.0)
    monkeypatch.setattr(player, "_TICK_S", 0.02)


def make_player(recording: Recording, client: Client, clock: Clock, speed: float = 1.0) -> Player:
    return Player(
        recording,
        make_fleet(recording),
        client,
        speed=speed,
        progress=Shown(),
        clock=clock,
        delivery_settings=QUICK,
    )


def meter_rows(server: FakeServer) -> list[tuple[float, str, float | None]]:
    rows: list[tuple[float, str, float | None]] = []
    for batch in server.all_stored():
        if batch.meters is not None:
            block = batch.meters
            rows += zip(block.ts, block.meter, block.power_w or [], strict=True)
    return rows


def test_readings_come_at_their_time_as_published(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    playing = make_player(recording, client, clock, speed=2)
    begin = clock.now
    for _ in range(8):
        playing.tick()
        clock.now += 1
    playing.settle()

    names = make_fleet(recording).meter_names
    assert meter_rows(server) == [
        (begin + t / 4, names[t % 2], 100.0 * (t % 5) - 100) for t in range(21)
    ]
    assert (playing.sent, playing.durable, playing.recorded_s) == (21, 21, 10.0)


def test_job_metrics_go_along(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    playing = make_player(recording, client, clock)
    clock.now += 100
    playing.tick()

    (batch,) = server.all_stored()
    assert batch.jobs is not None
    assert batch.jobs.job == ["job-r1", "job-r1"]
    assert (batch.jobs.step, batch.jobs.loss) == ([3, None], [None, 2.5])
    assert batch.jobs.step_time_s == [10.5, None]
    assert batch.jobs.ts == [clock.now - 99, clock.now - 98]


def test_no_batch_is_too_large(
    server: FakeServer,
    client: Client,
    recording: Recording,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(player, "_BATCH_ROWS", 4)
    playing = make_player(recording, client, clock)
    clock.now += 100
    playing.tick()
    assert [len(b.meters or []) for b in server.all_stored()] == [4, 4, 4, 4, 4, 1]
    assert sum(len(b.jobs or []) for b in server.all_stored()) == 2


def test_trouble_on_the_way_neither_loses_nor_doubles_a_reading(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    server.script.extend(
        [Answer(503), Answer(429, b"", {"Retry-After": "0"}), Answer(0, drop=True)]
    )
    server.script_after_taking.append(Answer(0, drop=True))
    playing = make_player(recording, client, clock)
    for _ in range(12):
        playing.tick()
        clock.now += 1
    playing.settle()
    assert len(meter_rows(server)) == 21


def test_what_the_server_lost_is_sent_again(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    server.stores = False
    playing = make_player(recording, client, clock)
    clock.now += 100
    playing.tick()
    assert playing.durable == 0
    server.stores = True
    playing.settle()
    assert (playing.durable, len(meter_rows(server))) == (21, 21)


def test_a_server_that_confirms_nothing_is_not_waited_for_for_ever(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    server.stores = False
    playing = make_player(recording, client, clock)
    clock.now += 100
    playing.tick()
    with pytest.raises(ReplayError, match="0 of 21 readings"):
        playing.settle()


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [(refusal(400, "unknown_meter"), "unknown_meter"), (refusal(401), "a second time")],
)
def test_a_replay_that_is_refused_ends_with_the_reason(
    server: FakeServer,
    client: Client,
    recording: Recording,
    clock: Clock,
    answer: Answer,
    complaint: str,
) -> None:
    server.script.append(answer)
    with pytest.raises(ReplayError, match=complaint):
        make_player(recording, client, clock).tick()


def test_a_replay_of_which_a_reading_is_refused_ends_with_the_reason(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    error = {"code": "too_old", "message": "it is old"}
    ack = {"durable_seq": 1, "received_at": 0.0}
    body = {"error": error, "refused": [error], "refused_rows": 1, "ack": ack}
    server.script_after_taking.append(Answer(400, msgspec.json.encode(body)))
    with pytest.raises(ReplayError, match="too_old"):
        make_player(recording, client, clock).tick()


def test_a_recording_that_goes_in_halves_is_counted_to_its_end(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    server.script.append(Answer(413))
    playing = make_player(recording, client, clock)
    clock.now += 100
    playing.tick()
    playing.settle()
    assert playing.durable == playing.sent


def test_the_frame_says_where_the_replay_is(
    server: FakeServer, client: Client, recording: Recording, clock: Clock
) -> None:
    shown = Shown()
    playing = Player(
        recording,
        make_fleet(recording),
        client,
        speed=1,
        progress=shown,
        clock=clock,
        delivery_settings=QUICK,
    )
    clock.now += 2
    playing.tick()
    # The last readings by then: 300 W at 2.0 s on one node, 200 W at 1.5 s on the other.
    assert shown.frames[-1] == Frame(
        recorded_s=2, sent=5, durable=5, power_w=300.0 + 200.0, obstacle=""
    )
    server.script.append(Answer(503))
    clock.now += 1
    playing.tick()
    assert "503" in shown.frames[-1].obstacle


def test_a_loop_goes_on_until_it_is_stopped(
    server: FakeServer, client: Client, recording: Recording
) -> None:
    playing = Player(
        recording,
        make_fleet(recording),
        client,
        speed=200,
        progress=Shown(),
        delivery_settings=QUICK,
    )
    thread = threading.Thread(target=playing.play, kwargs={"loop": True})
    thread.start()
    deadline = time.monotonic() + 60
    while playing.sent < 50 and time.monotonic() < deadline:
        time.sleep(0.01)
    playing.stop()
    thread.join(60)
    playing.settle()
    assert playing.sent == len(meter_rows(server)) >= 50
    times = [ts for ts, _, _ in meter_rows(server)]
    assert times == sorted(times)


def test_the_fleet_is_an_inventory_whose_parts_fit() -> None:
    recording = make_recording([(0, node, 1.0) for node in range(64)])
    fleet = make_fleet(recording)
    document = yaml.safe_load(fleet.inventory)

    (site,) = document["sites"]
    assert site["name"] == fleet.site == "replay-made"
    assert [(r["row"], r["position"]) for r in site["racks"]] == [
        (row, position) for row in "AB" for position in range(4)
    ]
    nodes = [node for rack in site["racks"] for node in rack["nodes"]]
    assert tuple(node["name"] for node in nodes) == fleet.node_names
    assert fleet.node_names[0] == "replay-made-n01"
    assert {rack["budget_w"] for rack in site["racks"]} == {62_000}
    assert [m["node"] for m in document["meters"]] == list(fleet.node_names)
    domains = {domain["name"]: domain for domain in site["power_domains"]}
    for rack in site["racks"]:
        assert {domains[rack["feed_a"]]["side"], domains[rack["feed_b"]]["side"]} == {"A", "B"}
        top = max(node["position_u"] + node["height_u"] - 1 for node in rack["nodes"])
        assert top <= rack["height_u"]
    for domain in domains.values():
        assert domain["capacity_w"] * domain["derating"] >= site["budget_w"] - 1e-6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_training(tmp_path)
    return tmp_path


@pytest.fixture
def api(server: FakeServer) -> FakeServer:
    server.answers["POST", "/api/v1/fleet/apply"] = {"created": {}}
    server.answers["POST", "/api/v1/agents"] = {"id": 1, "name": "x", "token": "hra_new"}
    server.answers["POST", "/api/v1/agents/1/revoke"] = {"id": 1}
    return server


def options(folder: Path, server: FakeServer, **changes: Any) -> ReplayOptions:
    fields: dict[str, Any] = {
        "path": folder,
        "speed": 1000.0,
        "server": server.url,
        "token_file": None,
        "run": None,
        "meter": "ac",
        "machine": "",
        "description": None,
        "limit_s": None,
        "loop": False,
    }
    return ReplayOptions(**{**fields, **changes})


def test_the_command_makes_the_fleet_then_plays_into_it(
    folder: Path, api: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADROOM_TOKEN", "hru_user")
    monkeypatch.setattr(command, "call_on_stop", lambda stop: None)
    out = io.StringIO()
    assert run_replay(options(folder, api), out)

    apply, agents, first_push = api.requests[:3]
    assert apply.headers["Authorization"] == "Bearer hru_user"
    site = make_fleet(load(folder)).site
    assert re.fullmatch("replay-64node-gpt3-[0-9a-f]{6}", site)
    assert site.encode() in apply.body
    assert agents.query == {"rotate": "1"}
    # The recording is of a job that Headroom has placed nowhere.
    told = {"name": site, "nodes": [], "sites": [site], "any_job": True}
    assert msgspec.json.decode(agents.body) == told
    assert first_push.headers["Authorization"] == "Bearer hra_new"
    assert [watts for _, _, watts in meter_rows(api)] == [100, 1000, -1, 0, 2000]
    assert "5 sent, 5 durable" in out.getvalue()
    assert "zero or negative  2" in out.getvalue()
    assert "gaps over 10 s    1 (longest 28.0 s)" in out.getvalue()

    # At the end the site leaves the fleet, by the user's token, and the agent's token ends.
    left, revoked = api.requests[-2:]
    assert left.headers["Authorization"] == revoked.headers["Authorization"] == "Bearer hru_user"
    assert left.body.count(b"recording-over: 'yes'") == 2
    assert b"recording-over" not in apply.body
    assert revoked.path == "/api/v1/agents/1/revoke"


def test_a_log_of_steps_is_played_as_a_job_on_no_machine(
    tmp_path: Path, api: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADROOM_TOKEN", "hru_user")
    monkeypatch.setattr(command, "call_on_stop", lambda stop: None)
    (tmp_path / "steps.csv").write_text("t,step\n0,1\n3,2\n5,3\n")
    (tmp_path / "recording.yaml").write_text("columns: {time: t, time_unit: s, step: step}")
    out = io.StringIO()
    assert run_replay(options(tmp_path / "steps.csv", api), out)
    blocks = [batch.jobs for batch in api.all_stored() if batch.jobs is not None]
    assert [step for block in blocks for step in block.step or []] == [1, 2, 3]
    assert meter_rows(api) == []
    assert "3 reports of job steps-" in out.getvalue()
    assert "Played 0:00:05 of 0:00:05" in out.getvalue()
    assert "3 sent, all durable" in out.getvalue()


def test_only_the_first_seconds_are_played_on_request(
    folder: Path, api: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADROOM_TOKEN", "hru_user")
    monkeypatch.setattr(command, "call_on_stop", lambda stop: None)
    assert run_replay(options(folder, api, limit_s=2.0), io.StringIO())
    assert len(meter_rows(api)) == 3


def test_on_a_terminal_there_is_a_bar(
    folder: Path, api: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("HEADROOM_TOKEN", "hru_user")
    monkeypatch.setattr(command, "call_on_stop", lambda stop: None)
    out = Terminal()
    assert run_replay(options(folder, api), out)
    assert "#" in out.getvalue()
    assert "5 durable" in out.getvalue()


def test_errors_are_one_line_and_an_exit_status(
    folder: Path, api: FakeServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADROOM_TOKEN", "hru_user")
    missing = CliRunner().invoke(main, ["replay", str(tmp_path / "no")])
    assert (missing.exit_code, "does not exist" in missing.output) == (1, True)

    api.answers["POST", "/api/v1/fleet/apply"] = refusal(403, "permission_denied")
    denied = CliRunner().invoke(main, ["replay", str(folder), "--server", api.url])
    assert (denied.exit_code, "permission_denied" in denied.output) == (1, True)


def test_ctrl_c_waits_for_what_was_sent_and_says_how_far_it_got(
    folder: Path, api: FakeServer
) -> None:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "headroom", "replay", str(folder)),
            *("--server", api.url, "--speed", "1"),
        ],
        env={**os.environ, "HEADROOM_TOKEN": "hru_user"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        deadline = time.monotonic() + 60
        while not api.pushes and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Stopped after 0:00:0" in out
    sent = len(meter_rows(api))
    assert 0 < sent < 5
    assert f"{sent} sent, {sent} durable" in out
