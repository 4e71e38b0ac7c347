"""State that is damaged, settings that are misspelt, and a second start: one sentence each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings

from config import checks, env, up
from config.embedded import EmbeddedError
from config.embedded.servers import EmbeddedServers
from config.embedded.state import StateLock, read_env

REPOSITORY = Path(settings.BASE_DIR)


@pytest.fixture
def no_servers_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)


def start(state: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """Start everything on ``state``, which is to fail, and return what was said."""
    assert up.main(["--port", "0", "--state-dir", str(state), "--no-demo"]) == 1
    return capfd.readouterr().err


def of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return everything in a folder, with its times and contents."""
    return {
        str(path): (path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("no_servers_given")
def test_a_second_start_on_the_same_folder_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    for name in ("metrics", "heartbeats", "logs"):
        (state / name).mkdir(parents=True)
        (state / name / "one").write_text("of the first")
    for name in ("env", "admin-password", "services.json", "postgres.json", "valkey.json"):
        (state / name).write_text("of the first")
    lock = StateLock(state / "headroom.lock", "Headroom")
    lock.acquire()
    before = of(state)
    try:
        said = start(state, capfd)
    finally:
        lock.release()
    assert f"Headroom already runs on {state} (process {os.getpid()})" in said
    assert said.count("\n") == 1
    assert of(state) == before


@pytest.mark.usefixtures("no_servers_given")
@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"port": 1}', b"\xff\xfe"])
@pytest.mark.parametrize("name", ["postgres.json", "valkey.json"])
def test_a_damaged_record_is_told_in_one_sentence(tmp_path: Path, name: str, damage: bytes) -> None:
    (tmp_path / name).write_bytes(damage)
    servers = EmbeddedServers(
        tmp_path, postgres=name == "postgres.json", valkey=name == "valkey.json"
    )
    with pytest.raises(EmbeddedError, match="is damaged") as told:
        servers.start()
    assert str(tmp_path / name) in str(told.value)


@pytest.mark.parametrize("damage", [b"no equals sign\n", b"\xff\xfe\n"])
def test_a_damaged_env_file_is_told_in_one_sentence(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "env"
    path.write_bytes(damage)
    with pytest.raises(EmbeddedError, match=r"is damaged .* Mend the line"):
        read_env(path)


def test_what_a_lock_file_holds_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "headroom.lock"
    path.write_bytes(b"\xff not a number")
    lock = StateLock(path, "Headroom")
    lock.acquire()
    lock.release()
    assert path.read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize("text", ["", "eighteen", "\xff"])
def test_a_damaged_marker_of_postgres_is_told_in_one_sentence(tmp_path: Path, text: str) -> None:
    from config.embedded.postgres import Postgres

    data = tmp_path / "postgres"
    data.mkdir()
    (data / "PG_VERSION").write_text(text, encoding="latin-1")
    server = Postgres(tmp_path, durable=False)
    server._record = server._record.__class__(1, "", "postgres")
    with pytest.raises(EmbeddedError, match="PG_VERSION is damaged"):
        server._data_version()


def test_a_value_that_cannot_be_used_is_told_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=REPOSITORY,
        env=os.environ | {"STALE_AFTER_S": "soon"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: STALE_AFTER_S='soon' is not a number\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("TELEMETRY_HOT_HOURS", "TELEMETRY_HOT_H"),
        ("TELEMETRY_RETENTON_H", "TELEMETRY_RETENTION_H"),
        ("WATCHDOG_URLS", "WATCHDOG_URL"),
        ("INCIDENT_QUIET", "INCIDENT_QUIET_S"),
    ],
)
def test_a_misspelt_setting_is_told_with_the_one_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, name: str, meant: str
) -> None:
    monkeypatch.setenv(name, "1")
    (told,) = checks.misspelt()
    assert name in told.msg
    assert meant in (told.hint or "")


@pytest.mark.parametrize("name", ["TELEMETRY_HOT_H", "PATH", "WORK_DIR", "EMAIL", "LOG_DIR"])
def test_settings_and_what_is_somebody_elses_are_left_alone(name: str) -> None:
    assert env.misspelt([name]) == {}


def test_the_password_goes_to_a_terminal_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = tmp_path / "admin-password"
    password.write_text("correct horse\n")
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    assert "correct horse" not in up._sign_in(password, reveal=True)
    assert str(password) in up._sign_in(password, reveal=True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "correct horse" in up._sign_in(password, reveal=True)
