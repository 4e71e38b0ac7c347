"""Launchers to be killed, and ways to see what is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import redis

REPOSITORY = Path(__file__).resolve().parents[3]

#: What the tests' own servers have set.
_GIVEN = ("DATABASE_URL", "DATABASE_OWNER_URL", "REDIS_URL", "SECRET_KEY", "HEADROOM_STATE_DIR")
_SAY_AND_WAIT = (
    'echo "$DATABASE_URL"; echo "$REDIS_URL"; echo "$DATABASE_OWNER_URL"; exec sleep 600'
)


@dataclass(frozen=True)
class Launched:
    """A launcher in a process of its own, and the URLs of its servers."""

    process: subprocess.Popen[str]
    database_url: str
    redis_url: str
    owner_url: str


@contextmanager
def launched(
    state_dir: Path,
    *,
    python: Sequence[str] = (sys.executable,),
    env: Mapping[str, str] | None = None,
    uid: int | None = None,
) -> Iterator[Launched]:
    """Run `python -m config.embedded` on `state_dir`, stopped with SIGTERM at the end."""
    command = [*python, "-m", "config.embedded", "--state-dir", str(state_dir)]
    with subprocess.Popen(
        [*command, "--", "sh", "-c", _SAY_AND_WAIT],
        cwd=REPOSITORY,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
    ) as process:
        assert process.stdout is not None
        try:
            yield Launched(process, *(process.stdout.readline().strip() for _ in range(3)))
        finally:
            process.terminate()
            process.wait(30)


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> bool:
    """Wait for `condition`; tell whether it came true."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def running(*needles: str) -> list[str]:
    """Return the command lines of live processes that hold every needle."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            own = path.parent.name == str(os.getpid())
            if not own and all(needle in line for needle in needles):
                found.append(line)
    return found


def serves(database_url: str) -> bool:
    """Tell whether the database answers."""
    try:
        with psycopg.connect(database_url, connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def answers(redis_url: str) -> bool:
    """Tell whether Valkey answers."""
    with redis.Redis.from_url(redis_url) as client:
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False


def living_with(variable: str, value: str) -> list[int]:
    """Return the processes that were started with `variable` set to `value`."""
    wanted = f"{variable}={value}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if wanted in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def of_a_shell() -> dict[str, str]:
    """Return the environment without what leads to the tests' own servers."""
    return {name: value for name, value in os.environ.items() if name not in _GIVEN}


@contextmanager
def up(state_dir: Path, port: int) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start without the demo fleet and yield once it says that it is up."""
    command = [sys.executable, "-m", "config.up", "--no-demo", "--port", str(port)]
    shown = state_dir.with_name("shown")
    with (
        shown.open("wb") as output,
        subprocess.Popen(
            [*command, "--state-dir", str(state_dir)],
            cwd=REPOSITORY,
            env=of_a_shell(),
            stdout=output,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            until(lambda: "Headroom is up" in shown.read_text() or process.poll() is not None, 300)
            assert "Headroom is up" in shown.read_text(), shown.read_text()
            assert process.poll() is None, shown.read_text()
            yield process, shown
        finally:
            process.kill()
            until(lambda: not running(str(state_dir)))


def manage(state_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py` on an installation, as from a shell that knows its state folder alone."""
    return subprocess.run(
        [sys.executable, "manage.py", *words],
        cwd=REPOSITORY,
        env={**of_a_shell(), "HEADROOM_STATE_DIR": str(state_dir)},
        capture_output=True,
        text=True,
        check=False,
    )
