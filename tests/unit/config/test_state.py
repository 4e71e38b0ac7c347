import os
import stat
from pathlib import Path

import pytest

from config.embedded import AlreadyRunningError, EmbeddedError
from config.embedded.state import (
    StateLock,
    make_state_dir,
    read_env,
    trim_log,
    write_env,
    write_private,
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_can_list_a_new_state_directory(tmp_path: Path) -> None:
    state = make_state_dir(tmp_path / "a" / "state")

    assert mode(state) == (0o711 if os.geteuid() == 0 else 0o700)
    assert mode(state / "logs") == 0o700


def test_the_mode_of_an_existing_directory_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)

    make_state_dir(tmp_path)

    assert mode(tmp_path) == 0o750


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)

    write_private(path, "new")

    assert path.read_text() == "new"
    assert mode(path) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_environment_file_keeps_what_it_does_not_set(tmp_path: Path) -> None:
    path = tmp_path / "env"
    write_env(path, {"SECRET_KEY": "a=b#c", "DATABASE_URL": "postgresql://one"})
    with path.open("a") as file:
        file.write("\n# mine\nALLOWED_HOSTS=gpu.example\n")

    write_env(path, {"DATABASE_URL": "postgresql://two"})

    assert mode(path) == 0o600
    assert read_env(path) == {
        "ALLOWED_HOSTS": "gpu.example",
        "DATABASE_URL": "postgresql://two",
        "SECRET_KEY": "a=b#c",
    }


def test_no_environment_file_is_an_empty_one(tmp_path: Path) -> None:
    assert read_env(tmp_path / "env") == {}


@pytest.mark.parametrize("line", ["nonsense", "=value", "A KEY=value"])
def test_a_line_that_is_no_assignment_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "env"
    path.write_text(f"GOOD=1\n{line}\n")

    with pytest.raises(EmbeddedError, match="line 2 is not KEY=VALUE"):
        read_env(path)


@pytest.mark.parametrize(("key", "value"), [("A", "one\ntwo"), ("A B", "one"), ("", "one")])
def test_what_would_not_read_back_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ValueError, match="not a value"):
        write_env(tmp_path / "env", {key: value})


def test_a_log_over_its_limit_moves_aside_and_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("ab") as server:
        server.write(b"x" * 100)
        server.flush()
        trim_log(path, limit_bytes=100)
        assert path.stat().st_size == 100

        server.write(b"y")
        server.flush()
        trim_log(path, limit_bytes=100)
        server.write(b"z")

    assert path.read_bytes() == b"z"
    assert path.with_name("server.log.1").read_bytes() == b"x" * 100 + b"y"


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first = StateLock(tmp_path / "lock", "Headroom")
    second = StateLock(tmp_path / "lock", "Headroom")
    first.acquire()
    first.acquire()

    with pytest.raises(AlreadyRunningError, match=f"process {os.getpid()}"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()
