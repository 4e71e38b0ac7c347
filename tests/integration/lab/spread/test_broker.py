"""Parts on real Celery workers, in processes of their own, over the real Valkey."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import redis

from lab.approaches.comparison import RUN, Part, Run, Setup
from lab.spread import Ended, Kept, Where, run_all
from lab.spread.broker import BrokerError, run_one
from lab.spread.fingerprint import fingerprint
from lab.spread.task import Outcome, pack
from tests.data_sets import REPOSITORY

#: An index of the tests' Valkey that nothing else uses.
BROKER = os.environ.get("REDIS_URL", "").removesuffix("/0") + "/5"
PREFIX = "headroom-lab"


@pytest.fixture
def client() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(BROKER) as found:
        found.flushdb()
        yield found
        found.flushdb()


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """Two minutes of a rack at each of two sites."""
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    rows = [f"2017-10-04 10:00:{at:02},3000.0,8,24000.0,vc" for at in range(0, 30, 3)]
    path.write_text("\n".join(["time,duration_s,num_gpus,gpu_seconds,vc", *rows]) + "\n")
    return Setup(trace=path, from_h=0.0, hours=2.0 / 60.0, gpus=64, power_share=0.5)


@pytest.fixture(scope="module")
def alone(setup: Setup) -> dict[Part, bytes]:
    """What the parts come to in one process."""
    return _bytes_of(run_all(RUN, _parts(setup), where=Where(workers=1)))


@pytest.mark.slow(
    beside="tests/unit/lab/spread/test_spread.py::test_processes_come_to_the_same_bytes_as_one"
)
def test_two_workers_come_to_the_same_bytes_though_one_is_killed(
    client: redis.Redis, setup: Setup, alone: dict[Part, bytes], tmp_path: Path
) -> None:
    said: list[str] = []
    kept = Kept(tmp_path / "kept")
    where = Where(broker=BROKER, say=said.append)
    with _worker() as first, _worker():
        ended = run_all(RUN, _parts(setup), where=where, kept=kept)
        found = [next(ended)]
        _wait_for(lambda: _killed_in_the_middle(client, first))
        found += ended
    assert _bytes_of(found) == alone
    assert len({each.host for each in found}) == 1
    assert _claims(client) == {}

    # Who asks again has them from the disk, and who lost the disk from the broker: nobody works.
    again = list(run_all(RUN, _parts(setup), where=where, kept=kept))
    assert all(each.was_kept for each in again)
    assert _bytes_of(run_all(RUN, _parts(setup), where=where)) == alone
    assert said == []


def test_what_nobody_waits_for_any_more_is_not_run(client: redis.Redis, setup: Setup) -> None:
    ended = run_all(RUN, _parts(setup), where=Where(broker=BROKER))
    with _worker():
        next(ended)
        ended.close()
        # In this order: what is in neither has not begun. More than one may be done by now.
        begun = _parts_of(client, "claim") | _parts_of(client, "done")
        _wait_for(lambda: not client.exists(_queue()) and not _claims(client))
        assert _parts_of(client, "done") <= begun
        assert len(begun) < len(_parts(setup))


def _parts_of(client: redis.Redis, state: str) -> set[bytes]:
    return {key.rpartition(b":")[2] for key in client.scan_iter(f"{PREFIX}:{state}:*")}


def test_a_task_in_other_hands_is_left_alone(
    client: redis.Redis, setup: Setup, tmp_path: Path
) -> None:
    packed, _ = pack(RUN, _parts(setup)[0])
    client.set(f"{PREFIX}:task:{packed.key}", msgspec.msgpack.encode(packed))
    client.set(f"{PREFIX}:claim:{packed.key}", b"other:1")
    run_one(client, packed.key, tmp_path)
    assert client.get(f"{PREFIX}:claim:{packed.key}") == b"other:1"
    assert not client.exists(f"{PREFIX}:done:{packed.key}")


@pytest.mark.parametrize(
    ("work", "code", "said"),
    [
        ("lab.approaches.comparison:RUN", "0" * 64, "not the task of this key, or of this code"),
        ("subprocess:run", None, "work stands within lab"),
        ("lab.approaches.comparison:RUN", None, "gone from the broker"),
    ],
)
def test_a_message_that_is_not_ours_to_run_ends_with_an_error(
    client: redis.Redis, setup: Setup, tmp_path: Path, work: str, code: str | None, said: str
) -> None:
    packed, _ = pack(RUN, _parts(setup)[0])
    packed = msgspec.structs.replace(packed, work=work, fingerprint=code or fingerprint().sha256())
    client.set(f"{PREFIX}:task:{packed.key}", msgspec.msgpack.encode(packed))
    run_one(client, packed.key, tmp_path)
    done = client.get(f"{PREFIX}:done:{packed.key}")
    assert isinstance(done, bytes)
    assert said in msgspec.msgpack.decode(done, type=Outcome).error


def test_a_broker_that_is_not_there_is_told(setup: Setup) -> None:
    with pytest.raises(BrokerError, match="--broker"):
        next(run_all(RUN, _parts(setup), where=Where(broker="redis://127.0.0.1:1/0")))


def _parts(setup: Setup) -> list[Part]:
    return [Part(setup, name, seed) for seed in (1, 2, 3) for name in ("single-queue", "tuned")]


def _bytes_of(ended: object) -> dict[Part, bytes]:
    assert isinstance(ended, Iterator | list)
    found: dict[Part, bytes] = {}
    for each in ended:
        assert isinstance(each, Ended)
        run = each.value()
        assert isinstance(run, Run)
        found[each.argument] = msgspec.msgpack.encode(run)
    return found


@contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker as a host would, in a session of its own; stop it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lab", "worker", "--processes", "1"],
        cwd=REPOSITORY,
        env=os.environ | {"HEADROOM_LAB_BROKER": BROKER},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(30.0)


def _claims(client: redis.Redis) -> dict[str, int]:
    """Return the keys that somebody is at, and the ids of their processes."""
    found = {}
    for name in client.scan_iter(f"{PREFIX}:claim:*"):
        value = client.get(name)
        if isinstance(value, bytes):
            found[name.decode().rpartition(":")[2]] = int(value.rpartition(b":")[2])
    return found


def _killed_in_the_middle(client: redis.Redis, worker: subprocess.Popen[bytes]) -> bool:
    """Stop a worker; kill it where it is at something that is not done, else let it go on."""
    os.killpg(worker.pid, signal.SIGSTOP)
    for key, pid in _claims(client).items():
        if os.getpgid(pid) == worker.pid and not client.exists(f"{PREFIX}:done:{key}"):
            os.killpg(worker.pid, signal.SIGKILL)
            return True
    os.killpg(worker.pid, signal.SIGCONT)
    return False


def _queue() -> str:
    return f"{PREFIX}-{fingerprint().sha256()[:16]}"


def _wait_for(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.05)
