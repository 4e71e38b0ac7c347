import argparse
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from config import up
from config.embedded.state import read_env

EMBEDDED = {"DATABASE_URL": "postgresql://embedded/x", "REDIS_URL": "redis://embedded/0"}


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def no_servers_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def make_options(**changes: object) -> argparse.Namespace:
    options = up.parse([])
    return argparse.Namespace(**vars(options) | changes)


@pytest.mark.usefixtures("no_servers_given")
def test_the_secret_key_is_made_once(tmp_path: Path) -> None:
    first = up.installation(tmp_path / "env", EMBEDDED, "http://127.0.0.1:8000")
    again = up.installation(tmp_path / "env", EMBEDDED, "http://127.0.0.1:9000")

    assert len(first["SECRET_KEY"]) >= 50
    assert again == first | {"HEADROOM_URL": "http://127.0.0.1:9000"}
    assert read_env(tmp_path / "env") == again


@pytest.mark.usefixtures("no_servers_given")
def test_each_server_can_be_replaced_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://mine/x")

    settings = up.installation(
        tmp_path / "env", {"REDIS_URL": EMBEDDED["REDIS_URL"]}, "http://127.0.0.1:8000"
    )

    assert settings["DATABASE_URL"] == "postgresql://mine/x"
    assert settings["REDIS_URL"] == EMBEDDED["REDIS_URL"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("gpu.example", "http://gpu.example:8000"),
    ],
)
def test_the_url_is_one_that_this_machine_reaches(host: str, url: str) -> None:
    assert up.base_url(host, 8000) == url


def test_senders_stop_before_intake_and_intake_before_storage(tmp_path: Path) -> None:
    services = up.services(make_options(), tmp_path, "http://127.0.0.1:8000")

    assert [service.name for service in services] == [
        "web",
        "worker",
        "housekeeper",
        "beat",
        "demo",
        "agent",
    ]
    by_rank = sorted(services, key=lambda service: service.stop_rank)
    assert [service.name for service in by_rank] == [
        "demo",
        "agent",
        "web",
        "beat",
        "worker",
        "housekeeper",
    ]
    assert [service.name for service in services if service.needs_ready] == ["demo", "agent"]


def test_no_demo_means_none(tmp_path: Path) -> None:
    services = up.services(make_options(demo=False), tmp_path, "http://127.0.0.1:8000")

    assert "demo" not in [service.name for service in services]


def test_a_further_host_runs_what_it_is_told_to(tmp_path: Path) -> None:
    options = up.parse(["--no-demo", "--services", "web", "worker"])

    assert [each.name for each in up.services(options, tmp_path, "http://x:1")] == ["web", "worker"]


def test_an_agent_without_a_web_service_to_push_to_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        up.parse(["--no-demo", "--services", "worker", "agent"])
    assert "add web to --services" in capsys.readouterr().err


def test_no_secret_is_on_a_command_line(tmp_path: Path) -> None:
    for service in up.services(make_options(), tmp_path, "http://127.0.0.1:8000"):
        for word in service.argv:
            assert os.environ["DATABASE_URL"] not in word
            assert os.environ["REDIS_URL"] not in word


def test_a_taken_port_is_said_with_the_way_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        status = up.main(["--port", str(port), "--state-dir", str(tmp_path / "state")])

    assert status == 1
    assert f"port {port} on 127.0.0.1 is taken" in capfd.readouterr().err


def test_a_preparation_that_fails_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "manage.py").write_text("import sys\nprint('no such table')\nsys.exit(3)\n")
    monkeypatch.setattr(up, "REPOSITORY", tmp_path)

    status = up.main(["--port", str(free_port()), "--state-dir", str(tmp_path / "state")])

    assert status == 1
    said = capfd.readouterr()
    assert "prepare |" in said.out
    assert "no such table" in said.out
    assert "prepare failed (status 3)" in said.err
    assert "no such table" in (tmp_path / "state/logs/prepare.log").read_text()
