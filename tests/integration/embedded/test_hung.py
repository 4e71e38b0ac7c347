"""Processes that hang, under the supervisor: real processes and real signals."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from config import vitals
from config.backoff import Backoff
from config.embedded import EmbeddedServers
from config.embedded.answering import ServerVigil, postgres_answers, valkey_answers
from config.embedded.ports import choose_port
from config.supervisor import Output, Service, Supervisor
from headroom import heartbeat
from tests.integration.embedded.helpers import (
    REPOSITORY,
    answers,
    of_a_shell,
    serves,
    until,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stops processes")

_BEATS = f"""
import sys, time
sys.path.insert(0, {str(REPOSITORY)!r})
from headroom import heartbeat
first = not open("lives", "a+").tell()
open("lives", "a").write("x")
"""
#: Beats for as long as it lives, but hangs in its first life.
_HANGS = f"""{_BEATS}
for _ in range(6):
    heartbeat.beat()
    time.sleep(0.3)
while True:
    if not first:
        heartbeat.beat()
    time.sleep(0.3)
"""


def python(name: str, script: str, *, silent_s: float) -> Service:
    return Service(name, (sys.executable, "-c", script), silent_s=silent_s)


def supervise(folder: Path, service: Service, enough: Callable[[], bool]) -> str:
    """Run until ``enough``, or for 30 s; return what was shown."""
    logs = folder / "logs"
    logs.mkdir()
    (folder / "heartbeats").mkdir()
    shown = io.StringIO()
    output = Output(logs, shown, color=False)
    deadline = time.monotonic() + 30
    over: list[bool] = []

    def watch() -> None:
        if not over and (enough() or time.monotonic() > deadline):
            over.append(True)
            os.kill(os.getpid(), signal.SIGTERM)

    Supervisor(
        [service],
        output,
        env={
            **os.environ,
            heartbeat.FOLDER: str(folder / "heartbeats"),
            "PYTHONFAULTHANDLER": "1",
        },
        cwd=folder,
        watch=watch,
        heartbeats=folder / "heartbeats",
        report=folder / "services.json",
        backoff=lambda: Backoff(first_s=0.05),
    ).run()
    output.close()
    return shown.getvalue()


def lives(folder: Path) -> int:
    path = folder / "lives"
    return len(path.read_text()) if path.exists() else 0


def reported(folder: Path) -> dict[str, dict[str, object]]:
    path = folder / "services.json"
    found: dict[str, dict[str, object]] = {}
    if path.exists():
        found = json.loads(path.read_text())["services"]
    return found


def test_a_process_that_falls_silent_is_ended_and_started_again(tmp_path: Path) -> None:
    service = python("beat", _HANGS, silent_s=2)
    shown = supervise(tmp_path, service, lambda: lives(tmp_path) > 1)
    assert lives(tmp_path) == 2
    assert "has shown no sign of life for" in shown
    # Where it hung is said.
    assert "Fatal Python error: Aborted" in shown
    assert reported(tmp_path)["beat"]["hung"] == 1


def test_one_that_shows_signs_of_life_is_left_alone(tmp_path: Path) -> None:
    script = f"{_BEATS}\nwhile True:\n    heartbeat.beat()\n    time.sleep(0.2)"
    end = time.monotonic() + 5
    shown = supervise(tmp_path, python("beat", script, silent_s=2), lambda: time.monotonic() > end)
    assert lives(tmp_path) == 1
    assert "ended by force" not in shown


def test_a_process_that_is_stopped_is_ended_though_it_never_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "STOPPED_S", 1.0)
    script = "open('lives', 'a').write('x'); import os, time\n"
    script += "len(open('lives').read()) == 1 and os.kill(os.getpid(), 19)\ntime.sleep(600)"
    shown = supervise(tmp_path, python("demo", script, silent_s=0), lambda: lives(tmp_path) > 1)
    assert lives(tmp_path) == 2
    assert "has been stopped for" in shown


def test_of_a_family_only_the_member_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vitals, "STOPPED_S", 1.0)
    script = "open('lives', 'a').write('x'); import subprocess, signal\n"
    script += "child = subprocess.Popen(['sleep', '600']); child.send_signal(signal.SIGSTOP)\n"
    script += "open('child', 'w').write(str(child.wait()))\nimport time; time.sleep(600)"
    ended = tmp_path / "child"
    supervise(
        tmp_path,
        python("worker", script, silent_s=0),
        lambda: ended.exists() and bool(ended.read_text()),
    )
    assert ended.read_text() == str(-signal.SIGKILL)
    assert lives(tmp_path) == 1


def test_a_machine_that_slept_makes_nobody_look_hung() -> None:
    silence: vitals.Silence[str] = vitals.Silence()
    silence.look({"web": 1}, 0.0)
    assert silence.look({"web": 1}, 3600.0)["web"] <= 2.0
    assert silence.look({"web": 1}, 3601.0)["web"] <= 3.0
    assert silence.look({"web": 2}, 3602.0)["web"] == 0.0
    # Gone and back: another process of the same number.
    silence.look({}, 3603.0)
    assert silence.look({"web": 2}, 3604.0)["web"] == 0.0


# --- systemd in place of our supervisor -----------------------------------------------------------


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Listens as systemd does to what it starts."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(0.0)
        monkeypatch.setenv(heartbeat.NOTIFY, str(tmp_path / "notify"))
        yield listener


def heard(systemd: socket.socket) -> int:
    """Return how many signs of life have come since the last look."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            assert systemd.recv(100) == b"WATCHDOG=1"
            count += 1
    return count


