"""Real servers: what they keep, and what is left when somebody is killed."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from config.embedded import (
    AlreadyRunningError,
    DataLostError,
    EmbeddedServers,
    ServerFailedError,
    VersionMismatchError,
)
from tests.integration.embedded.helpers import (
    REPOSITORY,
    answers,
    launched,
    running,
    serves,
    until,
)

#: Of the owner, who alone makes tables; others may read and write.
KEPT = """
CREATE TABLE IF NOT EXISTS kept (value int);
GRANT USAGE ON SCHEMA public TO headroom_app;
GRANT ALL ON kept TO headroom_app
"""


def write(servers: EmbeddedServers, value: int) -> None:
    assert servers.owner_url
    assert servers.redis_url
    with psycopg.connect(servers.owner_url) as connection:
        connection.execute(KEPT)
        connection.execute("INSERT INTO kept VALUES (%s)", [value])
    with redis.Redis.from_url(servers.redis_url) as client:
        client.rpush("kept", value)


def read(database_url: str, redis_url: str) -> tuple[list[int], list[int]]:
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT value FROM kept ORDER BY value").fetchall()
    with redis.Redis.from_url(redis_url) as client:
        values = client.lrange("kept", 0, -1)
    assert isinstance(values, list)
    return [row[0] for row in rows], [int(value) for value in values]


def test_data_ports_and_passwords_survive_a_restart(state_dir: Path) -> None:
    with EmbeddedServers(state_dir) as first:
        write(first, 1)
        urls = first.environment
    with EmbeddedServers(state_dir) as second:
        assert second.environment == urls
        write(second, 2)
        assert read(urls["DATABASE_URL"], urls["REDIS_URL"]) == ([1, 2], [1, 2])


def test_data_stays_in_a_state_directory_that_moves(state_dir: Path) -> None:
    with EmbeddedServers(state_dir) as first:
        write(first, 1)
    moved = state_dir.rename(state_dir.with_name("moved"))
    with EmbeddedServers(moved) as second:
        assert read(str(second.database_url), str(second.redis_url)) == ([1], [1])
    assert not state_dir.exists()


def test_nobody_gets_in_without_the_password_or_from_elsewhere(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, durable=False) as servers:
        for url in servers.environment.values():
            parts = urlsplit(url)
            assert parts.password is not None
            assert len(parts.password) >= 32
            assert parts.hostname == "127.0.0.1"
            assert not any(parts.password in line for line in running(""))
            with socket.socket() as outside:
                outside.settimeout(1)
                assert outside.connect_ex(("127.0.0.2", parts.port or 0)) != 0
        bare = urlsplit(str(servers.database_url))
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(host="127.0.0.1", port=bare.port, user="headroom", dbname="headroom")
        valkey = urlsplit(str(servers.redis_url))
        with socket.create_connection(("127.0.0.1", valkey.port or 0)) as client:
            client.sendall(b"PING\r\n")
            assert client.recv(100).startswith(b"-NOAUTH")
    secrets = [state_dir / "postgres.json", state_dir / "valkey.json"]
    for path in [*secrets, state_dir / "valkey" / "valkey.conf"]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_commits_are_synchronous_and_text_is_unicode(state_dir: Path) -> None:
    with (
        EmbeddedServers(state_dir, valkey=False) as servers,
        psycopg.connect(str(servers.database_url)) as connection,
    ):

        def shown(name: str) -> str:
            row = connection.execute("SELECT current_setting(%s)", [name]).fetchone()
            return str(row and row[0])

        assert shown("synchronous_commit") == "on"
        assert shown("fsync") == "on"
        assert shown("max_wal_size") == "4GB"
        assert shown("server_encoding") == "UTF8"
        assert connection.execute("SELECT upper('ö')").fetchone() == ("Ö",)
        assert servers.redis_url is None


def test_a_second_start_is_refused_while_the_first_runs(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, durable=False) as first:
        with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}"):
            EmbeddedServers(state_dir).start()
        assert serves(str(first.database_url))

        refused = subprocess.run(
            [sys.executable, "-m", "config.embedded", "--state-dir", str(state_dir), "true"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    assert refused.returncode == 1
    assert "already runs" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_killing_the_launcher_leaves_no_orphan_and_loses_no_row(state_dir: Path) -> None:
    with launched(state_dir) as first:
        with psycopg.connect(first.database_url, autocommit=True) as connection:
            with psycopg.connect(first.owner_url) as owner:
                owner.execute(KEPT)
            with redis.Redis.from_url(first.redis_url) as client:
                for value in range(200):
                    connection.execute("INSERT INTO kept VALUES (%s)", [value])
                    client.rpush("kept", value)
            first.process.kill()
        assert until(lambda: not running(str(state_dir)))
        assert until(lambda: not answers(first.redis_url))

    with launched(state_dir) as second:
        assert second.database_url == first.database_url
        every = list(range(200))
        assert read(second.database_url, second.redis_url) == (every, every)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's death signal is Linux's")
def test_a_start_right_after_the_kill_waits_for_what_is_left(state_dir: Path) -> None:
    urls = set()
    for start in range(4):
        with launched(state_dir) as it:
            urls.add((it.database_url, it.redis_url))
            with redis.Redis.from_url(it.redis_url) as client:
                assert client.incr("starts") == start + 1
            it.process.kill()
    assert len(urls) == 1
    assert until(lambda: not running(str(state_dir)))


@pytest.mark.parametrize("name", ["postgres", "valkey"])
def test_a_killed_server_comes_back_on_its_port_with_its_data(state_dir: Path, name: str) -> None:
    with EmbeddedServers(state_dir, durable=False) as servers:
        write(servers, 1)
        urls = servers.environment
        pid = servers.pids[name]
        assert pid is not None
        assert servers.ensure_running() == []

        os.kill(pid, signal.SIGKILL)
        assert until(lambda: servers.ensure_running() == [name])

        assert until(lambda: serves(urls["DATABASE_URL"]) and answers(urls["REDIS_URL"]))
        assert servers.pids[name] not in (None, pid)
        assert read(urls["DATABASE_URL"], urls["REDIS_URL"]) == ([1], [1])


def test_a_taken_port_is_exchanged_for_another(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, durable=False) as first:
        write(first, 1)
        before = first.environment
    taken = urlsplit(before["DATABASE_URL"]).port
    with (
        socket.create_server(("127.0.0.1", taken or 0)),
        EmbeddedServers(state_dir, durable=False) as second,
    ):
        assert second.database_url != before["DATABASE_URL"]
        assert second.redis_url == before["REDIS_URL"]
        assert read(str(second.database_url), str(second.redis_url)) == ([1], [1])


def test_a_pid_file_whose_number_belongs_to_somebody_else_does_not_matter(
    state_dir: Path,
) -> None:
    with EmbeddedServers(state_dir, valkey=False, durable=False):
        pass
    # Process 1 lives: Postgres by itself would refuse to start beside it.
    data = state_dir / "postgres"
    (data / "postmaster.pid").write_text(f"1\n{data}\n0\n5432\n\n127.0.0.1\n\nready\n")

    with EmbeddedServers(state_dir, valkey=False, durable=False) as servers:
        assert serves(str(servers.database_url))


def test_a_cluster_that_was_half_made_does_not_count(state_dir: Path) -> None:
    half = state_dir / "postgres.new"
    half.mkdir(parents=True)
    state_dir.chmod(0o711)
    (half / "PG_VERSION").write_text("18\n")

    with EmbeddedServers(state_dir, valkey=False, durable=False) as servers:
        assert serves(str(servers.database_url))
    assert not half.exists()


def test_data_of_another_major_version_is_refused(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, valkey=False, durable=False):
        pass
    (state_dir / "postgres" / "PG_VERSION").write_text("12\n")

    with pytest.raises(VersionMismatchError, match="holds data of PostgreSQL 12"):
        EmbeddedServers(state_dir, valkey=False).start()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(state_dir: Path) -> None:
    with EmbeddedServers(state_dir, durable=False):
        pass
    manifest = next((state_dir / "valkey").glob("appendonlydir/*.manifest"))
    manifest.write_text("nonsense\n")

    with pytest.raises(ServerFailedError, match=r"(?s)valkey did not start.*manifest"):
        EmbeddedServers(state_dir, durable=False).start()
    assert running(str(state_dir)) == []


def test_data_that_is_gone_is_not_replaced_by_nothing(state_dir: Path, open_dir: Path) -> None:
    with EmbeddedServers(state_dir, durable=False):
        pass
    record = state_dir / "postgres.json"
    fields = json.loads(record.read_text())
    record.write_text(json.dumps(fields | {"data_dir": str(open_dir / "gone" / "postgres")}))

    with pytest.raises(DataLostError, match="remove"):
        EmbeddedServers(state_dir).start()


@pytest.mark.parametrize(("command", "status"), [(["true"], 0), (["sh", "-c", "exit 7"], 7)])
def test_the_command_line_returns_the_status_of_its_command(
    state_dir: Path, command: list[str], status: int
) -> None:
    launcher = [sys.executable, "-m", "config.embedded", "--fast", "--state-dir", str(state_dir)]
    done = subprocess.run([*launcher, "--", *command], cwd=REPOSITORY, check=False)

    assert done.returncode == status
    assert running(str(state_dir)) == []


def test_a_terminated_command_line_passes_it_on_and_stops_its_servers(state_dir: Path) -> None:
    with launched(state_dir) as it:
        it.process.send_signal(signal.SIGTERM)
        assert it.process.wait(60) == 128 + signal.SIGTERM
        assert running(str(state_dir)) == []
        with closing(socket.socket()) as client:
            assert client.connect_ex(("127.0.0.1", urlsplit(it.redis_url).port or 0)) != 0