def falls_silent(systemd: socket.socket, process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Say whether a process is heard, and is not any more once it is stopped."""
    assert until(lambda: heard(systemd) > 0, limit_s)
    os.killpg(process.pid, signal.SIGSTOP)
    time.sleep(0.2)
    heard(systemd)
    time.sleep(2.5)
    return heard(systemd) == 0


def test_systemd_hears_of_the_supervisor_while_its_loop_goes_round(
    tmp_path: Path, systemd: socket.socket
) -> None:
    end = time.monotonic() + 2
    supervise(
        tmp_path, python("idle", "import time; time.sleep(60)", silent_s=0),
        lambda: time.monotonic() > end,
    )  # fmt: skip
    assert heard(systemd) >= 3
    time.sleep(1)
    assert heard(systemd) == 0


@pytest.mark.slow
@pytest.mark.parametrize("part", ["web", "worker", "housekeeper", "beat"])
def test_systemd_hears_of_a_part_until_that_is_frozen(
    state_dir: Path, systemd: socket.socket, part: str
) -> None:
    """The database is away: that is no reason to fall silent, or not to begin."""
    flags = ("--port", str(choose_port())) if part == "web" else ()
    with EmbeddedServers(state_dir, postgres=False, durable=False) as servers:
        env = {
            **of_a_shell(),
            "DATABASE_URL": f"postgresql://nobody@127.0.0.1:{choose_port()}/nothing",
            "REDIS_URL": str(servers.redis_url),
            "SECRET_KEY": "of a test",
            "HEADROOM_STATE_DIR": str(state_dir),
        }
        with subprocess.Popen(
            [sys.executable, "-m", "config.process", part, *flags],
            cwd=REPOSITORY, env=env, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                assert falls_silent(systemd, process, 60)
            finally:
                os.killpg(process.pid, signal.SIGKILL)


def test_no_beat_without_a_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(heartbeat.FOLDER, raising=False)
    monkeypatch.delenv(heartbeat.NOTIFY, raising=False)
    heartbeat.beat()
    monkeypatch.setenv(heartbeat.FOLDER, str(tmp_path / "is-not-there"))
    monkeypatch.setenv(heartbeat.NOTIFY, "@is-not-there")
    monkeypatch.setattr(heartbeat, "_last", float("-inf"))
    heartbeat.beat()


def test_a_server_that_hangs_is_ended_and_started_again(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.embedded.answering._SILENT_S", 3.0)
    monkeypatch.setattr(vitals, "STOPPED_S", 600.0)
    with EmbeddedServers(state_dir, durable=False) as servers:
        vigil = ServerVigil(servers)
        database_url, redis_url = str(servers.database_url), str(servers.redis_url)
        time.sleep(1.5)
        pids = dict(servers.pids)
        for pid in pids.values():
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
        assert not valkey_answers(redis_url)
        assert not postgres_answers(database_url)
        told: list[tuple[str, str]] = []

        def is_back() -> bool:
            told.extend(vigil.look())
            servers.ensure_running()
            return len(told) > 1 and serves(database_url) and answers(redis_url)

        assert until(is_back, 60)
        assert {name for name, _ in told} == {"postgres", "valkey"}


def test_a_backend_of_postgres_that_is_stopped_holds_no_lock_for_good(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setattr(vitals, "STOPPED_S", 1.0)
    with EmbeddedServers(state_dir, valkey=False, durable=False) as servers:
        vigil, url = ServerVigil(servers), str(servers.database_url)
        with psycopg.connect(url, autocommit=True) as holder:
            row = holder.execute("SELECT pg_advisory_lock(1), pg_backend_pid()").fetchone()
            assert row is not None
            os.kill(row[1], signal.SIGSTOP)

            def is_free() -> bool:
                vigil.look()
                servers.ensure_running()
                try:
                    with psycopg.connect(url, connect_timeout=2, autocommit=True) as other:
                        found = other.execute("SELECT pg_try_advisory_lock(1)").fetchone()
                        return found == (True,)
                except psycopg.OperationalError:
                    return False

            assert until(is_free, 40)
